"""Ceph's reweight-by-utilization, run once an interval."""
