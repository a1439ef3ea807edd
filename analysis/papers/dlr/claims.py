"""Claims of the DLR paper, and claims beyond it: dlr-pg and dlr-auto against DLR.

The 14 numbers come from the abstract and sections III and V. "Up to" is the largest effect over the
three rados bench modes (two scenarios for the last two claims); its interval is widened by
Bonferroni for the choice.

Beyond the paper, each of eight settings has its own claim. The claim over all four settings of
reads decides if a controller beats DLR: of eight claims at 95 %, one holds by chance every third
time. A block's mean over settings also varies less than a single setting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean

import pandas as pd

from analysis.core.claims import (
    NOTE_SEPARATOR,
    RANK,
    Claim,
    Compute,
    Evidence,
    Measured,
    NotRun,
    declared,
    unreachable,
)
from analysis.core.evidence import (
    Pair,
    Rows,
    average,
    compared,
    extreme,
    pairs,
    result,
    values_of,
    where,
)
from analysis.core.load import SIM
from analysis.core.pooling import random_effects
from analysis.core.stats import Estimate, correlation, fraction
from analysis.papers.dlr.runs import (
    BLOCKS,
    BOUNDARY,
    OPS,
    active,
    at_work,
    metric_of,
    select,
    sweep,
)
from schemas.claim import SHARE

Cells = Mapping[str, object]
READING = {"seq": "sequential read", "rand": "random read", "write": "write"}
HETEROGENEITY: Cells = {"scenario": "heterogeneity"}
INTERFERENCE: Cells = {"scenario": "interference"}
CALM: Cells = {"scenario": "none", "controller": "default"}


def with_controller(scenario: Cells, controller: str) -> Cells:
    """Return the cells of `scenario` under a controller."""
    return {**scenario, "controller": controller}


def _ratio(
    op: str,
    what: str,
    treated: Cells,
    baseline: Cells,
    function: Callable[[float], float] | None = None,
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
        rows_of(treated), rows_of(baseline), "value", why, keys=BLOCKS, function=function, note=note
    )


def gain(
    scenario: Cells, op: str, what: str, controller: str = "dlr", against: str = "default"
) -> Pair:
    """Compute throughput: T/T_baseline - 1, or latency: 1 - L/L_baseline."""
    function = (lambda r: r - 1) if what == "throughput" else (lambda r: 1 - r)
    treated, base = with_controller(scenario, controller), with_controller(scenario, against)
    return _ratio(op, what, treated, base, function)


def _degradation(scenario: Cells, what: str) -> Compute:
    """Compute the largest loss of throughput, or the largest ratio of latencies."""
    function = (lambda r: 1 - r) if what == "throughput" else None
    hot = with_controller(scenario, "default")
    name = scenario["scenario"]
    options = [(f"{op}, {name}", _ratio(op, what, hot, CALM, function)) for op in OPS]
    return extreme(options, "largest")


def on_papers_store(compute: Callable[[Cells], Compute]) -> Compute:
    """Compute on FileStore, the paper's store, where reweight-by-utilization sees fio's files; on
    BlueStore if none ran there. The note names the store."""

    def first(evidence: Evidence) -> Measured | NotRun:
        found: Measured | NotRun = NotRun("")
        for store, name in (("filestore", "FileStore"), ("bluestore", "BlueStore")):
            found = compute({"objectstore": store})(evidence)
            if isinstance(found, Measured):
                note = NOTE_SEPARATOR.join(filter(None, (found.note, f"on {name}")))
                return replace(found, note=note)
        return found

    return first


def _against_reweight(what: str) -> Compute:
    """Compute T_dlr/T_reweight - 1, or L_reweight/L_dlr - 1. The paper's 96 % exceeds any possible
    1 - ratio of its 41 %, so the paper must mean this quotient."""
    function = (lambda r: r - 1) if what == "throughput" else (lambda r: 1 / r - 1)

    def on(store: Cells) -> Compute:
        options = [
            (
                f"{op}, {scenario['scenario']}",
                _ratio(
                    op,
                    what,
                    with_controller({**scenario, **store}, "dlr"),
                    with_controller({**scenario, **store}, "reweight"),
                    function,
                ),
            )
            for scenario in (HETEROGENEITY, INTERFERENCE)
            for op in OPS
        ]
        return extreme(options, "largest")

    return on_papers_store(on)


def _gain_on_papers_store(
    scenario: Cells, op: str, what: str, controller: str, against: str
) -> Compute:
    """Compute a gain (see `gain`) on the paper's store, see `on_papers_store`."""
    return on_papers_store(lambda store: gain({**scenario, **store}, op, what, controller, against))


