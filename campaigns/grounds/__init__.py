"""Grounds, which carry out cells: a live testbed or a simulated one."""
