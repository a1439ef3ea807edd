"""Shared parts of MOS and MOS++: performance model, provisioning problem and solvers, pool in
steps, rules of thumb, detect-and-map.

Standard library only, except for `milp`, which needs highspy; `docs/mos.md` gives an overview.
"""