SHAPES_NEEDED, COUNTS_NEEDED = 3, 2
"""Disk shapes and numbers of OSDs on which a size must hold to count on the local site."""


def _over_shapes(op: str, what: str) -> Compute:
    """Compute DLR's gain under heterogeneity, pooled by random effects over the shapes of
    `dlr-shapes`, if there are enough of them; else on the calibrated disk. The pooled size counts
    if the gain is positive on every shape."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        calibrated = gain(HETEROGENEITY, op, what)
        found = calibrated(evidence)
        logs = shape_logs(evidence.table, op, what)
        disks, counts = ({shape[place] for shape in logs} for place in (0, 1))
        if len(disks) < SHAPES_NEEDED or len(counts) < COUNTS_NEEDED:
            return found
        pooled = random_effects(list(logs.values()))
        means = [fmean(values) for values in logs.values()]

        def limits(confidence: float) -> tuple[float, float]:
            low, high = pooled.interval(confidence)
            return math.exp(low), math.exp(high)

        n = sum(len(values) for values in logs.values())
        ratios = tuple(math.exp(mean) for mean in means)
        gains = Estimate(math.exp(pooled.mean), *limits(0.95), n=n, runs=ratios, limits=limits)
        assert calibrated.function is not None
        one = gains.map(calibrated.function)
        rows = evidence.table[evidence.table["disk"] != ""]
        least, most = min(one.runs), max(one.runs)
        note = f"pooled over {len(logs)} shapes, with means of {least:+.0%} to {most:+.0%}"
        if isinstance(found, Measured):
            note += f"; on the calibrated disk {found.estimate.value:+.0%}"
        measured = result(one, rows, "", note)
        assert isinstance(measured, Measured)
        return replace(measured, portable=least > 0)

    return compute


def shape_logs(table: pd.DataFrame, op: str, what: str) -> dict[tuple[str, int], list[float]]:
    """Return the logarithms of T_dlr/T_default, or of L_dlr/L_default, of each block under
    heterogeneity, by disk and number of OSDs, without boundaries."""
    if "disk" not in table.columns:
        return {}
    rows = table[(table["disk"] != "") & ~table["disk"].str.startswith(BOUNDARY)]
    logs = {}
    for disk, osds in sorted(set(zip(rows["disk"], rows["osds"], strict=True))):
        both = block_ratios(table, op, what, {"disk": disk, "osds": osds})
        if both:
            logs[str(disk), int(osds)] = [math.log(ratio) for ratio in both]
    return logs


def block_ratios(table: pd.DataFrame, op: str, what: str, cells: Cells) -> list[float]:
    """Return DLR over default Ceph under heterogeneity, block by block."""
    dlr, default = (
        select(table, op=op, **with_controller({**HETEROGENEITY, **cells}, controller))
        for controller in ("dlr", "default")
    )
    both = pairs(dlr, default, metric_of(op, what), BLOCKS)
    return [float(gain) for gain in both["treated"] / both["baseline"] if gain > 0]


FAR_LESS = 0.1
"""Largest share of the control interval that is far less than it."""

claim = partial(declared, paper="dlr", unit="relative change", baseline="default")
ratio_claim = partial(claim, unit="ratio")
"""A claim about a quotient of two numbers."""
rank_claim = partial(claim, unit=RANK, baseline=None, larger=False)
"""A claim that one number falls as another rises."""
never = partial(unreachable, paper="dlr")


def _degradation_claims(
    scenario: Cells, disturbed: str, panels: str, loss: float, factor: float
) -> Iterator[Claim]:
    """Yield figure 1's claims about a scenario: loss of throughput and ratio of latencies."""
    name = str(scenario["scenario"])
    stated = partial(claim, baseline="no-disturbance", family=name)
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
        depends_on=(f"{name}-throughput",),
    )


