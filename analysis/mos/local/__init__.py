"""What the MOS paper measured (figures 1 to 5 and 8 to 12), on real microstores."""
