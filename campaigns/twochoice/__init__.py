"""The two-choice scheduler's simulated ground: a cell simulates bursts of writes (section III).

The engine, the run folders, the ledger and the Dask workers are those of every campaign; its own is
what a cell is (`parameters`), what makes it (`simulator`, the program `tcsim`) and how (`cell`).
"""
