"""The affinities of somebody who knows where the hotspots are."""
