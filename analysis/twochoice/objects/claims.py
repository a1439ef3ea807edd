"""What the two-choice paper states of its measurements (section VI, figures 11 to 14 and Table I),
and what is claimed beyond it. Disks are modelled, so sizes cannot count as reproduced on a local
testbed, directions can."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from analysis.claims import Claim, Evidence, Measured, NotRun, declared
from analysis.columns import average, paired
from analysis.stats import Estimate
from analysis.twochoice.objects.runs import cells, rados
from analysis.twochoice.runs import BOTH, CRUSH, DLR, FIXED, NATIVE, ORACLE, PREQUAL

Compute = Callable[[Evidence], Measured | NotRun]

TABLE1 = {
    1024: {1: 12.5, 2: 11.7, 4: 10.6, 8: 10.3},
    2048: {1: 6.25, 2: 5.85, 4: 5.3, 8: 5.1},
    4096: {1: 3.12, 2: 2.93, 4: 2.15, 8: 2.1},
}
"""Table I: delay in percent by KiB of a write and writes at once."""

STABLE = 0.25
"""What is "stable" is within this of the other."""
PROBED_MS, TABLE_MS = 10.0, 5.0
"""The paper's bounds: what is claimed is to be below them, no size."""
PENDING = 4

_claim = partial(declared, prefix="twochoice-objects", paper="twochoice")


def _measured(found: Estimate | None, rows: pd.DataFrame, why: str, note: str | None = None) -> Any:
    if found is None:
        return NotRun(why)
    return Measured(found, "+".join(sorted(set(rows["ground"]))), 1.0, note)


def versus(experiment: str, series: str, baseline: str, column: str, **setting: Any) -> Compute:
    """A number under one scheduler over the same under another, paired within blocks."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, experiment, **setting)
        top, bottom = (rows[rows["scheduler"] == name] for name in (series, baseline))
        found: Measured | NotRun = _measured(
            paired(top, bottom, column), top, f"no block has both {series} and {baseline}"
        )
        return found

    return compute


def uncached(experiment: str, column: str, baseline: str = BOTH, **setting: Any) -> Compute:
    """A number under both strategies with nothing remembered of other servers' loads, over the same
    under `baseline`, paired."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        alone = cells(evidence.table, experiment, cache_s=0.0, **setting)
        rows = cells(evidence.table, experiment, **setting)
        top, bottom = alone[alone["scheduler"] == BOTH], rows[rows["scheduler"] == baseline]
        why = f"no block has both without remembered loads, and {baseline}"
        found: Measured | NotRun = _measured(paired(top, bottom, column), top, why)
        return found

    return compute


def on_rados(series: str, baseline: str, stragglers: str, **setting: Any) -> Compute:
    """When the last process had ended under one scheduler over the same under another, paired."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = rados(evidence.table, stragglers, **setting)
        top, bottom = (rows[rows["scheduler"] == name] for name in (series, baseline))
        found: Measured | NotRun = _measured(
            paired(top, bottom, "seconds"), top, f"no block has both {series} and {baseline}"
        )
        return found

    return compute


def number(experiment: str, column: str, factor: float = 1.0, **setting: Any) -> Compute:
    """Mean of a number over runs."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, experiment, **setting)
        why = f"no run of {experiment} tells it"
        found: Measured | NotRun = _measured(average(rows, column, factor), rows, why)
        return found

    return compute


def slowest_probing(evidence: Evidence) -> Measured | NotRun:
    """Probing for four writes, at the number of schedulers where its interval reaches highest: what
    is claimed of every number has to hold there."""
    rows = cells(evidence.table, "probe", pending=PENDING)
    found: dict[int, Estimate] = {}
    for count in sorted(set(rows["schedulers"])):
        one = average(rows[rows["schedulers"] == count], "probe_mean_s", 1e3)
        if one is not None:
            found[int(count)] = one
    if not found:
        return NotRun("no probing for four writes was run")
    worst = max(found, key=lambda count: found[count].value + found[count].error[1])
    listed = ", ".join(f"{count}: {one.value:.2g}" for count, one in found.items())
    result: Measured | NotRun = _measured(
        found[worst], rows, "", f"up to most at {worst} schedulers; ms by schedulers: {listed}"
    )
    return result


