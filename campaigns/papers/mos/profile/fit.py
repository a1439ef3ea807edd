"""The optimiser's cospurf from measured runs. Every workload and resource has a concave piecewise
linear curve of requests a second; a workload gets their minimum (rules R2 to R7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from campaigns.papers.mos.profile.points import PLENTY, MeasuredPoint
from controllers.microstores.performance import (
    NOTHING_GAINED,
    CapacityCurve,
    ClassTable,
    PiecewiseLinear,
    WorkloadClass,
)
from schemas.errors import UserError
from testbed.stores.microstores import Resources

Ints = npt.NDArray[np.int_]
PARTS = ("proxy_cores", "storage_cores", "network", "disks")
KNOTS = 3
"""Breakpoints between zero and the maximum, at quantiles of the measured amounts."""

ROUNDS = 30
NEARLY = 0.98
"""A knot that changes the slope by less is removed."""

NEAR_ENOUGH = 0.1
"""Mean error below which curves are not fitted again."""
CLEARLY = 0.8
"""Largest error of curves fitted together, relative to curves fitted one by one."""

AMPLE = 100.0
"""Factor over the highest measured rate, for a resource that limited no run."""


def fit(points: Sequence[MeasuredPoint], most: Resources, source: str) -> PiecewiseLinear:
    """Return curves of every workload with runs.

    Args:
        points: measured runs.
        most: end of the curves; they are straight beyond the measured amounts.
        source: for the record.

    Raises:
        UserError: there are no runs.
    """
    if not points:
        raise UserError("a profile needs measured runs, and there are none")
    usual = [point for point in points if point.object_bytes is None]
    # A table is for one size of objects: other sizes count only without runs of the usual size.
    letters: list[str] = sorted({point.workload for point in points})
    tables = {}
    for letter in letters:
        mine = [point for point in usual if point.workload == letter]
        tables[letter] = fit_class(mine or _one_size(points, letter), most)
    return PiecewiseLinear(tables, source)


def _one_size(points: Sequence[MeasuredPoint], letter: str) -> list[MeasuredPoint]:
    mine = [point for point in points if point.workload == letter]
    sizes = Counter(point.object_bytes for point in mine)
    (size, _), *_ = sizes.most_common(1)
    return [point for point in mine if point.object_bytes == size]


def fit_class(points: Sequence[MeasuredPoint], most: Resources) -> ClassTable:
    """Return curves of one workload.

    Each run is assigned to the part that predicts the least for it. A part's curve is the concave
    curve nearest to its runs. Both steps repeat until nothing changes. A part without runs gets a
    straight line that contradicts no run. If the result is poor, all curves are fitted together
    (`together`).
    """
    objects = points[0].objects
    workload = WorkloadClass(points[0].workload, objects.payload, 1 - objects.read)
    rates = np.array([point.rate for point in points])
    amounts = {name: _amounts(points, name) for name in PARTS}
    ends = {
        "proxy_cores": most.proxy_cores,
        "storage_cores": most.storage_cores,
        "network": most.network,
        "disks": float(max(1, most.ssds + most.hdds)),
    }
    idle_s = _idle_s(points, rates)
    asked = np.array([(point.workers or np.inf) / idle_s for point in points])
    lines = {name: _envelope(amounts[name], rates) for name in PARTS}
    curves = {name: _line(slope, ends[name], rates) for name, slope in lines.items()}
    owner = np.full(len(points), -1)
    for _ in range(ROUNDS):
        parts = np.array([_values(curves[name], amounts[name]) for name in PARTS] + [asked])
        now = parts.argmin(axis=0)
        if (now == owner).all():
            break
        owner = now
        for index, name in enumerate(PARTS):
            mine = (owner == index) & np.isfinite(amounts[name])
            if mine.any():
                curves[name] = concave(amounts[name][mine], rates[mine], ends[name])
            else:
                curves[name] = _line(lines[name], ends[name], rates)
    curves, owner = _better(
        curves, owner, amounts=amounts, ends=ends, lines=lines, rates=rates, asked=asked
    )
    return ClassTable(
        workload,
        idle_s,
        proxy_cores=curves["proxy_cores"],
        storage_cores=curves["storage_cores"],
        network=curves["network"],
        **_disks(points, curves["disks"], owner == PARTS.index("disks"), most),
    )


def concave(
    amounts: npt.NDArray[np.float64], rates: npt.NDArray[np.float64], most: float
) -> CapacityCurve:
    """Return the concave, rising curve from (0, 0) that is nearest to the points, relatively.

    The curve is a sum of min(x, knot) with non-negative weights; every such sum is concave and
    rises. The weights are a non-negative least squares solution.
    """
    from scipy.optimize import nnls

    knots = _knots(amounts, most)
    basis = np.minimum(amounts[:, None], knots[None, :]) / rates[:, None]
    weights, _ = nnls(basis / basis.max(axis=0), np.ones(len(rates)))
    weights = weights / basis.max(axis=0)
    at = np.array([0.0, *knots])
    values = np.minimum(at[:, None], knots[None, :]) @ weights
    return _simpler(at, values)


def _knots(amounts: Array, most: float) -> Array:
    """Return the breakpoints of a curve, and its end."""
    inner = np.unique(np.quantile(amounts, np.linspace(0, 1, KNOTS + 2)[1:-1]))
    top = max(most, float(amounts.max()))
    return np.append(inner[inner < top], top)


def _better(
    curves: dict[str, CapacityCurve],
    owner: Ints,
    *,
    amounts: Mapping[str, Array],
    ends: Mapping[str, float],
    lines: Mapping[str, float | None],
    rates: Array,
    asked: Array,
) -> tuple[dict[str, CapacityCurve], Ints]:
    """Return `curves`, or curves fitted for all parts together if they are clearly nearer to the
    runs; and the part that then limits each run."""

    def predicted(by: Mapping[str, CapacityCurve]) -> Array:
        return np.array([_values(by[name], amounts[name]) for name in PARTS] + [asked])

    limits = {name: slope for name, slope in lines.items() if slope}
    finite = {name: amounts[name][np.isfinite(amounts[name])] for name in limits}
    knots = {name: _knots(finite[name], ends[name]) for name in limits}
    before = error(predicted(curves).min(axis=0), rates)
    if not limits or before <= NEAR_ENOUGH:
        return curves, owner
    found = together(knots, amounts, limits, rates, asked)
    other = curves | {
        name: _simpler(np.append(0.0, knots[name]), np.append(0.0, values))
        for name, values in found.items()
    }
    parts = predicted(other)
    if error(parts.min(axis=0), rates) > CLEARLY * before:
        return curves, owner
    return other, parts.argmin(axis=0)


def _simpler(at: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> CapacityCurve:
    """Return the curve without knots that hardly bend it."""
    kept = [(0.0, 0.0)]
    for index in range(1, len(at) - 1):
        (x0, y0), x1, y1 = kept[-1], at[index], values[index]
        before = (y1 - y0) / (x1 - x0)
        after = (values[index + 1] - y1) / (at[index + 1] - x1)
        if after < NEARLY * before:
            kept.append((float(x1), float(y1)))
    return CapacityCurve((*kept, (float(at[-1]), float(max(values[-1], kept[-1][1])))))


def _amounts(points: Sequence[MeasuredPoint], name: str) -> npt.NDArray[np.float64]:
    """Return the amount of a resource by run; infinite where it was not a limit."""
    found = []
    for point in points:
        held = point.resources
        amount = float(held.ssds + held.hdds) if name == "disks" else getattr(held, name)
        plenty = float(PLENTY.ssds) if name == "disks" else getattr(PLENTY, name)
        found.append(np.inf if amount >= plenty else amount)
    return np.array(found)


def _values(curve: CapacityCurve, amounts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    xs, ys = (np.array(axis) for axis in zip(*curve.points, strict=True))
    inside = np.interp(amounts, xs, ys)
    return np.where(np.isfinite(amounts), inside, np.inf)


def _envelope(amounts: npt.NDArray[np.float64], rates: npt.NDArray[np.float64]) -> float | None:
    """Return the least possible requests a second per unit; None if it never was a limit."""
    limited = np.isfinite(amounts) & (amounts > 0)
    return float((rates[limited] / amounts[limited]).max()) if limited.any() else None


def _line(slope: float | None, most: float, rates: npt.NDArray[np.float64]) -> CapacityCurve:
    if slope is None:
        slope = AMPLE * float(rates.max())
    return CapacityCurve(((0.0, 0.0), (most, slope * most)))


def _idle_s(points: Sequence[MeasuredPoint], rates: npt.NDArray[np.float64]) -> float:
    """Return the least measured wait of a single worker, because several workers wait for each
    other. Without a run of one worker, return at most a core's seconds per request. This errs low,
    so that an SLA never counts as impossible to meet or as not requested."""
    alone = [seen for point in points if point.workers == 1 for seen in _waited(point)]
    if alone:
        return min(alone)
    slopes = [_envelope(_amounts(points, name), rates) for name in ("proxy_cores", "storage_cores")]
    cores = sum(1 / slope for slope in slopes if slope)
    return min([cores or 1e-3, *(seen for point in points for seen in _waited(point))])


def _waited(point: MeasuredPoint) -> list[float]:
    """Return the seconds of a request: measured, and from Little's law."""
    seen = [point.latency_s] if point.latency_s else []
    return seen + ([point.workers / point.rate] if point.workers else [])


