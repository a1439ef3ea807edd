"""Parts that the analysis of every paper uses: loading, statistics, claims, figures, reports."""
