"""DLR with short windows."""
