"""Ceph's mClock scheduler with a profile for clients."""
