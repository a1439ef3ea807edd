"""dlr-even with moves of replicas where no choice of primaries suffices."""
