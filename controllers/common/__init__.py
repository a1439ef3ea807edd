"""Shared parts of policies: typed parameters, affinity arithmetic, a closed-network model."""
