"""Request traces: loaders, generators, and stand-ins for traces that cannot be shipped."""