def _disks(
    points: Sequence[MeasuredPoint],
    combined: CapacityCurve,
    limits: npt.NDArray[np.bool_],
    most: Resources,
) -> Mapping[str, CapacityCurve]:
    """Return curves of both disk classes. The speeds differ if disks limited runs of both mixes;
    otherwise all disks are equal."""
    from scipy.optimize import nnls

    slope = combined.value(combined.points[-1][0]) / combined.points[-1][0]
    speeds = np.array([slope, slope])
    mixes = np.array([[p.resources.ssds, p.resources.hdds] for p in points], dtype=float)[limits]
    if len(mixes) and np.linalg.matrix_rank(mixes) == 2:
        rates = np.array([point.rate for point in points])[limits]
        speeds, _ = nnls(mixes / rates[:, None], np.ones(len(rates)))
    ends = {"ssds": most.ssds, "hdds": most.hdds}
    return {
        name: CapacityCurve(((0.0, 0.0), (float(end), float(speed * end))))
        if end
        else NOTHING_GAINED
        for (name, end), speed in zip(ends.items(), speeds, strict=True)
    }


def cospurf_rate(model: PiecewiseLinear, point: MeasuredPoint) -> float:
    """Return a cospurf's requests a second for a run."""
    objects = point.objects
    workload = WorkloadClass(point.workload, objects.payload, 1 - objects.read)
    table = model.table(workload)
    parts = table.parts(point.resources)
    limited = {
        "proxy_cores": "proxy_cpu",
        "storage_cores": "storage_cpu",
        "network": "network",
        "disks": "disk",
    }
    counted = [parts[limited[name]] for name in point.limited_by]
    if point.workers is not None:
        counted.append(point.workers / table.idle_s)
    return max(min(counted, default=table.most()), 1e-9)


