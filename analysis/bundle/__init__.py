"""What a reviewer gets: one archive of runs, figures and claims, and its verification."""
