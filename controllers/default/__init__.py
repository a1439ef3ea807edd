"""Ceph as it is: the baseline that changes nothing."""
