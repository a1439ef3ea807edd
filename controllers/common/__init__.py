"""What policies share: typed parameters, affinity arithmetic, a closed-network model."""
