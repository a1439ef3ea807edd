"""Measurements of the MOS paper (figures 1 to 5 and 8 to 12) on real microstores."""
