"""The two-choice paper: its simulations' figures and claims, and what lies beyond them."""
