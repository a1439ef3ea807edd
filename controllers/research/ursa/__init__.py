"""Ursa beyond the paper's model: several dimensions, budgets, and rounds that follow each other.

The phases are those of `controllers.ursa.plan`. In `plan`, loads are vectors, a fault domain counts
at every level, and a group of partitions is one unit; the paper's model is planned for by
`controllers.ursa`, which is faster. `rounds` plans again and again while loads change.
"""
