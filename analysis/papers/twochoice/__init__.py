"""The two-choice paper: figures and claims of its simulations, and claims beyond them."""
