"""Bounds, variants and general models that no figure needs, behind the controllers' options."""
