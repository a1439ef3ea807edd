"""Analysis: load runs, compute statistics, draw figures, check claims, write reports."""
