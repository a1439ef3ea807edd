"""Workloads of the paper's Table 1, as the model sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KB, MB = 1000, 1_000_000
"""Bytes in COSBench's decimal units."""

LARGE_FROM = 10 * MB
"""Most large objects are above this size: bandwidth matters, not latency (section 6)."""


@dataclass(frozen=True)
class ObjectClass:
    """Objects of uniformly distributed size, and the mix of operations on them.

    Attributes:
        letter: A to D.
        low, high: sizes in bytes.
        read, write, delete: shares of the operations, together 1.
    """

    letter: str
    low: float
    high: float
    read: float
    write: float
    delete: float

    @property
    def mean_bytes(self) -> float:
        """Mean size of an object."""
        return (self.low + self.high) / 2

    @property
    def payload(self) -> float:
        """Mean bytes of an operation; a delete carries none."""
        return self.mean_bytes * (self.read + self.write)

    @property
    def large(self) -> bool:
        """True if its tenants want bandwidth."""
        return self.mean_bytes > LARGE_FROM / 2

    def share_up_to(self, size: float) -> float:
        """Return the share of the objects of at most `size` bytes."""
        return min(1.0, max(0.0, (size - self.low) / (self.high - self.low)))


CLASSES: Mapping[str, ObjectClass] = {
    "A": ObjectClass("A", 1 * KB, 128 * KB, 0.90, 0.05, 0.05),
    "B": ObjectClass("B", 1 * KB, 128 * KB, 0.05, 0.90, 0.05),
    "C": ObjectClass("C", 1 * MB, 128 * MB, 0.90, 0.05, 0.05),
    "D": ObjectClass("D", 1 * MB, 128 * MB, 0.05, 0.90, 0.05),
}
"""Table 1."""

LOCAL_LARGE = (1 * MB, 16 * MB)
"""Sizes of C's and D's objects on a testbed with two cores."""


def local(letter: str) -> ObjectClass:
    """Return a class with the sizes of a small testbed."""
    one = CLASSES[letter]
    if not one.large:
        return one
    low, high = LOCAL_LARGE
    return ObjectClass(letter, low, high, one.read, one.write, one.delete)
