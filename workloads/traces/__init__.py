"""Request traces: loaders, generators, and replacements for traces that cannot be shipped."""
