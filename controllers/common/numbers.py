"""What counts as a number in files that people write."""

from __future__ import annotations

import math
from typing import TypeGuard


def finite(value: object) -> TypeGuard[float]:
    """Whether it is a number (and no truth value) that a float can hold: YAML and JSON have whole
    numbers of any length."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
