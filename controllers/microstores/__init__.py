"""Shared parts of MOS and MOS++: performance model, pool, rules, optimiser, detect-and-map, prices.

Standard library only, except for `milp`, which needs highspy; `docs/mos.md` gives an overview.
"""
