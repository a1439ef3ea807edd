"""Figures 11 to 14 and Table I of the two-choice paper, from runs on real object servers."""
