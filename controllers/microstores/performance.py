"""Performance of a workload on given resources: the paper's cospurf (section 6, equation 3).

Its shape follows rules R2 to R7: a workload runs as fast as its scarcest resource allows
(`PiecewiseLinear`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from controllers.common.numbers import finite, keys_of, number_of
from schemas.errors import UserError, not_allowed
from testbed.stores.microstores import Resources

Point = tuple[float, float]


@dataclass(frozen=True)
class CapacityCurve:
    """Breakpoints (amount, value). Amounts rise from 0, values never fall.

    The value is linear between breakpoints, and constant beyond the last: no measurement promises
    more.
    """

    points: tuple[Point, ...]

    def value(self, amount: float) -> float:
        """Return the value at `amount`; for 0 or less, the first breakpoint's."""
        points = self.points
        at = bisect_right(points, (amount, math.inf))
        if at == 0:
            return points[0][1]
        if at == len(points):
            return points[-1][1]
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return y0 + (y1 - y0) * (amount - x0) / (x1 - x0)

    def inverse(self, value: float) -> float:
        """Return the smallest amount with at least `value`; infinite if no amount has it."""
        points = self.points
        if value <= points[0][1]:
            return points[0][0]
        if value > points[-1][1]:
            return math.inf
        at = bisect_left(points, value, key=lambda point: point[1])
        (x0, y0), (x1, y1) = points[at - 1], points[at]
        return x0 + (x1 - x0) * (value - y0) / (y1 - y0)

    @property
    def most(self) -> float:
        """The largest value."""
        return self.points[-1][1]

    def times(self, factor: float) -> CapacityCurve:
        """Return the curve with `factor` times the values at the same amounts."""
        return CapacityCurve(tuple((x, y * factor) for x, y in self.points))


NOTHING_GAINED = CapacityCurve(((0.0, 0.0),))
"""CapacityCurve of a resource that is absent: disks of a class that was not measured."""


def curve_from_json(data: object, where: str) -> CapacityCurve:
    """Read a curve from a list of [amount, value]; raise UserError, with `where`, otherwise."""
    if not isinstance(data, Sequence) or isinstance(data, (str, bytes)) or not data:
        raise UserError(f"must be a list of [amount, requests a second], not {data!r}", where=where)
    points: list[Point] = []
    for item in data:
        pair = list(item) if isinstance(item, Sequence) and not isinstance(item, str) else []
        if len(pair) != 2 or not all(finite(value) and value >= 0 for value in pair):
            raise UserError(f"{item!r} is no breakpoint", where=where, allowed="two numbers from 0")
        points.append((float(pair[0]), float(pair[1])))
    if points[0][0] != 0:
        raise UserError(f"the first breakpoint is at {points[0][0]:g}", where=where, allowed="at 0")
    for (x0, y0), (x1, y1) in pairwise(points):
        if x1 <= x0:
            raise UserError(f"amounts must rise, but {x1:g} follows {x0:g}", where=where)
        if y1 < y0:
            raise UserError(
                f"{y1:g} requests a second at {x1:g} is less than {y0:g} at {x0:g}; more of a "
                "resource must never cost throughput, so smooth what was measured",
                where=where,
            )
    return CapacityCurve(tuple(points))


KIND = "piecewise-linear"
SMALL_BELOW = 1e6
"""Mean object size in bytes below which a workload counts as small objects: the paper's small
objects are of KB, its large ones of MB to GB (section 3)."""

CURVES = ("proxy_cores", "storage_cores", "network", "ssds", "hdds")
_BYTES = ("network", "ssds", "hdds")  # these resources count bytes


@dataclass(frozen=True)
class WorkloadClass:
    """A workload (Table 1): its name, the mean bytes of an object, and the share of its requests
    that write (deletes count).
    """

    name: str
    mean_bytes: float
    write_share: float = 0.1

    @property
    def small(self) -> bool:
        """True if its tenants want low latency, not bandwidth."""
        return self.mean_bytes < SMALL_BELOW


