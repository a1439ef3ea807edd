"""A comparison of controllers: ranking, figure, table, claims."""
