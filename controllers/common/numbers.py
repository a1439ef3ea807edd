"""Checks of numbers and mappings in files that people write."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from schemas.errors import UserError, not_allowed
from schemas.numbers import plain


def finite(value: object) -> TypeGuard[float]:
    """Return True if `value` is a number that a float can hold, and no boolean."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def number_of(
    value: object,
    where: str,
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    texts: bool = False,
) -> float:
    """Return `value` as a float.

    Args:
        value: the value in the file.
        where: its place, for the error.
        low: the smallest allowed number.
        high: the largest allowed number.
        above: True if `low` itself is not allowed.
        texts: True if YAML's texts such as ``5e-1`` count as numbers (`schemas.numbers.plain`).

    Raises:
        UserError: it is no such number.
    """
    value = plain(value) if texts else value
    if not finite(value) or not low <= value <= high or (above and value == low):
        least = f"a number above {low:g}" if above else f"a number of at least {low:g}"
        least = "a finite number" if math.isinf(low) else least
        raise not_allowed(where, value, least + ("" if math.isinf(high) else f", at most {high:g}"))
    return float(value)


def keys_of(
    data: object, where: str, allowed: Collection[str], needed: Collection[str] = ()
) -> Mapping[str, Any]:
    """Return `data`, a mapping with all `needed` keys and only `allowed` ones. UserError: it is
    something else."""
    if not isinstance(data, Mapping):
        raise not_allowed(where, data, f"a mapping with {', '.join(allowed)}")
    for name in data:
        if name not in allowed:
            raise UserError(f"unknown key {name!r}", where=where, allowed=", ".join(allowed))
    for name in needed:
        if name not in data:
            raise UserError(f"{name} is missing", where=where)
    return data