def _gain_claims(scenario: Cells, figure: str, *numbers: tuple[str, str, float]) -> Iterator[Claim]:
    name = str(scenario["scenario"])
    for op, what, value in numbers:
        latency = what == "latency"
        reading = {"seq": "sequential", "rand": "random"}[op]
        noun = "IOPS" if op == "rand" and not latency else what
        yield claim(
            f"dlr-{name}-{op}-{what}",
            f"{figure}{'b' if latency else 'a'}",
            f"DLR {'lowers' if latency else 'raises'} {reading} read {noun} under {name} against "
            "default Ceph",
            _over_shapes(op, what) if scenario is HETEROGENEITY else gain(scenario, op, what),
            value=value,
            family=f"dlr-{name}",
            depends_on=(f"dlr-{name}-{op}-throughput",) if latency else (),
        )


def load_hurts(scenario: str, column: str, op: str = "seq") -> Compute:
    """Compute the rank correlation of a run's pressure (mean or spread over nodes) with its
    throughput, relative to its block's mean: differences between blocks are not caused by load."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = where(evidence.table, scenario=scenario, controller="default", op=op)
        rows = rows.dropna(subset=[column, "throughput_mb_s"])
        if len(rows) < 4:
            return NotRun(f"fewer than four runs of scenario {scenario}")
        blocks = rows.groupby("block")["throughput_mb_s"]
        speed = rows["throughput_mb_s"] / blocks.transform("mean")
        if len(rows) < blocks.ngroups + 3:
            return NotRun(f"too few runs of scenario {scenario} in a block")
        found = correlation(rows[column].tolist(), speed.tolist(), fitted=blocks.ngroups - 1)
        return result(found, rows, "")

    return compute


def _threshold(theta: str, op: str, *, chosen: bool) -> Rows:
    """Select DLR's runs of figure 5 with the paper's thresholds, or those with another `theta`. The
    runs with theta_i = 0.2 have the paper's value of all three."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = table[(table["controller"] == "dlr") & table["variant"].notna()]
        found = found[found["op"] == op]
        given = found["variant"].map(json.loads)
        papers = given.map(lambda one: one == {"theta_i": 0.2}).astype(bool)  # no rows: no dtype
        others = given.map(lambda one: list(one) == [theta]).astype(bool) & ~papers
        return found[papers if chosen else others]

    return rows


def best(theta: str, op: str = "seq") -> Pair:
    """Compare DLR with the paper's thresholds with the mean of other values of `theta`."""
    return Pair(
        _threshold(theta, op, chosen=True),
        _threshold(theta, op, chosen=False),
        metric_of(op, "throughput"),
        f"no block has the paper's thresholds and another {theta} in {READING[op]}s",
        keys=BLOCKS,
        function=lambda r: r - 1,
    )


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
    share = (rows[needed].sum(axis=1, min_count=3) / interval).clip(upper=1.0).dropna()
    note = "without the time in which PGs are peering, for which DLR does not wait"
    if "controller_stall_s" in rows.columns and rows["controller_stall_s"].notna().any():
        note += f": {rows['controller_stall_s'].mean():.2g} s a change"
    return result(average(share.to_frame("share"), "share", of=fraction), rows, absent, note)


