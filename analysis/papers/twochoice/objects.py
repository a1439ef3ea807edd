"""Claims of the two-choice paper's section VI (figures 11 to 14 and Table I), and claims beyond it.

They are about measurements on object servers. Disks are modelled, so on a local testbed sizes
cannot count as reproduced; directions can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis.core.claims import (
    Claim,
    Compute,
    Evidence,
    Measured,
    NotRun,
    declared,
    explained,
    unreachable,
)
from analysis.core.evidence import (
    Mean,
    Pair,
    Rows,
    assigned,
    average,
    ends,
    mean_of,
    result,
)
from analysis.core.panels import points
from analysis.core.stats import amount, mean
from analysis.papers.twochoice.claims import ALIKE, REMEMBERED
from analysis.papers.twochoice.runs import (
    BOTH,
    CRUSH,
    DLR,
    FIXED,
    NATIVE,
    ORACLE,
    PREQUAL,
    UNCACHED,
    names_of,
    on_osds,
    on_servers,
)
from schemas.claim import SHARE as SHARES

PENDING = 4
"""Number of writes probed together in the paper's statement of figure 11."""
PROBED_MS, TABLE_MS = 10.0, 5.0
"""The paper's upper bounds: the claim is a value below them, not a size."""
TABLE1 = {
    1024: {1: 12.5, 2: 11.7, 4: 10.6, 8: 10.3},
    2048: {1: 6.25, 2: 5.85, 4: 5.3, 8: 5.1},
    4096: {1: 3.12, 2: 2.93, 4: 2.15, 8: 2.1},
}
"""Table I: delay in percent by KiB of a write and writes at once."""


def _jobs(experiment: str, scheduler: str, **setting: Any) -> Rows:
    return lambda table: on_servers(table, experiment, scheduler=scheduler, **setting)


_burst = partial(_jobs, "burst", stragglers="table2")
"""Select the bursts of a scheduler among the jobs of Table II."""


def _against(
    experiment: str, scheduler: str, baseline: str, column: str, **setting: Any
) -> Compute:
    """Compute a number under one scheduler over the same under another."""
    sides = (_jobs(experiment, scheduler, **setting), _jobs(experiment, baseline, **setting))
    why = f"no block has {names_of(scheduler, baseline)}"
    return Pair(*sides, column, why, against=baseline)


def _on_rados(scheduler: str, baseline: str, stragglers: str, **setting: Any) -> Compute:
    """Compute the last process's end time under one scheduler over another's."""

    def side(name: str) -> Rows:
        return lambda table: on_osds(table, stragglers, scheduler=name, **setting)

    why = f"no block has {names_of(scheduler, baseline)}"
    return Pair(side(scheduler), side(baseline), "seconds", why, against=baseline)


def _number(
    experiment: str, column: str, factor: float, of: Mean = amount, **setting: Any
) -> Compute:
    rows = partial(on_servers, experiment=experiment, **setting)
    return mean_of(rows, column, f"no run of {experiment} has the number", factor=factor, of=of)


_probes = partial(on_servers, experiment="probe", pending=PENDING)


def _delays(pending: int, size_kib: int) -> Rows:
    return partial(on_servers, experiment="delay", size_kib=size_kib, pending=pending)


def _added_s(bursts: pd.DataFrame) -> pd.Series:
    """Return the seconds that the scheduler adds to a write: probing, and the record of a
    redirected write."""
    return bursts["probe_mean_s"] + bursts["redirected_share"] * bursts["register_mean_s"]


def _tails(scheduler: str) -> Rows:
    """Select bursts among stragglers, with the last process's end over the median process's."""
    return assigned(_burst(scheduler), tail=lambda its: its["seconds"] / its["process_p50_s"])


_table_length = assigned(
    partial(on_servers, experiment="table"),
    length=lambda rows: rows["entries_most"] / rows["creates"],
)


def _slowest_probing(evidence: Evidence) -> Measured | NotRun:
    """Compute the probing time for four writes, at the number of schedulers with the highest
    interval: a claim about every number must hold there."""
    rows = _probes(evidence.table)
    found = points(rows, "schedulers", lambda its: average(its, "probe_mean_s", 1e3, amount))
    if not found:
        return NotRun("no probing for four writes was run")
    worst = max(found, key=lambda count: max(found[count].value, found[count].high))
    listed = ", ".join(f"{count:g}: {one.value:.2g}" for count, one in found.items())
    note = f"up to most at {worst:g} schedulers; ms by schedulers: {listed}"
    return result(found[worst], rows, "", note)


