"""Cells on a testbed of real Swift microstores."""
