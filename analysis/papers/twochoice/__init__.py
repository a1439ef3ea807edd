"""The two-choice paper: claims and figures of its simulations and of its measurements on object
servers, and claims beyond them."""
