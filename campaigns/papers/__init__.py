"""One package a paper: its kind of campaign, its cells and their measurement."""
