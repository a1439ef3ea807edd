"""Further statements of the DLR paper: from samples and journals, and those that no run supports,
with the reason."""

from __future__ import annotations

from functools import partial

import pandas as pd

from analysis.core.claims import EVERY, Claim, Compute, Evidence, Measured, NotRun
from analysis.core.evidence import (
    Pair,
    Rows,
    ShareOf,
    assigned,
    extreme,
    from_runs,
    mapped,
    mean_of,
    where,
)
from analysis.core.load import SIM, LoadedRun
from analysis.core.stats import fraction
from analysis.papers.dlr import runs
from analysis.papers.dlr.claims import (
    HETEROGENEITY,
    INTERFERENCE,
    READING,
    Cells,
    best,
    claim,
    gain,
    load_hurts,
    never,
    on_papers_store,
    rank_claim,
    ratio_claim,
    with_controller,
)
from schemas.claim import SHARE

HIGHLY = 0.7
"""Smallest size of a rank correlation that is high."""
DRASTICALLY = 0.5
"""Largest share of the throughput that is left after a drastic degradation."""
BUSY = 50.0
"""%iowait above which performance degrades drastically (section IV-D)."""

_SCENARIOS = (HETEROGENEITY, INTERFERENCE)
_alone = partial(claim, baseline=None)
"""A claim that compares DLR with no other controller."""
_always = partial(_alone, **EVERY)
"""A claim that all runs agree."""


def _mixes(*, busy: bool) -> Rows:
    """Select figure 3's runs with a mean pressure above `BUSY`, or the others."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = where(table, scenario="mix", controller="default", op="seq")
        return found[(found["pressure_mean"] > BUSY) == busy] if len(found) else found

    return rows


def _up_to(what: str) -> Compute:
    """Compute DLR's largest gain over default Ceph over both scenarios and all modes."""
    options = [
        (f"{op}, {scenario['scenario']}", gain(scenario, op, what))
        for scenario in _SCENARIOS
        for op in runs.OPS
    ]
    return extreme(options, "largest")


def _sense_by_size(evidence: Evidence) -> Measured | NotRun:
    """Compute the seconds in which DLR senses with the largest objects over those with the smallest
    (figure 10)."""
    rows = evidence.table[evidence.table["ground"] != SIM]
    if len(evidence.table) and rows.empty:
        return NotRun("on virtual time no time passes while a controller senses")
    if "controller_sense_s" not in rows.columns:
        return NotRun("no journal of a DLR run")
    rows = rows[rows["controller"] == "dlr"]
    rows = runs.sweep(rows, "object_size", "seq", "heterogeneity")
    small, large = (rows[rows["object_size"] == size] for size in (2**18, 2**24))
    why = "no block has DLR with objects of 256 KiB and 16 MiB"
    pair = Pair(lambda _: large, lambda _: small, "controller_sense_s", why, keys=runs.BLOCKS)
    return pair(evidence)


_MOVED = "controller_bytes_moved"


def _data_moved(store: Cells) -> Compute:
    """Compute the share of runs in which reweight-by-utilization moves data."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = runs.select(table, controller="reweight", **store)
        return found.dropna(subset=[_MOVED]) if _MOVED in found.columns else found.iloc[:0]

    return ShareOf(rows, lambda rows: rows[_MOVED] > 0, "no journal of a reweight run")


def _with_courses(scenario: Cells, of: Compute) -> Compute:
    """Compute from DLR's runs of a scenario with `COURSES`."""

    def values(loaded: LoadedRun) -> list[float]:
        found = runs.courses(loaded)
        return [found.get(name, float("nan")) for name in runs.COURSES]

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        return runs.select(table, **with_controller(scenario, "dlr"))

    return from_runs(rows, runs.COURSES, values, of)


def _part_of(column: str, whole: str) -> Compute:
    """Compute the mean share of a run's spells under interference; see `COURSES`."""
    spells = assigned(
        lambda table: table[table[whole] > 0], value=lambda found: found[column] / found[whole]
    )
    why = f"no samples of a DLR run under interference with a spell that {whole}"
    return _with_courses(INTERFERENCE, mean_of(spells, "value", why, of=fraction))


def _hot_below_calm() -> Compute:
    """Compute the share of runs with a lower affinity of disturbed OSDs at the end."""
    holds = ShareOf(
        lambda table: table.dropna(subset=["hot_affinity", "calm_affinity"]),
        lambda rows: rows["hot_affinity"] < rows["calm_affinity"],
        "no samples of affinities and disturbed nodes in a DLR run",
    )
    return _with_courses(HETEROGENEITY, holds)


def _primaries() -> Compute:
    """Compute the primaries of an OSD with an affinity below 1 over those of one at 1."""

    def side(name: str) -> Rows:
        return lambda table: table.assign(value=table[name])

    why = "no samples of primaries in a DLR run with an affinity below 1"
    low, full = side("low_primaries"), side("full_primaries")
    return _with_courses(HETEROGENEITY, Pair(low, full, "value", why, keys=("run_id",)))


_SIXTHS = tuple(f"sixth {part + 1}" for part in range(runs.INTERVALS))


