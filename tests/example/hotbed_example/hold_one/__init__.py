"""A controller: its folder is its code."""
