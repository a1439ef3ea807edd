"""Analysis: load runs, statistics, figures, claims, report. Reads artifacts, steers nothing."""
