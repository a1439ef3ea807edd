"""DLR for single placement groups."""
