"""The two-choice scheduler's simulated ground: a cell simulates bursts of writes (section III).

Engine, run folders, ledger and Dask workers are the same for every campaign. This package has the
cell's maker (`cell`), its simulator (`simulator`, the program `tcsim`) and its numbers (`measure`).
"""
