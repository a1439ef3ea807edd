"""Check of numbers in files that people write."""

from __future__ import annotations

import math
from typing import TypeGuard


def finite(value: object) -> TypeGuard[float]:
    """Return True if `value` is a number that a float can hold, and no boolean."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
