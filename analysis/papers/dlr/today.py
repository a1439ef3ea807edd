"""Today's Ceph and today's rivals: rankings by release, and the goals of DLR's successors.

No paper has these claims (`stated` is false). Goals are about random reads in the paper's own time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from analysis.comparison.build import DrawnPanel, draw_panels
from analysis.comparison.ranking import rank
from analysis.core.claims import Claim, Evidence, declared
from analysis.core.evidence import Pair, Rows, mean_of, quotient, where
from analysis.core.figures import FigureEntry, Missing
from analysis.core.load import SIM, LoadedRun, table
from analysis.core.papers import Part
from analysis.papers.dlr.bound import bounds
from analysis.papers.dlr.runs import BLOCKS, OP_NAMES, active
from schemas.cells.dlr import Bench, GatewayWorkload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RELEASES = {"16": "Pacific", "18": "Reef", "20": "Tentacle"}
SIMULATED = "simulated"
SAME = ["campaign", "block", "op", "scenario", "move_every_s", "hot_nodes", "duration_s"]
"""Columns that are equal for runs with the same hotspots."""

LEAST = 100
"""Reads from which a run reports the 95th percentile."""


LARGEST = 100
"""OSDs up to which bounds are computed: larger journals take minutes to read."""


def tabulate(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return `analysis.core.load.table` with the release, the reads' 95th percentile, and the
    bounds ``placed`` and ``free`` in reads per second."""
    found = table(runs)
    found["release"] = [
        SIMULATED
        if one.run.ground == SIM
        else RELEASES.get(one.run.provenance.versions.get("ceph", "").partition(".")[0], "")
        for one in runs
    ]
    found["p95_s"] = [one.reduced("95th percentile of reads", percentile_s) for one in runs]
    found["workload"] = [one.run.parameters.get("workload") or "" for one in runs]
    found[["placed", "free"]] = np.nan
    reads = found[found["op"].isin(("seq", "rand")) & (found["osds"] <= LARGEST)]
    for _, rows in reads.groupby(SAME, dropna=False):
        for name, rate in bounds([runs[index] for index in rows["index"]]).items():
            found.loc[rows.index, name] = rate
    return found.assign(of_bound=found["iops"] / found["placed"])


_LINE = re.compile(r"\s\d+\s+\d+\s+\d+\s+(\d+)\s+\S+\s+\S+\s+([\d.]+|-)\s+[\d.]+\s*$")


def percentile_s(loaded: LoadedRun) -> float | None:
    """Return the 95th percentile of a run's latencies, None with fewer than `LEAST` requests.

    Simulated runs keep the distribution. rados bench prints a single request's latency each second;
    a second counts as its number of finished requests.
    """
    values, counts = [0.0], [0]
    if loaded.file("latency.parquet").exists():
        buckets = pd.read_parquet(loaded.file("latency.parquet"))
        values, counts = (buckets[name].tolist() for name in buckets.columns[-2:])
        values = [value / 1000 for value in values]
    for path in sorted(loaded.file("logs").glob("rados-bench-*.txt")):
        lines = [match for line in path.read_text().splitlines() if (match := _LINE.search(line))]
        done = [0, *(int(match[1]) for match in lines)]
        values += [float(match[2].replace("-", "0")) for match in lines]
        counts += np.diff(done).tolist()
    if sum(counts) < LEAST:
        return None
    order = np.argsort(values)
    reached = np.cumsum(np.array(counts)[order])
    return float(np.array(values)[order][np.searchsorted(reached, 0.95 * reached[-1])])


Setting = Mapping[str, object]
"""Values of columns."""

LASTING: Setting = {"op": "rand", "scenario": "heterogeneity", "time_scale": 1.0, "hot_nodes": 4}
SIX: Setting = {**LASTING, "hot_nodes": 6}
MOVING: Setting = {**LASTING, "scenario": "interference"}
MOVING_30, MOVING_90 = ({**MOVING, "move_every_s": every} for every in (30.0, 90.0))
SIXTH: Setting = {"time_scale": 1 / 6}


def _of(controller: str, setting: Setting) -> Rows:
    return lambda found: active(where(found, controller=controller, **setting))


