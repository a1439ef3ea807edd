"""Fixed allocations that MOS is compared with."""
