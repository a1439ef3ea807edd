"""Claims of the DLR paper, and claims beyond it: dlr-pg and dlr-auto against DLR.

The 14 numbers come from the abstract and sections III and V. "Up to" is the largest effect over the
three rados bench modes (two scenarios for the last two claims); its interval is widened by
Bonferroni for the choice.

Beyond the paper, each of eight settings has its own claim. The claim over all four settings of
reads decides if a controller beats DLR: of eight claims at 95 %, one holds by chance every third
time. A block's mean over settings also varies less than a single setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pandas as pd

from analysis.core.claims import RANK, Claim, Compute, Evidence, Measured, NotRun, declared
from analysis.core.evidence import Pair, Rows, average, extreme, result, values_of
from analysis.core.load import SIM
from analysis.core.stats import correlation, fraction
from analysis.papers.dlr.runs import BLOCKS, OPS, metric_of, select, sweep
from schemas.claim import SHARE

Cells = Mapping[str, object]
HETEROGENEITY: Cells = {"scenario": "heterogeneity"}
INTERFERENCE: Cells = {"scenario": "interference"}
CALM: Cells = {"scenario": "none", "controller": "default"}


def with_controller(scenario: Cells, controller: str) -> Cells:
    """Return the cells of `scenario` under a controller."""
    return {**scenario, "controller": controller}


def _ratio(
    op: str, what: str, treated: Cells, baseline: Cells, function: Callable[[float], float]
) -> Pair:
    """Compare `treated` with `baseline` cells of one operation. Inert runs support nothing: their
    values count as missing, and the note counts them."""

    def rows_of(wanted: Cells) -> Rows:
        def rows(table: pd.DataFrame) -> pd.DataFrame:
            found = select(table, op=op, **wanted)
            return found.assign(value=found[metric_of(op, what)].mask(found["inert"].astype(bool)))

        return rows

    def inert(top: pd.DataFrame, bottom: pd.DataFrame) -> int:
        return int(top["inert"].sum() + bottom["inert"].sum())

    def why(top: pd.DataFrame, bottom: pd.DataFrame) -> str:
        if count := inert(top, bottom):
            return f"all {count} cells of the baseline were inert: it changed nothing"
        return f"no block has both cells for {op}"

    def note(top: pd.DataFrame, bottom: pd.DataFrame) -> str | None:
        count = inert(top, bottom)
        return f"{count} inert cells left out" if count else None

    return Pair(
        rows_of(treated),
        rows_of(baseline),
        "value",
        why,
        keys=BLOCKS,
        function=function,
        note=note,
    )


def _gain(
    scenario: Cells, op: str, what: str, controller: str = "dlr", against: str = "default"
) -> Pair:
    """Compute throughput: T/T_baseline - 1, or latency: 1 - L/L_baseline."""
    function = (lambda r: r - 1) if what == "throughput" else (lambda r: 1 - r)
    treated, base = with_controller(scenario, controller), with_controller(scenario, against)
    return _ratio(op, what, treated, base, function)


def _degradation(scenario: Cells, what: str) -> Compute:
    """Compute the largest loss of throughput, or the largest ratio of latencies."""
    function = (lambda r: 1 - r) if what == "throughput" else (lambda r: r)
    hot = with_controller(scenario, "default")
    name = scenario["scenario"]
    options = [(f"{op}, {name}", _ratio(op, what, hot, CALM, function)) for op in OPS]
    return extreme(options, "largest")


def _against_reweight(what: str) -> Compute:
    """Compute T_dlr/T_reweight - 1, or L_reweight/L_dlr - 1. The paper's 96 % exceeds any possible
    1 - ratio of its 41 %, so the paper must mean this quotient."""
    function = (lambda r: r - 1) if what == "throughput" else (lambda r: 1 / r - 1)
    options = [
        (
            f"{op}, {scenario['scenario']}",
            _ratio(
                op,
                what,
                with_controller(scenario, "dlr"),
                with_controller(scenario, "reweight"),
                function,
            ),
        )
        for scenario in (HETEROGENEITY, INTERFERENCE)
        for op in OPS
    ]
    return extreme(options, "largest")


FAR_LESS = 0.1
"""Largest share of the control interval that is far less than it."""

_claim = partial(declared, paper="dlr", unit="relative change", baseline="default", no_effect=0.0)


def _degradation_claims(
    scenario: Cells, disturbed: str, panels: str, loss: float, factor: float
) -> Iterator[Claim]:
    """Yield figure 1's claims about a scenario: loss of throughput and ratio of latencies."""
    name = str(scenario["scenario"])
    stated = partial(_claim, baseline="no-disturbance", family=name)
    yield stated(
        f"{name}-throughput",
        f"1{panels[0]}",
        f"{disturbed} lower throughput by up to {100 * loss:.0f} %",
        _degradation(scenario, "throughput"),
        value=loss,
        unit="relative loss",
    )
    yield stated(
        f"{name}-latency",
        f"1{panels[1]}",
        f"{disturbed} raise latency up to {factor:g} times",
        _degradation(scenario, "latency"),
        value=factor,
        unit="ratio",
        no_effect=1.0,
        depends_on=(f"{name}-throughput",),
    )