def _in_time(scenario: Cells, op: str) -> Compute:
    """Compute DLR's smallest gain in throughput over the sixths of a run (figures 7 and 9)."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = runs.active(runs.select(table, op=op, **scenario))
        return found[found["controller"].isin(("dlr", "default"))]

    def values(loaded: LoadedRun) -> list[float]:
        return runs.sixths(loaded) or [float("nan")] * runs.INTERVALS

    why = f"no block has samples of DLR and default Ceph in {READING[op]}s"
    dlr, default = (partial(where, controller=one) for one in ("dlr", "default"))
    options = [(name, Pair(dlr, default, name, why, keys=runs.BLOCKS)) for name in _SIXTHS]
    least = extreme(options, "least", complete=True)
    found = from_runs(rows, _SIXTHS, values, least)
    return lambda evidence: mapped(found(evidence), lambda ratio: ratio - 1)


STATEMENTS: tuple[Claim, ...] = (
    # Abstract and section I.
    *(
        claim(
            f"dlr-up-to-{what}",
            f"6{panel}, 8{panel}",
            f"DLR improves {what} by up to {100 * value:.0f} % over both scenarios and all modes",
            _up_to(what),
            value=value,
            family="dlr-up-to",
        )
        for what, panel, value in (("throughput", "a", 0.65), ("latency", "b", 0.41))
    ),
    rank_claim(
        "iowait-tracks-performance",
        "3",
        "%iowait is highly correlated with the performance of storage nodes (read as a rank "
        f"correlation beyond -{HIGHLY})",
        load_hurts("mix", "pressure_mean"),
        no_effect=-HIGHLY,
    ),
    ratio_claim(
        "iowait-quick",
        "10",
        "%iowait is collected quickly irrespective of service times of requests (seconds of "
        "sensing with objects of 16 MiB against 256 KiB, within 25 %)",
        _sense_by_size,
        value=1.0,
        baseline="256KiB",
        rule="within",
    ),
    # Section IV.
    ratio_claim(
        "affinity-sets-primaries",
        "6c",
        "Primary affinity determines the probability that an OSD is primary: OSDs below 1 are "
        "primaries of fewer PGs than those at 1",
        _primaries(),
        baseline="affinity-1",
        larger=False,
    ),
    ratio_claim(
        "iowait-50-drastic",
        "3",
        "If %iowait exceeds 50 the performance degrades drastically (read as to less than "
        f"{100 * DRASTICALLY:.0f} % of the throughput of load mixes below 50)",
        Pair(
            _mixes(busy=True),
            _mixes(busy=False),
            "throughput_mb_s",
            "no block has load mixes with a mean %iowait above and below 50",
            keys=runs.BLOCKS,
        ),
        baseline="iowait-below-50",
        no_effect=DRASTICALLY,
        larger=False,
    ),
    *(
        claim(
            f"threshold-0.2-best-{op}",
            "5",
            f"theta_i = 0.2 gives the best performance in all cases: {READING[op]}s (read as more "
            "than the mean of the others)",
            best("theta_i", op),
            baseline="other-theta",
            family="threshold-others",
        )
        for op in ("rand", "write")
    ),
    _alone(
        "interval-short-noisy",
        "5",
        "With a control interval much shorter than 20 s the measured %iowait is noisy (section "
        "IV-C)",
        "no grid varies the control interval (interval_s)",
    ),
    _alone(
        "interval-long-insensitive",
        "5",
        "With a control interval much longer than 20 s DLR is less sensitive to hotspots (section "
        "IV-C)",
        "no grid varies the control interval (interval_s)",
    ),
    # Sections V-C and V-D.
    _always(
        "affinity-hot-below-calm",
        "6c",
        "DLR mitigates hotspots by affinity control: at the end of a run disturbed OSDs have a "
        "lower affinity than the others",
        _hot_below_calm(),
    ),
    *(
        claim(
            name,
            "8c",
            statement,
            _part_of(column, whole),
            unit=SHARE,
            baseline=None,
            family="affinity-interference",
        )
        for name, statement, column, whole in (
            (
                "affinity-steps-down",
                "The affinity of OSDs under interference decreases in steps (two or more for most)",
                "stepped",
                "fell",
            ),
            (
                "affinity-rises-after",
                "The affinity of most OSDs increases at the end of interference",
                "rose",
                "ended",
            ),
        )
    ),
    *(
        claim(
            f"gain-in-time-{scenario['scenario']}-{op}",
            figure,
            f"DLR is above default Ceph in {READING[op]}s in every sixth of a run under "
            f"{scenario['scenario']} (drawn; the text states no comparison)",
            _in_time(scenario, op),
            family=f"gain-in-time-{scenario['scenario']}",
            stated=False,
        )
        for scenario, figure in ((HETEROGENEITY, "7"), (INTERFERENCE, "9"))
        for op in ("seq", "rand")
    ),
    _always(
        "reweight-moves-data",
        "6a, 8a",
        "reweight-by-utilization moves data among OSDs",
        on_papers_store(_data_moved),
    ),
    # Sections II and V-F.
    _alone(
        "dlr-moves-no-data",
        "11",
        "Changing primary affinity does not involve data movement among OSDs",
        "no run counts the bytes that recovery moves",
    ),
    _alone(
        "reads-from-primary",
        "6c",
        "A Ceph client always reads from the primary OSD (section II)",
        "no run counts the reads of each OSD",
    ),
    _alone(
        "writes-by-primary",
        "6c",
        "A client writes to the primary OSD, which replicates (section II)",
        "no run separates an OSD's writes for clients from those for replicas",
    ),
    never(
        "ranking-small-services",
        "10",
        "Ranking replicas by feedback of requests suits only stores with short service times "
        "(sections I and VI)",
        "rados bench cannot choose replicas by feedback; about other stores",
    ),
    never(
        "disk-bottleneck",
        "3",
        "Disk I/O is a major source of bottlenecks of data-intensive applications (section IV-B)",
        "about applications in general; in our runs disks are the bottleneck by construction",
    ),
    *(
        never(
            f"raw-bandwidth-{level}",
            "10",
            f"Ceph reaches {value} % of raw hardware bandwidth at {level} level (section VI)",
            "cited from another paper, about its high-performance cluster",
        )
        for level, value in (("object", "70"), ("file-system", "62"))
    ),
)
"""The paper's statements beyond those in `claims`."""