@dataclass(frozen=True)
class ClassTable:
    """Requests per second of one workload by the amount of each resource, all others plentiful.

    Cores count, network is bytes per second, disks of both classes together give the sum. `idle_s`
    are seconds of a request that never waits.
    """

    workload: WorkloadClass
    idle_s: float
    proxy_cores: CapacityCurve
    storage_cores: CapacityCurve
    network: CapacityCurve
    ssds: CapacityCurve = NOTHING_GAINED
    hdds: CapacityCurve = NOTHING_GAINED

    def parts(self, resources: Resources) -> dict[str, float]:
        """Return the requests per second that each resource alone would allow, by measure."""
        return {
            "proxy_cpu": self.proxy_cores.value(resources.proxy_cores),
            "storage_cpu": self.storage_cores.value(resources.storage_cores),
            "network": self.network.value(resources.network),
            "disk": self.ssds.value(resources.ssds) + self.hdds.value(resources.hdds),
        }

    def capacity(self, resources: Resources) -> float:
        """Return the requests per second of `resources`: the scarcest part's."""
        return min(self.parts(resources).values())

    def most(self) -> float:
        """Return the requests per second of unlimited resources."""
        disks = self.ssds.most + self.hdds.most
        return min(self.proxy_cores.most, self.storage_cores.most, self.network.most, disks)

    def resized(self, workload: WorkloadClass) -> ClassTable:
        """Return the table for objects of another size: resources counted in bytes are rescaled."""
        ratio = self.workload.mean_bytes / workload.mean_bytes
        if ratio == 1:
            return replace(self, workload=workload)
        curves = {name: getattr(self, name).times(ratio) for name in _BYTES}
        return replace(self, workload=workload, **curves)


@dataclass(frozen=True)
class PiecewiseLinear:
    """A table for each class of workloads. `source` is the tables' origin."""

    tables: Mapping[str, ClassTable]
    source: str = ""

    def table(self, workload: WorkloadClass) -> ClassTable:
        """Return the class's own table, resized; without one, the most similar class's."""
        own = self.tables.get(workload.name)
        if own is None:
            own = min(self.tables.values(), key=lambda table: _apart(table.workload, workload))
        return own.resized(workload)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data that `from_json` reads."""
        return {
            "kind": KIND,
            "source": self.source,
            "classes": {
                name: {
                    "mean_bytes": table.workload.mean_bytes,
                    "write_share": table.workload.write_share,
                    "idle_s": table.idle_s,
                    "curves": {
                        curve: [list(point) for point in getattr(table, curve).points]
                        for curve in CURVES
                    },
                }
                for name, table in self.tables.items()
            },
        }

    @classmethod
    def from_json(cls, data: object, where: str = "performance model") -> PiecewiseLinear:
        """Read the data of `to_json`; raise UserError, naming `where`, if malformed."""
        if not isinstance(data, Mapping):
            raise not_allowed(where, data, f"a mapping with kind {KIND!r} and classes")
        if data.get("kind") != KIND:
            raise not_allowed(f"{where}: kind", data.get("kind"), repr(KIND))
        classes = data.get("classes")
        if not isinstance(classes, Mapping) or not classes:
            raise not_allowed(f"{where}: classes", classes, "a mapping of workload classes")
        tables = {
            str(name): _table(str(name), item, f"{where}: class {name}")
            for name, item in classes.items()
        }
        return cls(tables, str(data.get("source", "")))


def _apart(one: WorkloadClass, other: WorkloadClass) -> tuple[float, str]:
    """Return the distance of two classes: doublings of size, and writes."""
    sizes = abs(math.log2(one.mean_bytes / other.mean_bytes))
    return sizes + 4 * abs(one.write_share - other.write_share), one.name


def _table(name: str, data: object, where: str) -> ClassTable:
    item = keys_of(data, where, ("mean_bytes", "write_share", "idle_s", "curves"))
    mean_bytes, idle_s = (
        number_of(item.get(key), f"{where}: {key}", 0.0, above=True)
        for key in ("mean_bytes", "idle_s")
    )
    share = number_of(item.get("write_share", 0.1), f"{where}: write_share", 0.0, 1.0)
    given = keys_of(item.get("curves"), f"{where}: curves", CURVES, CURVES[:3])
    if not {"ssds", "hdds"} & set(given):
        raise UserError("ssds or hdds is missing", where=f"{where}: curves")
    curves = {
        curve: curve_from_json(points, f"{where}: curve {curve}") for curve, points in given.items()
    }
    workload = WorkloadClass(name, mean_bytes, share)
    return ClassTable(workload, idle_s, **curves)