def _every(
    column: str,
    name: Callable[[int], str],
    op: str = "seq",
    scenario: Cells = HETEROGENEITY,
    against: str = "default",
) -> Compute:
    """Compute DLR's smallest gain in throughput over the values of `column`, such as figure 10's
    object sizes."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = sweep(evidence.table, column, op, scenario["scenario"])
        values = values_of(rows, column)
        if len(values) < 3:
            return NotRun(f"fewer than three values of {column}")
        fixed = {**scenario, "duration_s": rows["duration_s"].iloc[0]}
        options = [
            (name(int(one)), gain({**fixed, column: one}, op, "throughput", "dlr", against))
            for one in values
        ]
        return extreme(options, "least")(evidence)

    return compute


def _size_text(size: int) -> str:
    return f"{size // 1024} KiB objects"


def _against_4mib(size: int, what: str) -> Pair:
    """Compare default Ceph's sequential reads of objects of a size with those of 4 MiB under
    heterogeneity (figure 10)."""

    def rows_of(size: int) -> Rows:
        def rows(table: pd.DataFrame) -> pd.DataFrame:
            swept = sweep(table, "object_size", "seq", "heterogeneity")
            if swept.empty:
                return swept
            fixed = {"duration_s": swept["duration_s"].iloc[0], "object_size": size}
            return select(swept, controller="default", **fixed)

        return rows

    why = f"no block reads objects of {size // 1024} and 4096 KiB"
    return Pair(rows_of(size), rows_of(2**22), metric_of("seq", what), why, keys=BLOCKS)


def _gains(scenario: Cells, op: str) -> Rows:
    """Select the blocks of a scenario, with DLR's throughput over default Ceph's as ``ratio``."""
    dlr, default = (
        at_work(op=op, **with_controller(scenario, controller)) for controller in ("dlr", "default")
    )
    return compared(dlr, default, metric_of(op, "throughput"), BLOCKS)


def _at_every(
    name: str, statement: str, compute: Compute, *, figure: str = "10", baseline: str = "default"
) -> Claim:
    """Return a claim that DLR beats the baseline at every value of a parameter (section V-E)."""
    return claim(name, figure, statement, compute, baseline=baseline, family="figure-10")


_READS = tuple(
    (scenario, op) for scenario in (HETEROGENEITY, INTERFERENCE) for op in ("seq", "rand")
)


def _over_reads(controller: str) -> Rows:
    """Select a controller's blocks with all four settings of reads: ``level`` is the geometric mean
    of their throughput."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = active(select(table, controller=controller))
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
    claim(
        "dlr-reweight-throughput",
        "6a, 8a",
        "DLR's throughput exceeds that of reweight-by-utilization by up to 98 %",
        _against_reweight("throughput"),
        value=0.98,
        family="dlr-reweight",
        baseline="reweight",
    ),
    claim(
        "dlr-reweight-latency",
        "6b, 8b",
        "Latency of reweight-by-utilization exceeds DLR's by up to 96 %",
        _against_reweight("latency"),
        value=0.96,
        family="dlr-reweight",
        unit="L_reweight / L_dlr - 1",
        no_effect=0.0,
        baseline="reweight",
        depends_on=("dlr-reweight-throughput",),
    ),
)
"""The paper's 14 numbers."""

