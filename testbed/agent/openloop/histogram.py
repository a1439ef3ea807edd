"""Histogram of latencies with buckets that grow with the value, as in HdrHistogram.

A value is counted in whole microseconds, in a bucket at most 1/128 of the value wide. So quantiles
are exact to 0.8 %, from microseconds to hours, in a few hundred counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_BITS = 7
_SUB = 1 << _BITS


def bucket_of(microseconds: int) -> int:
    """Return the bucket of a value of at least 0."""
    shift = max(0, microseconds.bit_length() - _BITS - 1)
    return shift * _SUB + (microseconds >> shift)


def bounds_us(bucket: int) -> tuple[int, int]:
    """Return the first value (microseconds) of a bucket and the first value above the bucket."""
    shift = max(0, bucket // _SUB - 1)
    low = (bucket - shift * _SUB) << shift
    return low, low + (1 << shift)


@dataclass
class Histogram:
    """Counts by bucket. Sum and extremes (seconds) are exact."""

    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    sum_s: float = 0.0
    min_s: float = math.inf
    max_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one value; a negative value (clocks) counts as 0."""
        value = max(0.0, seconds)
        bucket = bucket_of(int(value * 1e6))
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.total += 1
        self.sum_s += value
        self.min_s = min(self.min_s, value)
        self.max_s = max(self.max_s, value)

    @property
    def mean_s(self) -> float | None:
        """The mean; None if nothing was counted."""
        return self.sum_s / self.total if self.total else None

    def quantile_s(self, share: float) -> float | None:
        """Return the smallest value with at least `share` (0 to 1) of all at or below it: the
        middle of its bucket, within the seen extremes. None if nothing was counted."""
        if not self.total:
            return None
        wanted, seen = max(1, math.ceil(share * self.total - 1e-9)), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                low, high = bounds_us(bucket)
                return min(self.max_s, max(self.min_s, (low + high) / 2e6))
        raise AssertionError("the counts do not add up to their total")

    def to_json(self) -> dict[str, object]:
        """Return the histogram as JSON-able data."""
        return {
            "counts": {str(bucket): count for bucket, count in sorted(self.counts.items())},
            "sum_s": self.sum_s,
            "min_s": self.min_s if self.total else None,
            "max_s": self.max_s if self.total else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Histogram:
        """Invert `to_json`; raise ValueError for anything else."""
        try:
            counts = {int(bucket): int(n) for bucket, n in dict(data["counts"]).items()}  # type: ignore[call-overload]
            low, high = data["min_s"], data["max_s"]
            return cls(
                counts=counts,
                total=sum(counts.values()),
                sum_s=float(data["sum_s"]),  # type: ignore[arg-type]
                min_s=math.inf if low is None else float(low),  # type: ignore[arg-type]
                max_s=0.0 if high is None else float(high),  # type: ignore[arg-type]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a histogram: {error}") from error


def merged(parts: Iterable[Histogram]) -> Histogram:
    """Return one histogram with all counts of `parts`."""
    whole = Histogram()
    for part in parts:
        for bucket, count in part.counts.items():
            whole.counts[bucket] = whole.counts.get(bucket, 0) + count
        whole.total += part.total
        whole.sum_s += part.sum_s
        whole.min_s = min(whole.min_s, part.min_s)
        whole.max_s = max(whole.max_s, part.max_s)
    return whole