def over(treated: str, baseline: str, setting: Setting, column: str = "iops") -> Pair:
    """Compare two controllers in a setting: the ratio within blocks, minus 1."""
    why = f"no block has {treated} and {baseline} in this setting"
    sides = _of(treated, setting), _of(baseline, setting)
    return Pair(*sides, column, why, keys=BLOCKS, function=lambda ratio: ratio - 1)


GOALS: tuple[tuple[str, str, str, str, float, str, Setting], ...] = (
    ("even-lasting", "dlr-even", "dlr", "more", 0, "four of eight nodes hot (+10 %)", LASTING),
    ("move-six-hot", "dlr-move", "dlr", "more", 0, "six of eight nodes hot (+25 %)", SIX),
    ("fast-moving-30", "dlr-fast", "dlr", "more", 0, "hotspots moving in 30 s (+10 %)", MOVING_30),
    ("fast-over-short", "dlr-fast", "dlr-short", "more", 0, "the same hotspots", MOVING_30),
    ("fast-moving-90", "dlr-fast", "dlr", "at most 3 % fewer", -0.03, "90 s", MOVING_90),
)
"""End of the id, controller, baseline, number of reads, no effect, setting (goal), setting."""

RIVALS = {
    "Reef": ("default", "read-balancer", "mclock"),
    "Tentacle": ("default", "read-balancer", "upmap-read", "balance-reads"),
}

_claim = partial(declared, paper="dlr-today", unit="relative change", stated=False, prefix="today")


def _claims(releases: Mapping[str, Sequence[str]]) -> Iterator[Claim]:
    """Yield the goals, and DLR against rivals by release; the first release's runs without hotspots
    count."""
    for name, treated, baseline, many, none, words, setting in GOALS:
        said = f"{treated} serves {many} random reads than {baseline}: {words}"
        one = over(treated, baseline, setting)
        yield _claim(name, "goals", said, one, baseline=baseline, no_effect=none)
        if baseline == "dlr":
            said = f"95 % of reads end under {treated} within 1.1 times DLR's time: {words}"
            slower = over(treated, "dlr", setting, "p95_s")
            named = partial(_claim, baseline="dlr", no_effect=0.1, larger=False)
            yield named(f"{name}-p95", "goals", said, slower)
    said = "dlr-even serves at least 90 % of the bound over choices of primaries: four of eight hot"
    why = "no journal with latencies of every disk in this setting"
    part = mean_of(_of("dlr-even", LASTING), "of_bound", why, logarithmic=True)
    yield _claim("even-of-bound", "goals", said, part, unit="ratio", no_effect=0.9)
    calm = {**SIXTH, "op": "rand", "scenario": "none", "release": next(iter(releases))}
    for controller in ("dlr", "dlr-short", "dlr-even", "dlr-fast", "dlr-move"):
        said = f"Without hotspots {controller} loses less than 3 % of default Ceph's random reads"
        one = over(controller, "default", calm)
        yield _claim(f"calm-{controller}", "today", said, one, baseline="default", no_effect=-0.03)
    for release, rivals in releases.items():
        for rival in rivals:
            said = f"DLR serves more random reads than {rival}, four of eight nodes hot ({release})"
            one = over("dlr", rival, {**LASTING, **SIXTH, "release": release})
            name = f"dlr-over-{rival}-{release.lower()}"
            yield _claim(name, "today", said, one, baseline=rival, family=f"today-{release}")


class View(NamedTuple):
    """A panel: title, setting of its runs, and baseline."""

    title: str
    setting: Setting
    baseline: str = "default"


