"""What MOS and MOS++ share: performance model, pool, rules, optimiser, detect-and-map, prices.

Standard library only but for `optimiser`, which needs highspy; `docs/mos.md` tells how they fit.
"""
