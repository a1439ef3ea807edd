"""What a workload would get of some resources: the paper's cospurf (section 6, equation 3).

Its shape is that of the rules R2 to R7: a workload runs as fast as the scarcest of its resources
lets it (`PiecewiseLinear`). Any other model serves as well where it predicts (`Performance`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from controllers.common.numbers import finite
from controllers.microstores.curve import NOTHING_GAINED, Curve, curve_from_json
from schemas.errors import UserError
from testbed.stores.microstores import Resources

KIND = "piecewise-linear"
SMALL_BELOW = 1e6
"""Bytes of a mean object below which a workload is one of small objects: the paper's are of KB,
its large ones of MB to GB (section 3)."""

CURVES = ("proxy_cores", "storage_cores", "network", "ssds", "hdds")
_BYTES = ("network", "ssds", "hdds")  # what these give, they give in bytes


@dataclass(frozen=True)
class WorkloadClass:
    """What a workload is like (Table 1).

    Attributes:
        name: A to D, or one's own.
        mean_bytes: of an object.
        write_share: of all requests, 0 to 1; deletes count as writes.
    """

    name: str
    mean_bytes: float
    write_share: float = 0.1

    @property
    def small(self) -> bool:
        """Whether latency is what its tenants want, and not bandwidth."""
        return self.mean_bytes < SMALL_BELOW


@dataclass(frozen=True)
class Predicted:
    """Rates a second, seconds, and how busy what is held would be.

    Attributes:
        requests_s, bytes_s: finished a second.
        mean_latency_s: infinite where nothing is served.
        utilization: fraction by measure (`testbed.stores.microstores.MEASURES`).
    """

    requests_s: float
    bytes_s: float
    mean_latency_s: float
    utilization: Mapping[str, float] = field(default_factory=dict)


class Performance(Protocol):
    """A model that predicts: more of a resource never makes anything slower."""

    def predict(self, workload: WorkloadClass, resources: Resources, offered: float) -> Predicted:
        """What `offered` requests at a time (COSBench's workers: the next begins when the last has
        ended) get of `resources`."""


@dataclass(frozen=True)
class ClassTable:
    """Requests a second of one workload by what it holds of each resource, all else plentiful.

    Attributes:
        workload: whose this is.
        idle_s: seconds of a request that waits for nobody.
        proxy_cores, storage_cores: by cores.
        network: by bytes a second.
        ssds, hdds: by disks; disks of both classes together give the sum.
    """

    workload: WorkloadClass
    idle_s: float
    proxy_cores: Curve
    storage_cores: Curve
    network: Curve
    ssds: Curve = NOTHING_GAINED
    hdds: Curve = NOTHING_GAINED

    def parts(self, resources: Resources) -> dict[str, float]:
        """Requests a second that each resource alone would allow, by measure."""
        return {
            "proxy_cpu": self.proxy_cores.value(resources.proxy_cores),
            "storage_cpu": self.storage_cores.value(resources.storage_cores),
            "network": self.network.value(resources.network),
            "disk": self.ssds.value(resources.ssds) + self.hdds.value(resources.hdds),
        }

    def capacity(self, resources: Resources) -> float:
        """Requests a second of `resources`: the scarcest part's."""
        return min(self.parts(resources).values())

    def most(self) -> float:
        """Requests a second of unlimited resources."""
        return min(
            self.proxy_cores.most,
            self.storage_cores.most,
            self.network.most,
            self.ssds.most + self.hdds.most,
        )

    def predict(self, resources: Resources, offered: float) -> Predicted:
        """See `Performance`: the asymptotic bounds of a closed network, the less of what the
        workers can ask for and of what the scarcest part can do."""
        if offered <= 0:
            return Predicted(0.0, 0.0, self.idle_s, dict.fromkeys(self.parts(resources), 0.0))
        rate = min(offered / self.idle_s, self.capacity(resources))
        latency = offered / rate if rate > 0 else math.inf
        return Predicted(
            rate, rate * self.workload.mean_bytes, latency, self._busy(resources, rate)
        )

    def _busy(self, resources: Resources, rate: float) -> dict[str, float]:
        disks = self.ssds.value(resources.ssds) + self.hdds.value(resources.hdds)
        return {
            "proxy_cpu": _fraction(self.proxy_cores.inverse(rate), resources.proxy_cores),
            "storage_cpu": _fraction(self.storage_cores.inverse(rate), resources.storage_cores),
            "network": _fraction(self.network.inverse(rate), resources.network),
            "disk": _fraction(rate, disks),
        }

    def resized(self, workload: WorkloadClass) -> ClassTable:
        """The table for objects of another size: what is counted in bytes serves more or fewer."""
        ratio = self.workload.mean_bytes / workload.mean_bytes
        if ratio == 1:
            return replace(self, workload=workload)
        curves = {name: getattr(self, name).times(ratio) for name in _BYTES}
        return replace(self, workload=workload, **curves)


def _fraction(used: float, held: float) -> float:
    if held <= 0:
        return 1.0
    return min(1.0, used / held)


