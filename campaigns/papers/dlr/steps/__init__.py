"""Steps of a cell on a live testbed."""
