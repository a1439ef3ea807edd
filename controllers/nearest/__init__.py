"""The paper's baseline HtoC on a running store."""
