"""Sizes of data sets in the Ursa paper's notation: ``10K-10M`` is 10,000 nodes, 10,000,000
partitions."""

from __future__ import annotations

import re
from decimal import Decimal

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMkm]?)")
_FACTORS = {"": 1, "k": 1000, "m": 1_000_000}


def count_of(text: str) -> int:
    """Return a whole number that may end in K or M: ``300``, ``0.1M``. ValueError: it is none; the
    message gives examples."""
    match = _SIZE.fullmatch(text.strip())
    value = Decimal(match[1]) * _FACTORS[match[2].lower()] if match else None
    if value is None or value != int(value):
        raise ValueError(f"{text!r} is no whole number such as 300, 10K or 0.1M")
    return int(value)


def counts_of(
    size: str, *, of: tuple[str, str] = ("nodes", "partitions"), example: str = "0.1K-0.1M"
) -> tuple[int, int]:
    """Return the two numbers of a size such as ``0.1K-0.1M``; `of` (the counted things) and
    `example` are for the message. ValueError: it is none; the message gives an example."""
    first, dash, second = size.partition("-")
    if not dash:
        raise ValueError(f"{size!r} is no size such as {example} ({'-'.join(of)})")
    return count_of(first), count_of(second)


def size_name(nodes: int, partitions: int) -> str:
    """Return the size in the paper's notation: ``0.1K-0.1M``, ``150-150K``, ``30-900``."""
    size = str(nodes) if nodes % 100 or not nodes else f"{nodes / 1000:g}K"
    if partitions and partitions % 100_000 == 0:
        return f"{size}-{partitions / 1_000_000:g}M"
    if partitions and partitions % 1000 == 0:
        return f"{size}-{partitions // 1000}K"
    return f"{size}-{partitions}"
