"""Mapping from object names to placement groups, and names for given placement groups.

Ceph hashes the name with Robert Jenkins' 1996 function (``ceph_str_hash_rjenkins``). It folds the
hash into the pool's number of PGs (``ceph_stable_mod``). The constants are part of every cluster's
placement. Objects have no namespace and no locator key here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

_GOLDEN = 0x9E3779B9
_WORD = 0xFFFFFFFF
_BLOCK = 12
MOST_TRIES_A_NAME = 1000
"""Tries per name, times the number of PGs. With that many tries, the search for a name in an
existing PG fails with probability e^-1000."""


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    a = ((a - b - c) & _WORD) ^ (c >> 13)
    b = ((b - c - a) & _WORD) ^ ((a << 8) & _WORD)
    c = ((c - a - b) & _WORD) ^ (b >> 13)
    a = ((a - b - c) & _WORD) ^ (c >> 12)
    b = ((b - c - a) & _WORD) ^ ((a << 16) & _WORD)
    c = ((c - a - b) & _WORD) ^ (b >> 5)
    a = ((a - b - c) & _WORD) ^ (c >> 3)
    b = ((b - c - a) & _WORD) ^ ((a << 10) & _WORD)
    c = ((c - a - b) & _WORD) ^ (b >> 15)
    return a, b, c


def _words(block: bytes) -> tuple[int, int, int]:
    return (
        int.from_bytes(block[0:4], "little"),
        int.from_bytes(block[4:8], "little"),
        int.from_bytes(block[8:12], "little"),
    )


def name_hash(name: bytes) -> int:
    """Return the 32-bit hash of an object's name."""
    a, b, c = _GOLDEN, _GOLDEN, 0
    whole = len(name) - len(name) % _BLOCK
    for start in range(0, whole, _BLOCK):
        x, y, z = _words(name[start : start + _BLOCK])
        a, b, c = _mix((a + x) & _WORD, (b + y) & _WORD, (c + z) & _WORD)
    rest = name[whole:]
    # The lowest byte of the third word is reserved for the length.
    x, y, z = _words(rest[:8].ljust(8, b"\0") + b"\0" + rest[8:].ljust(3, b"\0"))
    _, _, c = _mix((a + x) & _WORD, (b + y) & _WORD, (c + z + len(name)) & _WORD)
    return c


def stable_mod(value: int, count: int) -> int:
    """Fold `value` into `count` (1 or more) such that few values move when `count` grows."""
    mask = (1 << (count - 1).bit_length()) - 1
    folded = value & mask
    return folded if folded < count else value & (mask >> 1)


def pg_of(name: str, pool: int, pg_num: int) -> str:
    """Return the id (``"2.1f"``) of an object's placement group in the pool with this number."""
    return f"{pool}.{stable_mod(name_hash(name.encode()), pg_num):x}"


def names_for(
    pgids: Iterable[str], pool: int, pg_num: int, count: int, prefix: str = "hotbed-ol"
) -> Mapping[str, tuple[str, ...]]:
    """Return `count` object names for each of `pgids`, always the same: ``<prefix>-<number>``.

    The names depend only on the arguments, so that another run overwrites the same objects.

    Raises:
        ValueError: a PG is not in the pool.
    """
    wanted: dict[int, list[str]] = {}
    order = list(pgids)
    for pgid in order:
        of_pool, _, placement = pgid.partition(".")
        if of_pool != str(pool) or not 0 <= int(placement, 16) < pg_num:
            raise ValueError(
                f"PG {pgid} is none of pool {pool}, whose PGs are {pool}.0 to {pool}.{pg_num - 1:x}"
            )
        wanted[int(placement, 16)] = []
    missing = len(wanted)
    for number in itertools.count():
        if missing == 0:
            break
        assert number < MOST_TRIES_A_NAME * pg_num * max(1, count)
        name = f"{prefix}-{number}"
        found = wanted.get(stable_mod(name_hash(name.encode()), pg_num))
        if found is not None and len(found) < count:
            found.append(name)
            missing -= len(found) == count
    return {pgid: tuple(wanted[int(pgid.partition(".")[2], 16)]) for pgid in order}