SHAPES: tuple[Claim, ...] = (
    *(
        rank_claim(
            name, figure, f"Throughput falls as the {quantity} rises", load_hurts(scenario, column)
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
    claim(
        "threshold-0.2-best",
        "5",
        "theta_i = 0.2 gives better throughput than other settings (their mean)",
        best("theta_i"),
        baseline="other-theta",
    ),
    *(
        claim(
            f"{name}-best",
            "5",
            f"{theta} = {value} gives better throughput than other settings (their mean; the paper "
            "chooses it by figure 3, and states no comparison)",
            best(theta),
            baseline="other-theta",
            stated=False,
        )
        for name, theta, value in (("theta-h-50", "theta_h", 50), ("theta-l-20", "theta_l", 20))
    ),
    claim(
        "write-small-gain",
        "6a",
        "DLR improves write throughput slightly under heterogeneity",
        gain(HETEROGENEITY, "write", "throughput"),
    ),
    claim(
        "every-object-size",
        "10",
        "DLR beats default Ceph in sequential reads at every object size",
        _every("object_size", _size_text),
    ),
    claim(
        "overhead",
        "11",
        "DLR's monitor and controller take far less than the control interval (read as less than "
        f"{100 * FAR_LESS:.0f} % of it)",
        _overhead,
        unit=SHARE,
        baseline=None,
        no_effect=FAR_LESS,
        larger=False,
    ),
)
"""Statements of the paper without a number."""

MUCH = 0.1
"""Gain from which an improvement is much (section V-C: reweight does not show much), and loss from
which performance is much worse (section V-D)."""

SENTENCES: tuple[Claim, ...] = (
    # Sections III-A and III-B, figure 1: every mode of the benchmark suffers.
    *(
        claim(
            f"loss-{scenario['scenario']}-{op}",
            panel,
            f"{str(scenario['scenario']).capitalize()} lowers {READING[op]} throughput",
            _ratio(op, "throughput", with_controller(scenario, "default"), CALM, lambda r: 1 - r),
            unit="relative loss",
            baseline="no-disturbance",
            family=f"{scenario['scenario']}-modes",
        )
        for scenario, panel in ((HETEROGENEITY, "1a"), (INTERFERENCE, "1c"))
        for op in OPS
    ),
    # Section IV-B: "similar results for other Rados benchmarks".
    *(
        rank_claim(
            f"mean-pressure-hurts-{op}",
            f"3-{op}",
            f"{READING[op].capitalize()} throughput falls as the OSD nodes' mean %iowait rises",
            load_hurts("mix", "pressure_mean", op),
            family="mean-pressure-others",
        )
        for op in ("rand", "write")
    ),
    # Section V-C.
    *(
        claim(
            f"dlr-beats-reweight-{scenario['scenario']}-{op}",
            panel,
            f"DLR outperforms reweight-by-utilization in {READING[op]}s under "
            f"{scenario['scenario']}",
            _gain_on_papers_store(scenario, op, "throughput", "dlr", "reweight"),
            baseline="reweight",
            family=f"dlr-beats-reweight-{scenario['scenario']}",
        )
        for scenario, panel, ops in (
            (HETEROGENEITY, "6a", OPS),
            (INTERFERENCE, "8a", ("seq", "rand")),
        )
        for op in ops
    ),
    *(
        claim(
            f"reweight-not-much-{op}",
            "6a",
            f"reweight-by-utilization does not improve {READING[op]}s much under heterogeneity "
            f"(read as less than {100 * MUCH:.0f} %)",
            _gain_on_papers_store(HETEROGENEITY, op, "throughput", "reweight", "default"),
            no_effect=MUCH,
            larger=False,
            family="reweight-not-much",
        )
        for op in ("seq", "rand")
    ),
    ratio_claim(
        "write-little-affected",
        "6a",
        "Primary affinity does not have much impact on writes (read as less than 10 %)",
        _ratio(
            "write",
            "throughput",
            with_controller(HETEROGENEITY, "dlr"),
            with_controller(HETEROGENEITY, "default"),
        ),
        value=1.0,
        rule="within",
        tolerance=0.1,
    ),
    # Section V-D.
    *(
        ratio_claim(
            f"interference-hurts-less-{op}",
            "1c",
            f"Interference degrades {READING[op]}s less than heterogeneity does",
            _ratio(
                op,
                "throughput",
                with_controller(INTERFERENCE, "default"),
                with_controller(HETEROGENEITY, "default"),
            ),
            baseline="heterogeneity",
            family="interference-hurts-less",
        )
        for op in ("seq", "rand")
    ),
    *(
        ratio_claim(
            f"dlr-gains-less-interference-{op}",
            "8a",
            f"DLR's gain over default Ceph in {READING[op]}s is smaller under interference than "
            "under heterogeneity",
            Pair(
                _gains(INTERFERENCE, op),
                _gains(HETEROGENEITY, op),
                "ratio",
                "no block has DLR and default Ceph in both scenarios",
                keys=BLOCKS,
            ),
            baseline="heterogeneity",
            larger=False,
            family="dlr-gains-less-interference",
        )
        for op in ("seq", "rand")
    ),
    *(
        claim(
            f"reweight-worse-{op}-{what}",
            f"8{'b' if what == 'latency' else 'a'}",
            "reweight-by-utilization is much worse than default Ceph under interference (read as "
            f"by more than {100 * MUCH:.0f} %): {READING[op]} {what}",
            _gain_on_papers_store(INTERFERENCE, op, what, "reweight", "default"),
            no_effect=-MUCH,
            larger=False,
            family="reweight-worse",
        )
        for op in ("seq", "rand")
        for what in ("throughput", "latency")
    ),
    # Section V-E, figure 10.
    _at_every(
        "every-object-size-interference",
        "DLR beats default Ceph in sequential reads at every object size under interference",
        _every("object_size", _size_text, scenario=INTERFERENCE),
    ),
    *(
        _at_every(
            f"every-object-size-reweight-{scenario['scenario']}",
            "DLR beats reweight-by-utilization in sequential reads at every object size under "
            f"{scenario['scenario']}",
            _every("object_size", _size_text, scenario=scenario, against="reweight"),
            baseline="reweight",
        )
        for scenario in (HETEROGENEITY, INTERFERENCE)
    ),
    *(
        _at_every(
            f"every-object-size-{op}",
            f"DLR beats default Ceph in {READING[op]}s at every object size",
            _every("object_size", _size_text, op),
            figure=f"10-{op}",
        )
        for op in ("rand", "write")
    ),
    _at_every(
        "every-thread-count",
        "DLR beats default Ceph in sequential reads with every number of operations in flight",
        _every("concurrency", lambda depth: f"{depth} in flight"),
        figure="10-threads",
    ),
    ratio_claim(
        "small-objects-slow",
        "10",
        "Throughput is low for small objects (256 KiB against 4 MiB)",
        _against_4mib(2**18, "throughput"),
        baseline="4MiB",
        larger=False,
    ),
    ratio_claim(
        "large-objects-drop",
        "10",
        "Throughput drops for large objects (16 MiB against 4 MiB)",
        _against_4mib(2**24, "throughput"),
        baseline="4MiB",
        larger=False,
    ),
    ratio_claim(
        "large-objects-latency",
        "10",
        "Latency increases drastically for large objects (16 MiB against 4 MiB; more than in "
        "proportion to their size)",
        _against_4mib(2**24, "latency"),
        baseline="4MiB",
        no_effect=4.0,
    ),
    never(
        "medium-objects-network-limit",
        "10",
        "Bandwidth reaches the network limit for medium-sized objects",
        "disks bound reads on the local site; it takes the paper's virtual machines, whose host "
        "serves their disks from memory",
    ),
    never(
        "overhead-large-clusters",
        "11",
        "The overhead of performance monitoring is negligible even for large clusters",
        "sensing takes time on real nodes alone, and there are eight of them",
    ),
)
"""The paper's other statements, sentence by sentence."""

_OVER_DLR = ("dlr-pg", "dlr-auto")
BEYOND: tuple[Claim, ...] = (
    *(
        claim(
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
        claim(
            f"{controller}-beats-dlr-{scenario['scenario']}-{op}",
            figure,
            f"{controller} raises {READING[op]} throughput over DLR under {scenario['scenario']}",
            gain(scenario, op, "throughput", controller, "dlr"),
            baseline="dlr",
            stated=False,
        )
        for controller in _OVER_DLR
        for scenario, figure in ((HETEROGENEITY, "6a"), (INTERFERENCE, "8a"))
        for op in ("seq", "rand")
    ),
)
"""Claims beyond the paper."""

CLAIMS: tuple[Claim, ...] = STATED + SHAPES + SENTENCES + BEYOND
