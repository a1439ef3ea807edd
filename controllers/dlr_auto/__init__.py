"""DLR with thresholds taken from the signal itself."""