def most_of(points: Sequence[MeasuredPoint]) -> Resources:
    """Return the most of each resource in any run that limited the resource."""

    def most(name: str) -> float:
        return max((float(getattr(p, name)) for p in points if getattr(p, name)), default=1.0)

    return Resources(
        most("proxy_cores"),
        most("storage_cores"),
        most("network"),
        int(most("ssds")),
        int(most("hdds")),
    )


# ---- Joint fit of all curves, for runs that several parts limit together ----
#
# `fit_class` decides which part limits each run, and starts from the best measured rate of each
# part. The decision can be wrong and stay wrong if no run lacks a single resource and machines vary
# in speed from minute to minute. Real runs of proxies and storage servers with less than a core
# came out at a fifth of the measured rates. Here no part is chosen: a run gets a smooth minimum of
# its parts, and least squares finds the curves nearest to all runs.

Array = npt.NDArray[np.float64]

SHARP = 12.0
"""Exponent of the smooth minimum (sum of x^-SHARP)^(-1/SHARP): two equal parts give 0.94 of one."""
BELIEF = 0.01
"""Weight of a curve weight `e` times that of the start, relative to a rate `e` times the measured
one. A part that limits no run stays where it was."""
LITTLE = 1e-3
"""Initial weight of a knot that does not yet bend the line, relative to the start's slope."""
STARTS = (1.0, 2.0)


def together(
    knots: Mapping[str, Array],
    amounts: Mapping[str, Array],
    slopes: Mapping[str, float],
    rates: Array,
    asked: Array,
) -> dict[str, Array]:
    """Return the values of each part's curve at its knots.

    Args:
        knots: [k] of each part, rising; the last one is its end.
        amounts: [runs] of each part, infinite where it was not a limit.
        slopes: initial requests a second per unit, of each part.
        rates: [runs], measured requests a second.
        asked: [runs], requests a second that its workers could send.
    """
    from scipy.optimize import least_squares

    names = list(knots)
    bases = [np.minimum(amounts[name][:, None], knots[name][None, :]) for name in names]
    ends = np.cumsum([0, *(len(knots[name]) for name in names)])

    def parts(logs: Array) -> Array:
        found = []
        for index, (name, basis) in enumerate(zip(names, bases, strict=True)):
            value = basis @ np.exp(logs[ends[index] : ends[index + 1]])
            found.append(np.where(np.isfinite(amounts[name]), value, np.inf))
        return np.array([*found, asked])

    def residuals(logs: Array, start: Array) -> Array:
        smooth = np.power(parts(logs), -SHARP).sum(axis=0) ** (-1 / SHARP)
        return np.concatenate([np.log(smooth / rates), BELIEF * (logs - start)])

    tried = []
    for factor in STARTS:
        start = np.log(
            np.concatenate([_straight(len(knots[n]), factor * slopes[n]) for n in names])
        )
        tried.append(least_squares(residuals, start, args=(start,), loss="soft_l1", f_scale=0.2))
    best = min(tried, key=lambda found: float(found.cost)).x
    return {
        name: np.minimum(knots[name][:, None], knots[name][None, :])
        @ np.exp(best[ends[index] : ends[index + 1]])
        for index, name in enumerate(names)
    }


def error(predicted: Array, rates: Array) -> float:
    """Return the mean distance of predictions from rates, in logarithms."""
    return float(np.abs(np.log(predicted / rates)).mean())


def _straight(count: int, slope: float) -> Sequence[float]:
    return [LITTLE * slope] * (count - 1) + [slope]
