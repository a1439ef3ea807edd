"""Placers and movers, see `controllers.ursa.methods`."""
