"""Ceph's reweight-by-utilization with the limits of later releases."""
