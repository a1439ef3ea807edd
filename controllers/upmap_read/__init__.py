"""Ceph's balancer module in upmap-read mode."""
