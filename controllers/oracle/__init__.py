"""Affinities by a policy that knows the hotspots."""