_measured = partial(declared, prefix="twochoice-objects", paper="twochoice")
_alike = partial(_measured, value=1.0, rule="within", tolerance=ALIKE)
"""A claim that two numbers are about the same."""
_faster = partial(_measured, larger=False)
"""A claim that a number is below that of the baseline."""
_beyond = partial(_measured, stated=False)


def _below(
    name: str, figure: str, statement: str, compute: Compute, ms: float, **more: Any
) -> Claim:
    """Return a claim that a time is below the paper's upper bound in milliseconds."""
    fixed: dict[str, Any] = {"unit": "ms", "size": False, "larger": False, **more}
    return _measured(name, figure, statement, compute, value=ms, no_effect=ms, **fixed)


_MICRO: tuple[Claim, ...] = (
    _below(
        "probe",
        "11",
        "Probing for four concurrent writes takes less than 10 ms, however many schedulers probe",
        _slowest_probing,
        PROBED_MS,
    ),
    _alike(
        "probe-stable",
        "11",
        "Probing takes as long when more schedulers probe (four writes, from one scheduler to the "
        f"most; read as within {100 * ALIKE:g} %)",
        ends(_probes, "schedulers", "probe_mean_s", "fewer than two numbers of schedulers"),
        baseline="one-scheduler",
    ),
    *(
        _below(
            f"{name}-5ms",
            "12",
            f"A {name} of the redirect table takes less than 5 ms, nearly always (99th percentile "
            f"of the client's wait{disk})",
            _number("table", f"{name}_p99_s", 1e3),
            TABLE_MS,
            family="twochoice-table",
        )
        for name, disk in (
            ("create", ", which includes the write to the home's disk"),
            ("query", ""),
        )
    ),
    _faster(
        "table-short",
        "12",
        "The redirect table stays small compared with the number of redirected writes (read as: it "
        "is shorter)",
        mean_of(_table_length, "length", "no table was timed", of=amount),
        baseline="redirected-writes",
    ),
    *(
        _measured(
            f"delay-{size // 1024}mb-{pending}",
            "table1",
            f"Probing delays {pending} concurrent write{'s' * (pending > 1)} of {size // 1024} MB "
            f"by {value:g} %",
            _number("delay", "delay", 100.0, mean, size_kib=size, pending=pending),
            value=value,
            unit="%",
            no_effect=0.0,
        )
        for size, by_pending in TABLE1.items()
        for pending, value in by_pending.items()
    ),
    *(
        _faster(
            f"delay-falls-{size // 1024}mb",
            "table1",
            "The delay is a little less with more writes at once "
            f"({size // 1024} MB, eight over one)",
            Pair(_delays(8, size), _delays(1, size), "delay", "no block has both eight and one"),
            baseline="one-write",
            family="twochoice-delay-falls",
        )
        for size in TABLE1
    ),
    _measured(
        "probe-6-percent",
        "11",
        "Probing for four writes of 2 MB delays them by about 6 %",
        _number("delay", "delay", 100.0, mean, size_kib=2048, pending=PENDING),
        value=6.0,
        unit="%",
        no_effect=0.0,
    ),
)

