"""The campaign of the planner Ursa: every cell makes an instance, plans for it and checks the plan.

The engine, the run folders, the ledger and the Dask workers are those of every campaign; what is
Ursa's own is what a cell is (`parameters`), how it is made (`cell`) and who may make it (`code`).
"""
