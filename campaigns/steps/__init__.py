"""The steps of a cell on a live testbed."""