def probing_grows(evidence: Evidence) -> Measured | NotRun:
    """Probing for four writes by the most schedulers over that by one."""
    rows = cells(evidence.table, "probe", pending=PENDING)
    counts = sorted(set(rows["schedulers"]))
    if len(counts) < 2:
        return NotRun("fewer than two numbers of schedulers were run")
    low, high = (rows[rows["schedulers"] == count] for count in (counts[0], counts[-1]))
    result: Measured | NotRun = _measured(
        paired(high, low, "probe_mean_s"),
        rows,
        "no block has both",
        f"{counts[-1]} schedulers over {counts[0]}",
    )
    return result


def delay_falls(evidence: Evidence) -> Measured | NotRun:
    """Table I: the delay of eight writes at once over that of one, of 1 MB writes."""
    many, one = (cells(evidence.table, "delay", size_kib=1024, pending=n) for n in (8, 1))
    result: Measured | NotRun = _measured(paired(many, one, "delay"), many, "no block has both")
    return result


def length_of_table(evidence: Evidence) -> Measured | NotRun:
    """Entries at most over redirected writes."""
    rows = cells(evidence.table, "table")
    if rows.empty:
        return NotRun("no table was timed")
    share = rows.assign(length=rows["entries_most"] / rows["creates"])
    result: Measured | NotRun = _measured(average(share, "length"), rows, "")
    return result


_MICRO: tuple[Claim, ...] = (
    _claim(
        "probe",
        "11",
        "Probing for four concurrent writes takes less than 10 ms, however many schedulers probe",
        slowest_probing,
        value=PROBED_MS,
        unit="ms",
        size=False,
        no_effect=PROBED_MS,
        larger=False,
    ),
    _claim(
        "probe-stable",
        "11",
        "Probing takes as long when more schedulers probe (four writes, from one scheduler to the "
        f"most; read as within {100 * STABLE:g} %)",
        probing_grows,
        value=1.0,
        kind="within",
        baseline="one scheduler",
        tolerance=STABLE,
    ),
    *(
        _claim(
            f"{name}-5ms",
            "12",
            f"A {name} of the redirect table takes less than 5 ms, nearly always (99th percentile "
            "of what the client waits, the record's way to the home's disk included)",
            number("table", f"{name}_p99_s", 1e3),
            value=TABLE_MS,
            unit="ms",
            size=False,
            no_effect=TABLE_MS,
            larger=False,
        )
        for name in ("create", "query")
    ),
    _claim(
        "table-short",
        "12",
        "The redirect table stays small compared with the number of redirected writes",
        length_of_table,
        baseline="redirected writes",
        larger=False,
    ),
    *(
        _claim(
            f"delay-{size // 1024}mb-{pending}",
            "table1",
            f"Probing delays {pending} concurrent write{'s' * (pending > 1)} of {size // 1024} MB "
            f"by {value:g} %",
            number("delay", "delay", 100.0, size_kib=size, pending=pending),
            value=value,
            unit="%",
            no_effect=0.0,
        )
        for size, by_pending in TABLE1.items()
        for pending, value in by_pending.items()
    ),
    _claim(
        "delay-falls",
        "table1",
        "The delay is a little less with more writes at once (1 MB, eight over one)",
        delay_falls,
        baseline="one write",
        larger=False,
    ),
)

_WORKLOADS: tuple[Claim, ...] = (
    _claim(
        "balance-spread",
        "13",
        "With the dynamic scheduler servers get more even amounts of all jobs than with fixed "
        "placement (deviation over servers)",
        versus("balance", BOTH, FIXED, "spread"),
        baseline="fixed",
        larger=False,
    ),
    _claim(
        "balance-fullest",
        "13",
        "The server that gets most gets less than with fixed placement",
        versus("balance", BOTH, FIXED, "fullest"),
        baseline="fixed",
        larger=False,
    ),
    _claim(
        "balance-time",
        "13",
        "All jobs together end earlier than with fixed placement",
        versus("balance", BOTH, FIXED, "seconds"),
        baseline="fixed",
        larger=False,
    ),
    _claim(
        "finish",
        "14",
        "With stragglers the last process ends earlier than with fixed placement",
        versus("burst", BOTH, FIXED, "seconds", stragglers="table2"),
        baseline="fixed",
        larger=False,
    ),
    _claim(
        "finish-native",
        "14",
        "With stragglers the last process ends earlier than with native two-choice, some of whose "
        "processes hit stragglers",
        versus("burst", BOTH, NATIVE, "seconds", stragglers="table2"),
        baseline="two-choice",
        larger=False,
    ),
    _claim(
        "early",
        "14",
        "In the first seconds fixed placement lets more processes finish (time until a tenth of "
        "them have)",
        versus("burst", FIXED, BOTH, "process_p10_s", stragglers="table2"),
        baseline="both strategies",
        larger=False,
    ),
    _claim(
        "read-5ms",
        "14",
        "Reads are delayed by less than 5 ms: asking the home where the bytes are, mean",
        number("burst", "read_query_mean_s", 1e3, scheduler=BOTH, stragglers="table2"),
        value=TABLE_MS,
        unit="ms",
        size=False,
        no_effect=TABLE_MS,
        larger=False,
    ),
)

