"""Ursa: load-aware placement at data-centre scale (You, Hwang and Jain, Middleware 2011).

``instance`` and ``io`` hold what is planned for, ``plan`` chains the phases (loads, swaps,
selection, placement), ``check`` verifies a plan on its own, ``generate`` makes instances after the
paper's section 5.1. `docs/ursa.md` tells formats and methods.
"""