def _gain_claims(scenario: Cells, figure: str, *numbers: tuple[str, str, float]) -> Iterator[Claim]:
    name = str(scenario["scenario"])
    for op, what, value in numbers:
        latency = what == "latency"
        reading = {"seq": "sequential", "rand": "random"}[op]
        noun = "IOPS" if op == "rand" and not latency else what
        yield _claim(
            f"dlr-{name}-{op}-{what}",
            f"{figure}{'b' if latency else 'a'}",
            f"DLR {'lowers' if latency else 'raises'} {reading} read {noun} under {name} against "
            "default Ceph",
            _gain(scenario, op, what),
            value=value,
            family=f"dlr-{name}",
            depends_on=(f"dlr-{name}-{op}-throughput",) if latency else (),
        )


def _load_hurts(scenario: str, column: str) -> Compute:
    """Compute the rank correlation of a run's pressure (mean or spread over nodes) with its
    throughput, relative to its block's mean: differences between blocks are not caused by load."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = evidence.table
        rows = rows[(rows["scenario"] == scenario) & (rows["controller"] == "default")]
        rows = rows[(rows["op"] == "seq")].dropna(subset=[column, "throughput_mb_s"])
        if len(rows) < 4:
            return NotRun(f"fewer than four runs of scenario {scenario}")
        blocks = rows.groupby("block")["throughput_mb_s"]
        speed = rows["throughput_mb_s"] / blocks.transform("mean")
        if len(rows) < blocks.ngroups + 3:
            return NotRun(f"too few runs of scenario {scenario} in a block")
        found = correlation(rows[column].tolist(), speed.tolist(), fitted=blocks.ngroups - 1)
        return result(found, rows, "")

    return compute


def _threshold(best: bool) -> Rows:
    """Select DLR's runs with theta_i = 0.2, or those with another value (figure 5)."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        varied = table["variant"].str.contains("theta_i", na=False)
        found = table[(table["controller"] == "dlr") & varied]
        chosen = found["variant"].str.contains(r'"theta_i": 0\.2\b', regex=True)
        return found[chosen if best else ~chosen]

    return rows


def _overhead(evidence: Evidence) -> Measured | NotRun:
    """Compute mean sense + decide + act time as a share of the control interval (figure 11). DLR
    does not wait for peering: its time is apart, in the note."""
    rows = evidence.table[evidence.table["controller"] == "dlr"]
    needed = ["controller_sense_s", "controller_decide_s", "controller_act_s"]
    absent = "no journal of a DLR run"
    if rows.empty or not set(needed) <= set(rows.columns):
        return NotRun(absent)
    if (rows["ground"] == SIM).any():
        return NotRun("on virtual time no time passes while a controller senses and decides")
    interval = 20.0 * float(rows["time_scale"].iloc[0])
    share = rows[needed].sum(axis=1).dropna() / interval
    note = "without the time in which PGs are peering, for which DLR does not wait"
    if "controller_stall_s" in rows.columns and rows["controller_stall_s"].notna().any():
        note += f": {rows['controller_stall_s'].mean():.2g} s a change"
    return result(average(share.to_frame("share"), "share", of=fraction), rows, absent, note)


def _every_size(evidence: Evidence) -> Measured | NotRun:
    """Compute DLR's smallest gain over default, in sequential reads by object size (figure 10)."""
    rows = evidence.table
    rows = sweep(rows[(rows["op"] == "seq") & (rows["scenario"] == "heterogeneity")], "object_size")
    sizes = values_of(rows, "object_size")
    if len(sizes) < 3:
        return NotRun("fewer than three object sizes")
    fixed = {**HETEROGENEITY, "duration_s": rows["duration_s"].iloc[0]}
    options = [
        (
            f"{int(size) // 1024} KiB objects",
            _gain({**fixed, "object_size": size}, "seq", "throughput"),
        )
        for size in sizes
    ]
    return extreme(options, "least")(evidence)


_READS = tuple(
    (scenario, op) for scenario in (HETEROGENEITY, INTERFERENCE) for op in ("seq", "rand")
)


