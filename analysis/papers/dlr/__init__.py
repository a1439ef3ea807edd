"""The DLR paper (Noel and Lama, 2017): its claims and figures."""
