"""Ursa on a running store: measured loads in, swaps and moves out, a few at a time.

``loads`` takes the mean of what is sensed, ``problem`` makes a planner's instance of it,
``planning`` asks the planner, ``queue`` gives out what was decided within the budget, ``steering``
is the control loop's policy. docs/ursa.md tells how it is used.
"""
