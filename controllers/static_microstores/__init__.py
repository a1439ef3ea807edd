"""Fixed allocations to compare MOS with."""