@dataclass(frozen=True)
class PiecewiseLinear:
    """A table for each class of workloads. `source` says what they were made of."""

    tables: Mapping[str, ClassTable]
    source: str = ""

    def predict(self, workload: WorkloadClass, resources: Resources, offered: float) -> Predicted:
        """See `Performance`."""
        return self.table(workload).predict(resources, offered)

    def table(self, workload: WorkloadClass) -> ClassTable:
        """The class's own table, resized; of the class most like it where it has none."""
        own = self.tables.get(workload.name)
        if own is None:
            own = min(self.tables.values(), key=lambda table: _apart(table.workload, workload))
        return own.resized(workload)

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data that `from_json` reads."""
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
        """The inverse of `to_json`.

        Raises:
            UserError: malformed, in one sentence that begins with `where`.
        """
        checked = _mapping(data, where)
        if checked.get("kind") != KIND:
            raise UserError(f"{where}: kind is {checked.get('kind')!r}; it must be {KIND!r}")
        classes = _mapping(checked.get("classes"), f"{where}: classes")
        if not classes:
            raise UserError(f"{where}: classes is empty; at least one workload class is needed")
        tables = {
            str(name): _table(str(name), item, f"{where}: class {name}")
            for name, item in classes.items()
        }
        return cls(tables, str(checked.get("source", "")))


def _apart(one: WorkloadClass, other: WorkloadClass) -> tuple[float, str]:
    """How unlike two classes are: doublings of size, and writes."""
    sizes = abs(math.log2(one.mean_bytes / other.mean_bytes))
    return sizes + 4 * abs(one.write_share - other.write_share), one.name


def _table(name: str, data: object, where: str) -> ClassTable:
    item = _mapping(data, where)
    unknown = sorted(set(item) - {"mean_bytes", "write_share", "idle_s", "curves"})
    if unknown:
        allowed = "mean_bytes, write_share, idle_s, curves"
        raise UserError(f"{where}: unknown key {unknown[0]!r} (allowed: {allowed})")
    numbers = {
        "mean_bytes": _positive(item.get("mean_bytes"), f"{where}: mean_bytes"),
        "idle_s": _positive(item.get("idle_s"), f"{where}: idle_s"),
    }
    share = item.get("write_share", 0.1)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise UserError(f"{where}: write_share is {share!r}; it must be a number from 0 to 1")
    given = _mapping(item.get("curves"), f"{where}: curves")
    strange = sorted(set(given) - set(CURVES))
    if strange:
        raise UserError(f"{where}: unknown curve {strange[0]!r} (allowed: {', '.join(CURVES)})")
    missing = [curve for curve in CURVES[:3] if curve not in given]
    if missing or not {"ssds", "hdds"} & set(given):
        lacking = missing[0] if missing else "ssds or hdds"
        raise UserError(f"{where}: curves lacks {lacking}")
    curves = {
        curve: curve_from_json(points, f"{where}: curve {curve}") for curve, points in given.items()
    }
    workload = WorkloadClass(name, numbers["mean_bytes"], float(share))
    return ClassTable(workload, numbers["idle_s"], **curves)


def _mapping(data: object, where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: must be a mapping, not {type(data).__name__}")
    return data


def _positive(value: object, where: str) -> float:
    if not finite(value) or value <= 0:
        raise UserError(f"{where} is {value!r}; it must be a number above 0")
    return float(value)


def linear(
    workload: WorkloadClass,
    per_unit: Mapping[str, float],
    most: Mapping[str, float],
    idle_s: float,
) -> ClassTable:
    """A table of straight lines: `per_unit` requests a second of a unit of each of `CURVES`, up to
    `most` units."""
    curves = {
        name: Curve(((0.0, 0.0), (float(most[name]), float(most[name]) * gain)))
        for name, gain in per_unit.items()
    }
    return ClassTable(workload, idle_s, **curves)


def fitted(
    workload: WorkloadClass, idle_s: float, curves: Mapping[str, Sequence[tuple[float, float]]]
) -> ClassTable:
    """A table from measured (amount, requests a second) of each resource: what falls is pooled
    with what is before it until nothing does (isotonic regression), and 0 gives 0."""
    return ClassTable(workload, idle_s, **{n: Curve(_monotone(c)) for n, c in curves.items()})


def _monotone(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    by_amount: dict[float, list[float]] = {}
    for amount, value in sorted(points):
        if amount > 0:
            by_amount.setdefault(amount, []).append(value)
    blocks: list[tuple[float, list[float]]] = []  # mean value, amounts
    for amount, values in by_amount.items():
        blocks.append((sum(values) / len(values), [amount]))
        while len(blocks) > 1 and blocks[-1][0] < blocks[-2][0]:
            (late, after), (early, before) = blocks.pop(), blocks.pop()
            weight = len(after) + len(before)
            mean = (late * len(after) + early * len(before)) / weight
            blocks.append((mean, before + after))
    made = [(amount, value) for value, amounts in blocks for amount in amounts]
    return ((0.0, 0.0), *made)