_WORKLOADS: tuple[Claim, ...] = (
    *(
        _faster(
            f"balance-{name}",
            "13",
            statement,
            _against("balance", BOTH, FIXED, column),
        )
        for name, column, statement in (
            (
                "spread",
                "spread",
                "With the dynamic scheduler servers get more even amounts of all jobs than with "
                "fixed placement (deviation over servers)",
            ),
            ("fullest", "fullest", "The fullest server gets less than with fixed placement"),
            ("time", "seconds", "All jobs together end earlier than with fixed placement"),
        )
    ),
    *(
        _faster(
            name,
            "14",
            f"With stragglers the last process ends earlier than with {text}",
            _against("burst", BOTH, baseline, "seconds", stragglers="table2"),
        )
        for name, baseline, text in (
            ("finish", FIXED, "fixed placement"),
            (
                "finish-native",
                NATIVE,
                "native two-choice, with which some processes hit stragglers",
            ),
        )
    ),
    _measured(
        "fixed-imbalance",
        "13",
        "With fixed placement the amounts are uneven (read as more than a tenth beyond the mean on "
        "the fullest server)",
        _number("balance", "fullest", 1.0, scheduler=FIXED),
        baseline="even",
        no_effect=1.1,
    ),
    _alike(
        "even",
        "13",
        "With the dynamic scheduler the amounts are even (fullest server over the mean; read as "
        f"within {100 * ALIKE:g} %)",
        _number("balance", "fullest", 1.0, scheduler=BOTH),
        baseline="even",
    ),
    _alike(
        "burden-even",
        "13",
        "The burden of redirect records is even over the home servers (bytes by home, fullest over "
        f"the mean; read as within {100 * ALIKE:g} %)",
        _number("balance", "home_fullest", 1.0, scheduler=BOTH),
        baseline="even",
    ),
    _measured(
        "native-tail",
        "14",
        "With native two-choice some processes hit stragglers and slow the whole: its last process "
        "over its median process is more than with both strategies",
        Pair(_tails(NATIVE), _tails(BOTH), "tail", f"no block has {names_of(NATIVE, BOTH)}"),
        baseline=BOTH,
    ),
    _below(
        "write-10ms",
        "14",
        "Writes are delayed by less than 10 ms: probing and recording a redirected write, mean",
        mean_of(
            assigned(_burst(BOTH), added_s=_added_s),
            "added_s",
            "no burst was run",
            factor=1e3,
            of=amount,
        ),
        PROBED_MS,
    ),
    _faster(
        "remembered-better",
        "cache",
        REMEMBERED,
        _against("burst", BOTH, UNCACHED, "seconds", stragglers="table2"),
    ),
    _alike(
        "payload-small",
        "cache",
        "Passing on loads adds little overhead: probing takes as long without it (read as within "
        f"{100 * ALIKE:g} %)",
        _against("burst", BOTH, UNCACHED, "probe_mean_s", stragglers="table2"),
    ),
    _faster(
        "early",
        "14",
        "In the first seconds fixed placement lets more processes finish (time until a tenth of "
        "them have)",
        _against("burst", FIXED, BOTH, "process_p10_s", stragglers="table2"),
    ),
    _below(
        "read-5ms",
        "14",
        "Reads are delayed by less than 5 ms: asking the home where the bytes are, mean",
        _number("burst", "read_query_mean_s", 1e3, scheduler=BOTH, stragglers="table2"),
        TABLE_MS,
    ),
)

_HEAD_TO_HEAD: tuple[Claim, ...] = (
    _faster(
        "fio",
        "beyond",
        "With fio on some of the disks (object servers: an eighth, RADOS: a quarter) the last "
        "process ends earlier than with fixed placement",
        _against("burst", BOTH, FIXED, "seconds", stragglers="fio"),
        stated=False,
    ),
    *(
        _beyond(
            f"{name}-{stragglers}",
            "beyond",
            f"{statement}, with stragglers of {among}",
            _against("burst", BOTH, name, "seconds", stragglers=stragglers),
            larger=larger,
        )
        for stragglers, among in (("table2", "Table II"), ("fio", "fio"))
        for name, statement, larger in (
            (ORACLE, "Both strategies end later than joining the shortest queue", True),
            (PREQUAL, "Both strategies end earlier than Prequal's rule", False),
        )
    ),
    _alike(
        "calm",
        "beyond",
        "Without stragglers both strategies take as long as fixed placement (read as within 25 %)",
        _against("burst", BOTH, FIXED, "seconds", stragglers="none"),
        stated=False,
    ),
)

