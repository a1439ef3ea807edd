"""Ursa: load-aware placement at data-centre scale (You, Hwang and Jain, Middleware 2011).

``instance`` and ``io`` hold the problem, ``plan`` chains the phases (loads, swaps, selection,
placement), ``check`` verifies a plan independently, ``generate`` makes instances after the paper's
section 5.1, ``live`` steers a store. `docs/ursa.md` describes formats and methods; what goes beyond
the paper's model is in `controllers.research.ursa`.
"""
