"""Claims about large stores. The paper has none of them: its store had eight OSDs. All claims were
declared before a run of `dlr-scale` was made, and paper_value is null."""

from __future__ import annotations

from functools import partial

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, declared
from analysis.core.stats import ratio
from analysis.papers.dlr.compare import metric_of, paired
from analysis.papers.dlr.scale import HOT, MOVE, OSDS, Axis, cells, curves

OP = "rand"
SHARE = 0.25
"""Share of hot nodes where it is not varied."""


def _gain(axis: Axis, x: float, controller: str, *, osds: float | None = None) -> Compute:
    """Compute the gain over default Ceph at a place of an axis, as its figure shows it."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = evidence.table
        rows = rows[rows["controller"].isin([controller, "default"])]
        for curve in curves(rows if osds is None else rows[rows["osds"] == osds], axis):
            if (curve.op, curve.controller, curve.osds) != (OP, controller, osds):
                continue
            for point in curve.points:
                if point.x == x and (axis is HOT or curve.hot_share == SHARE):
                    return Measured(point.gain, "sim", _scale(evidence))
        at = axis.write(x) if osds is None else f"{axis.write(x)} of {osds:g} OSDs"
        return NotRun(f"no block has {controller} and default Ceph at {at}")

    return compute


def _scale(evidence: Evidence) -> float:
    return float(evidence.table["time_scale"].iloc[0])


def _pairs(evidence: Evidence, controller: str, baseline: str, osds: int) -> pd.DataFrame:
    """Return both controllers' IOPS on `osds` OSDs, by block."""
    both = [
        cells(evidence.table, name, op=OP, osds=osds, hot_share=SHARE)
        for name in (controller, baseline)
    ]
    return paired(both[0], both[1], metric_of(OP, "throughput"))


def _against(controller: str, baseline: str, osds: int) -> Compute:
    """Compute throughput of one controller over another on `osds` OSDs with static hotspots."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        pairs = _pairs(evidence, controller, baseline, osds)
        if pairs.empty:
            return NotRun(f"no block has {controller} and {baseline} on {osds:,} OSDs")
        found = ratio(pairs["treated"].tolist(), pairs["baseline"].tolist())
        return Measured(found.map(lambda value: value - 1), "sim", _scale(evidence))

    return compute


def _holds(small: int, large: int) -> Compute:
    """Compute DLR's gain on the larger store over the smaller, block by block (same seed)."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        gains = []
        for osds in (small, large):
            pairs = _pairs(evidence, "dlr", "default", osds)
            gains.append(pairs["treated"] / pairs["baseline"])
        shared = gains[0].index.intersection(gains[1].index)
        if shared.empty:
            return NotRun(f"no block has DLR and default Ceph on {small:,} and {large:,} OSDs")
        found = ratio(gains[1][shared].tolist(), gains[0][shared].tolist())
        return Measured(found.map(lambda value: value - 1), "sim", _scale(evidence))

    return compute


_claim = partial(
    declared,
    prefix="scale",
    paper="dlr",
    unit="relative change",
    baseline="default",
    no_effect=0.0,
)


_NAMES = {"dlr": "DLR", "dlr-pg": "dlr-pg"}
_QUARTER = "a quarter of the nodes hot"

CLAIMS: tuple[Claim, ...] = (
    *(
        _claim(
            f"dlr-{osds}",
            "osds",
            f"DLR raises random read IOPS over default Ceph on {osds:,} OSDs, {_QUARTER}",
            _gain(OSDS, osds, "dlr"),
        )
        for osds in (100, 1000, 10000)
    ),
    *(
        _claim(
            f"dlr-gain-{large}",
            "osds",
            f"DLR's gain over default Ceph is larger on {large:,} OSDs than on {small:,}",
            _holds(small, large),
            baseline=f"gain on {small:,} OSDs",
        )
        for small, large in ((100, 1000), (1000, 10000))
    ),
    *(
        _claim(
            f"dlr-pg-beats-dlr-{osds}",
            "osds",
            f"dlr-pg raises random read IOPS over DLR on {osds:,} OSDs, {_QUARTER}",
            _against("dlr-pg", "dlr", osds),
            baseline="dlr",
        )
        for osds in (100, 1000, 10000)
    ),
    *(
        _claim(
            f"dlr-hot-{round(100 * share)}-of-{osds}",
            "hot",
            f"DLR raises random read IOPS with {share:.0%} of {osds:,} OSD nodes hot",
            _gain(HOT, share, "dlr", osds=osds),
        )
        for osds in (100, 1000)
        for share in (0.01, 0.5)
    ),
    *(
        _claim(
            f"{controller}-move-{every}",
            "move",
            f"{_NAMES[controller]} raises random read IOPS on 100 OSDs while hotspots move every "
            f"{every} s",
            _gain(MOVE, every, controller, osds=100),
        )
        for controller in ("dlr", "dlr-pg")
        for every in (60, 600)
    ),
    _claim(
        "dlr-move-5",
        "move",
        "DLR lowers random read IOPS on 100 OSDs while hotspots move every 5 s, four times in one "
        "control interval",
        _gain(MOVE, 5, "dlr", osds=100),
        larger=False,
    ),
)
