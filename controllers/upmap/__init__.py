"""Ceph's balancer module in upmap mode."""
