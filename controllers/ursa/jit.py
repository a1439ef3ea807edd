"""Ursa's loops are compiled as those of every planner."""

from controllers.jit import COMPILED, THREADS, in_threads, njit

__all__ = ["COMPILED", "THREADS", "in_threads", "njit"]
