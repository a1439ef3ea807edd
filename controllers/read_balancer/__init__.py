"""Ceph's read balancer."""