_CACHE: tuple[Claim, ...] = tuple(
    _faster(
        f"cache-{name}-{against}",
        "cache",
        f"Without remembered loads, {statement} than with {text}",
        _against(experiment, UNCACHED, baseline, column, **setting),
        stated=False,
    )
    for name, statement, experiment, column, setting in (
        (
            "spread",
            "both strategies give servers more even amounts of all jobs (deviation over servers)",
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
        ("remembered", BOTH, "remembered loads"),
        ("fixed", FIXED, "fixed placement"),
    )
)

_AMONG = (("fio", "fio on a quarter of the disks"), ("table2", "stragglers of Table II"))

_SAME = {
    (FIXED, "table2"): "finish",
    (NATIVE, "table2"): "finish-native",
    (FIXED, "fio"): "fio",
    **{
        (name, stragglers): f"{name}-{stragglers}"
        for name in (PREQUAL, ORACLE)
        for stragglers in ("fio", "table2")
    },
}
"""Claims about object servers that RADOS tests too, by baseline and stragglers."""


def _also_on_rados() -> Iterator[Claim]:
    """Yield the claims of `_SAME`, computed from runs on RADOS with two copies. If both stores ran,
    object servers decide: they are the paper's own."""
    known = {claim.id: claim for claim in (*_WORKLOADS, *_HEAD_TO_HEAD)}
    for (name, stragglers), same in _SAME.items():
        compute = _on_rados(BOTH, name, stragglers)
        yield replace(known[f"twochoice-objects-{same}"], compute=compute, store="rados")


_RADOS: tuple[Claim, ...] = (
    *_also_on_rados(),
    *(
        _beyond(
            f"rados-{name}-{stragglers}",
            "rados",
            f"On RADOS with two copies both strategies end {statement}, with {among}",
            _on_rados(BOTH, name, stragglers),
            larger=name == ORACLE,
        )
        for stragglers, among in _AMONG
        for name, statement in (
            (CRUSH, "earlier than CRUSH alone"),
            (DLR, "earlier than CRUSH with DLR at work"),
            (FIXED, "earlier than fixed placement by agents"),
            (NATIVE, "earlier than native two-choice"),
            (PREQUAL, "earlier than Prequal's rule"),
            (ORACLE, "later than joining the shortest queue"),
        )
        if (name, stragglers) not in _SAME
    ),
    *(
        _alike(
            f"rados-dlr-alone-{stragglers}",
            "rados",
            "DLR, which chooses primaries, does not change when a burst of writes ends: every "
            f"replica is written all the same, with {among} (read as within {100 * ALIKE:g} %)",
            _on_rados(DLR, CRUSH, stragglers),
            stated=False,
        )
        for stragglers, among in _AMONG
    ),
    _alike(
        "rados-calm",
        "rados",
        "On RADOS without stragglers both strategies take as long as CRUSH (read as within 25 %)",
        _on_rados(BOTH, CRUSH, "none"),
        stated=False,
    ),
    _faster(
        "rados-single",
        "rados",
        "On RADOS with one copy both strategies end earlier than fixed placement, with fio on a "
        "quarter of the disks",
        _on_rados(BOTH, FIXED, "fio", copies=1),
        stated=False,
    ),
)

_never = partial(unreachable, prefix="twochoice-objects", paper="twochoice")

_NOT_RUN: tuple[Claim, ...] = (
    _never(
        "adios",
        "14",
        "The distributed two-choice strategy scales better than ADIOS's centralized scheduler",
        "ADIOS is not among our schedulers, and no number is stated",
        baseline="adios",
        larger=False,
    ),
    _never(
        "idle-likely",
        "12",
        "It is highly possible that a server and the other one are idle, as I/O is bursty",
        "the paper's reason is traces of a production machine, which are not published",
        unit=SHARES,
    ),
    _never(
        "table2-input",
        "14",
        "The most write-intensive applications of Intrepid write more than 1 MB at a time",
        "Darshan's logs of Intrepid are not published; the jobs that mimic them use Table II",
        value=1.0,
        unit="MB",
        size=False,
    ),
)

_CORES = (
    "all schedulers, servers and their network wait for the testbed's shared processors; on the "
    "paper's machine each had its own node (a reading, not varied)"
)
_HERD = (
    "many schedulers find the same few lightly loaded servers among the remembered loads, and "
    "choose them before any of these writes is expected; in simulated bursts that the loads are "
    "fresh and include the writes just placed changes little, and without remembered loads servers "
    "get more even amounts (figures spread and cache)"
)
EXPLAINED = {
    "probe": _CORES,
    "probe-stable": _CORES,
    "create-5ms": "a create is answered when its record is on the home's disk, which is one random "
    "write of a modelled disk; the paper does not say that its own waits for a disk",
    **dict.fromkeys(
        (f"delay-falls-{size // 1024}mb" for size in TABLE1),
        "eight writes ask sixteen servers, one after another by one core (a reading, not varied)",
    ),
    **dict.fromkeys(("balance-spread", "balance-fullest", "balance-time"), _HERD),
    **dict.fromkeys(("even", "remembered-better", "finish-native"), _HERD),
}
"""Best explanations of results that differ from the paper, shown next to the claims; by claim,
without the prefix ``twochoice-objects-``."""

OBJECT_CLAIMS: tuple[Claim, ...] = tuple(
    claim
    if claim.store  # an explanation is about object servers
    else explained(claim, EXPLAINED.get(claim.id.removeprefix("twochoice-objects-")))
    for claim in (*_MICRO, *_WORKLOADS, *_HEAD_TO_HEAD, *_CACHE, *_RADOS, *_NOT_RUN)
)
