"""The campaign of the planner Ursa: every cell makes an instance, plans for it and checks the plan.

Engine, run folders, ledger and Dask workers are the same for every campaign. This package has the
cell's maker (`cell`), its numbers (`measure`) and the declaration of the kind (`kind`).
"""
