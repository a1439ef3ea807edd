"""One package a paper: its claims and figures."""
