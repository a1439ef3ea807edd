"""Bundles for reviewers: one archive of runs, figures and claims, and its verification."""