_BEYOND: tuple[Claim, ...] = (
    _claim(
        "fio",
        "beyond",
        "With fio on an eighth of the disks the last process ends earlier than with fixed "
        "placement",
        versus("burst", BOTH, FIXED, "seconds", stragglers="fio"),
        baseline="fixed",
        larger=False,
    ),
    *(
        _claim(
            f"{name}-{stragglers}",
            "beyond",
            f"{told}, with {among}",
            versus("burst", BOTH, name, "seconds", stragglers=stragglers),
            baseline=name,
            larger=larger,
        )
        for stragglers, among in (
            ("table2", "stragglers of Table II"),
            ("fio", "stragglers of fio"),
        )
        for name, told, larger in (
            (ORACLE, "Both strategies end later than joining the shortest queue", True),
            (PREQUAL, "Both strategies end earlier than Prequal's rule", False),
        )
    ),
    _claim(
        "calm",
        "beyond",
        "Without stragglers both strategies take as long as fixed placement (read as within 25 %)",
        versus("burst", BOTH, FIXED, "seconds", stragglers="none"),
        value=1.0,
        kind="within",
        baseline="fixed",
        tolerance=STABLE,
    ),
)

_CACHE: tuple[Claim, ...] = (
    *(
        _claim(
            f"cache-{name}-{against}",
            "cache",
            f"Without remembered loads, {told} than {text}",
            uncached(experiment, column, baseline, **setting),
            baseline=text.removeprefix("with "),
            larger=False,
        )
        for name, told, experiment, column, setting in (
            (
                "spread",
                "both strategies give servers more even amounts of all jobs (deviation over "
                "servers)",
                "balance",
                "spread",
                {},
            ),
            ("time", "all jobs end earlier under both strategies", "balance", "seconds", {}),
            (
                "finish",
                "the last process among the jobs of Table II ends earlier under both strategies",
                "burst",
                "seconds",
                {"stragglers": "table2"},
            ),
        )
        for against, baseline, text in (
            ("remembered", BOTH, "with remembered loads"),
            ("fixed", FIXED, "with fixed placement"),
        )
    ),
)

_RADOS: tuple[Claim, ...] = (
    *(
        _claim(
            f"rados-{name}-{stragglers}",
            "rados",
            f"On RADOS with two copies both strategies end {told}, with {among}",
            on_rados(BOTH, name, stragglers),
            baseline=name,
            larger=name == ORACLE,
        )
        for stragglers, among in (
            ("fio", "fio on a quarter of the disks"),
            ("table2", "stragglers of Table II"),
        )
        for name, told in (
            (CRUSH, "earlier than CRUSH alone"),
            (DLR, "earlier than CRUSH with DLR at work"),
            (FIXED, "earlier than fixed placement by agents"),
            (NATIVE, "earlier than native two-choice"),
            (PREQUAL, "earlier than Prequal's rule"),
            (ORACLE, "later than joining the shortest queue"),
        )
    ),
    *(
        _claim(
            f"rados-dlr-alone-{stragglers}",
            "rados",
            "DLR, which chooses primaries, does not change when a burst of writes ends: every "
            f"replica is written all the same, with {among} (read as within {100 * STABLE:g} %)",
            on_rados(DLR, CRUSH, stragglers),
            value=1.0,
            kind="within",
            baseline="CRUSH",
            tolerance=STABLE,
        )
        for stragglers, among in (
            ("fio", "fio on a quarter of the disks"),
            ("table2", "stragglers of Table II"),
        )
    ),
    _claim(
        "rados-calm",
        "rados",
        "On RADOS without stragglers both strategies take as long as CRUSH (read as within 25 %)",
        on_rados(BOTH, CRUSH, "none"),
        value=1.0,
        kind="within",
        baseline="CRUSH",
        tolerance=STABLE,
    ),
    _claim(
        "rados-single",
        "rados",
        "On RADOS with one copy both strategies end earlier than fixed placement, with fio on a "
        "quarter of the disks",
        on_rados(BOTH, FIXED, "fio", copies=1),
        baseline="fixed",
        larger=False,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_MICRO, *_WORKLOADS, *_BEYOND, *_CACHE, *_RADOS)
