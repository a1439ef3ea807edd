"""DLR at the grain of single placement groups."""