def ranked(evidence: Evidence, view: View) -> DrawnPanel | None:
    """Return the ranking of a view's runs with the bounds; None without two controllers."""
    rows = where(evidence.table, **view.setting)
    names = sorted(set(rows["controller"]), key=lambda name: name != view.baseline)
    if len(names) < 2 or names[0] != view.baseline:
        return None
    op, scenario = str(rows["op"].iloc[0]), str(rows["scenario"].iloc[0])
    asked = partial(rank, scenario=scenario, op=op, baseline=view.baseline)
    panel = asked(rows, controllers=names, missing={})
    base = rows[rows["controller"] == view.baseline]
    lines: dict[str, float] = {}
    for column, look in (("placed", "--"), ("free", ":")):
        most = quotient(base.assign(iops=base[column]), base, "iops", keys=BLOCKS)
        lines |= {} if most is None else {look: most.value}
    blocks = max(standing.n for standing in panel.standings)
    return DrawnPanel(panel, blocks, f"{view.title} ({view.baseline} = 0, n = {blocks})", lines)


_BELOW = "bars: 95 % intervals over paired blocks; filled: a difference is shown; hollow: none is"
_RED = (
    "; red: what a closed network of the measured disks gives at most, by any choice of primaries "
    "(dashed) and by any placement (dotted)"
)


def draw(evidence: Evidence, views: Sequence[View], title: str) -> Figure | Missing:
    """Draw the rankings of those views that have runs, two in a row."""
    shown = [found for view in views if (found := ranked(evidence, view)) is not None]
    if not shown:
        return Missing("runs of a controller and of the baseline in one block")
    below = _BELOW + _RED * any(one.lines for one in shown)
    return draw_panels(shown, min(2, len(shown)), (title, below))


def _figures(releases: Sequence[str], end: str = "", more: str = "") -> Iterator[FigureEntry]:
    """Yield the figures of a part: `end` of their ids, and `more` options of their commands."""
    settings = (
        *((op, "heterogeneity", "hotspots that stay") for op in ("rand", "seq", "write")),
        *((op, "interference", "hotspots that move") for op in ("rand", "seq")),
        ("rand", "none", "no hotspots"),
    )
    views = [
        View(
            f"{release}: {OP_NAMES[op].lower()}, {words}",
            {**SIXTH, "op": op, "scenario": scenario, "release": release},
        )
        for op, scenario, words in settings
        for release in releases
    ]
    goals = [
        View("four of eight nodes hot", LASTING, "dlr"),
        View("six of eight nodes hot", SIX, "dlr"),
        View("hotspots move every 30 s", MOVING_30, "dlr"),
        View("hotspots move every 90 s", MOVING_90, "dlr"),
    ]
    gateway = [View(f"S3, workload {one}", {"op": "s3", "workload": one}) for one in "AC"]
    for name, campaign, title, its in (
        ("today", "dlr-today", "Today's Ceph, its own policies, and DLR's family", views),
        ("goals", "dlr-today-goals", "Goals of DLR's successors, in the paper's own time", goals),
        ("gateway", "dlr-today-gateway", "S3 on Reef", [] if end else gateway),
    ):
        if its:
            yield _figure(name, campaign, title, its, end=end, more=more)


def _figure(
    name: str, campaign: str, title: str, views: Sequence[View], *, end: str = "", more: str = ""
) -> FigureEntry:
    drawn = partial(draw, views=views, title=title)
    caption = "Throughput against the baseline, paired by block, the best on top."
    command = f"hotbed run {campaign}{more} --figure {name}"
    return FigureEntry(name + end, title, caption, drawn, campaign=name, command=command)


BANNER = (
    "<b>Simulated</b> where a figure says so. Other figures are of Ceph Reef and Tentacle on the "
    "local site; docs/today.md says what each campaign asks."
)
_part = partial(Part, models=(Bench, GatewayWorkload), sized=False, tabulate=tabulate)
PARTS = (
    _part(tuple(_claims(RIVALS)), tuple(_figures(tuple(RIVALS))), simulated=False),
    _part(
        tuple(_claims({SIMULATED: RIVALS["Tentacle"]})),
        tuple(_figures([SIMULATED], "-sim", " --ground sim")),
        simulated=True,
    ),
    Part(
        (),
        (
            _figure(
                "large",
                "dlr-today-1000",
                "Random reads on 1,000 OSDs, 250 of them hot (simulated)",
                [View("1,000 OSDs", {})],
                more=" --model testbed/simulated/reef.yaml",
            ),
        ),
        simulated=True,
        sized=True,
        tabulate=tabulate,
    ),
)
