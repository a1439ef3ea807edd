"""dlr-even from short windows."""
