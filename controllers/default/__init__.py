"""Unchanged Ceph: the baseline without a controller's actions."""