def _over_reads(controller: str) -> Rows:
    """Select a controller's blocks with all four settings of reads: ``level`` is the geometric mean
    of their throughput."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = select(table, controller=controller)
        found = found.assign(
            value=found["iops"].where(found["op"] == "rand", found["throughput_mb_s"])
        )
        found = found[found["op"].isin(("seq", "rand")) & (found["value"] > 0)]
        found = found[found["scenario"].isin(("heterogeneity", "interference"))]
        cells = found.groupby([*BLOCKS, "scenario", "op"])["value"].mean()
        logs = cells.astype(float).map(math.log).groupby(list(BLOCKS)).agg(["mean", "size"])
        whole = logs[logs["size"] == len(_READS)]
        scale = found["time_scale"].iloc[0] if len(found) else 1.0
        level = whole["mean"].map(math.exp).rename("level")
        return level.reset_index().assign(time_scale=scale)

    return rows


STATED: tuple[Claim, ...] = (
    *_degradation_claims(HETEROGENEITY, "Four slow nodes of eight", "ab", 0.54, 2.2),
    *_degradation_claims(INTERFERENCE, "Moving hotspots on four random nodes", "cd", 0.55, 2.3),
    *_gain_claims(
        HETEROGENEITY,
        "6",
        ("seq", "throughput", 0.45),
        ("rand", "throughput", 0.65),
        ("seq", "latency", 0.30),
        ("rand", "latency", 0.41),
    ),
    *_gain_claims(
        INTERFERENCE,
        "8",
        ("seq", "throughput", 0.09),
        ("rand", "throughput", 0.19),
        ("seq", "latency", 0.08),
        ("rand", "latency", 0.16),
    ),
    _claim(
        "dlr-reweight-throughput",
        "6a, 8a",
        "DLR's throughput exceeds that of reweight-by-utilization by up to 98 %",
        _against_reweight("throughput"),
        value=0.98,
        family="dlr-reweight",
        baseline="reweight",
    ),
    _claim(
        "dlr-reweight-latency",
        "6b, 8b",
        "Latency of reweight-by-utilization exceeds DLR's by up to 96 %",
        _against_reweight("latency"),
        value=0.96,
        family="dlr-reweight",
        unit="L_reweight / L_dlr - 1",
        baseline="reweight",
        depends_on=("dlr-reweight-throughput",),
    ),
)
"""The paper's 14 numbers."""

SHAPES: tuple[Claim, ...] = (
    *(
        _claim(
            name,
            figure,
            f"Throughput falls as the {quantity} rises",
            _load_hurts(scenario, column),
            unit=RANK,
            baseline=None,
            larger=False,
        )
        for name, figure, quantity, scenario, column in (
            ("mean-pressure-hurts", "3", "OSD nodes' mean %iowait", "mix", "pressure_mean"),
            (
                "pressure-variance-hurts",
                "4",
                "variance of %iowait over nodes",
                "spread",
                "pressure_sd",
            ),
        )
    ),
    _claim(
        "threshold-0.2-best",
        "5",
        "theta_i = 0.2 gives better throughput than other settings",
        Pair(
            _threshold(best=True),
            _threshold(best=False),
            "throughput_mb_s",
            "no block has theta_i = 0.2 and another value",
            keys=BLOCKS,
            function=lambda r: r - 1,
        ),
        baseline="other-theta",
    ),
    _claim(
        "write-small-gain",
        "6a",
        "DLR improves write throughput slightly under heterogeneity",
        _gain(HETEROGENEITY, "write", "throughput"),
    ),
    _claim(
        "every-object-size",
        "10",
        "DLR beats default Ceph in sequential reads at every object size",
        _every_size,
    ),
    _claim(
        "overhead",
        "11",
        "DLR's monitor and controller take far less than the control interval (read as less than "
        f"{FAR_LESS:.0%} of it)",
        _overhead,
        unit=SHARE,
        baseline=None,
        no_effect=FAR_LESS,
        larger=False,
    ),
)
"""Statements of the paper without a number."""

_OVER_DLR = ("dlr-pg", "dlr-auto")
BEYOND: tuple[Claim, ...] = (
    *(
        _claim(
            f"{controller}-beats-dlr",
            "6a, 8a",
            f"{controller} raises read throughput over DLR, over both scenarios and reads",
            Pair(
                _over_reads(controller),
                _over_reads("dlr"),
                "level",
                "no block has both controllers in all four settings",
                keys=BLOCKS,
                function=lambda r: r - 1,
            ),
            baseline="dlr",
            stated=False,
        )
        for controller in _OVER_DLR
    ),
    *(
        _claim(
            f"{controller}-beats-dlr-{scenario['scenario']}-{op}",
            figure,
            f"{controller} raises {op} throughput over DLR under {scenario['scenario']}",
            _gain(scenario, op, "throughput", controller, "dlr"),
            baseline="dlr",
            stated=False,
        )
        for controller in _OVER_DLR
        for scenario, figure in ((HETEROGENEITY, "6a"), (INTERFERENCE, "8a"))
        for op in ("seq", "rand")
    ),
)
"""Claims beyond the paper."""

CLAIMS: tuple[Claim, ...] = STATED + SHAPES + BEYOND
