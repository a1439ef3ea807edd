"""Claims of the two-choice paper, and claims beyond it.

Claims of section III (figures 3 and 4) are about decisions of schedulers in a simulation, as in the
paper: they reproduce the paper's simulation, not machines. The paper's text gives relations and
hardly a number; where it says "significantly" or "stable", the statement gives our reading. The
paper describes *preassign* as a strategy on top of two-choice and, in the order of the text, of the
collaborative probe. So its claims are tested for both, alone and with both strategies together.

Claims of section VI (figures 11 to 14 and Table I) are about measurements on object servers. Disks
are modelled, so on a local testbed sizes cannot count as reproduced; directions can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, declared, explained
from analysis.core.evidence import (
    Mean,
    Pair,
    Rows,
    average,
    ends,
    extreme_over,
    mean_of,
    mean_over,
    result,
    values_of,
)
from analysis.core.stats import amount, mean
from analysis.papers.twochoice.runs import (
    BOTH,
    BURST_STANDARD,
    COLD_BOTH,
    COLLABORATIVE,
    CRUSH,
    DLR,
    EVEN,
    FIXED,
    NATIVE,
    ORACLE,
    PAIRED,
    PREASSIGN,
    PREQUAL,
    RANDOM,
    common_loads,
    few_stragglers,
    loads_given,
    on_osds,
    on_servers,
    simulated,
)

FEW = 0.1
"""Maximum "small" straggler ratio."""
ALIKE = 0.25
"""Maximum relative difference that is "not significant" or "stable"."""
SCALE_LEARN = 5
"""Number of bursts in which servers learn, in the sweep over sizes."""
LARGE = {"servers": 10_000, "processes": 1_000_000, "straggler_ratio": 0.1}

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

RESPONSE, RATIO = "response_s", "straggler_ratio"

# Section III: runs of simulated bursts, paired by burst.


def _bursts(series: str, **setting: Any) -> Rows:
    return lambda table: simulated(table, series, **setting)


def _versus(series: str, baseline: str, **setting: Any) -> Pair:
    """Compute the ratio of responses. Pairs of one block at several straggler ratios share a seed:
    their mean counts once."""
    sides = (_bursts(series, **setting), _bursts(baseline, **setting))
    why = f"no burst was met by both {series} and {baseline}"
    return Pair(*sides, RESPONSE, why, keys=PAIRED, cluster="seed")


def _percent(ratio: float) -> str:
    return f"{100 * ratio:g} %"


_whatever_ratio = partial(extreme_over, parameter=RATIO, text=_percent)
_over_ratios = partial(mean_over, parameter=RATIO, text=_percent)
_growth = partial(ends, parameter=RATIO, column=RESPONSE, why="fewer than two straggler ratios")


def _with_few(series: str, column: str) -> Compute:
    """Compute the mean of a summary number over the runs of figure 4."""
    return mean_of(
        lambda table: simulated(table, series, straggler_ratio=few_stragglers(table, (FIXED,))),
        column,
        f"no run of {series} has few stragglers",
        of=amount,
        note=lambda rows: f"at {_percent(rows[RATIO].iloc[0])} stragglers",
    )


def _of_loads(compute: Compute, *series: str) -> Compute:
    """Compute from the writes given to servers of each load (figure 4) instead of from runs."""

    def of(evidence: Evidence) -> Measured | NotRun:
        ratio = few_stragglers(evidence.table, (FIXED, *series))
        if ratio is None:
            return NotRun(f"no run of {' and '.join(series)} has few stragglers")
        given = pd.concat([loads_given(evidence, name, ratio) for name in series])
        return compute(Evidence(given, evidence.runs))

    return of


_RARE = "no such load is common enough"


def _common(series: str) -> Rows:
    def rows(given: pd.DataFrame) -> pd.DataFrame:
        its = given[given["series"] == series]
        return its[its["load"].isin(common_loads(its))]

    return rows


def _light(series: str, loads_of: str) -> Rows:
    """Select common loads below the mean load, and return means over their servers, by block."""

    def rows(given: pd.DataFrame) -> pd.DataFrame:
        common = common_loads(given[given["series"] == loads_of])
        loads = [load for load in common if load < BURST_STANDARD["load_mean"]]
        its = given[(given["series"] == series) & given["load"].isin(loads)]
        sums = its[["mean", "most"]].mul(its["servers"], axis=0).groupby(its["seed"]).sum()
        means = sums.div(its.groupby("seed")["servers"].sum(), axis=0).reset_index()
        means["over_even"] = means["mean"] / EVEN
        return means.assign(ground="+".join(sorted(set(its["ground"]))), loads=_span(loads))

    return rows


def _span(loads: list[int]) -> str:
    return f"loads {loads[0]} to {loads[-1]}" if loads else ""


def _lighter(series: str, baseline: str, column: str = "mean") -> Compute:
    """Compute the writes of servers below the mean load (``mean``: average, ``most``: maximum of a
    load) over another scheduler's."""
    pair = Pair(
        _light(series, series),
        _light(baseline, series),
        column,
        _RARE,
        note=lambda rows, _: str(rows["loads"].iloc[0]),
    )
    return _of_loads(pair, series, baseline)


def _farthest_from_even(given: Evidence) -> Measured | NotRun:
    """Compute the mean number of writes of a load's servers, relative to an even share, at the
    common load farthest from it."""
    rows = _common(RANDOM)(given.table)
    found = {
        load: amount([one / EVEN for one in rows[rows["load"] == load]["mean"]])
        for load in values_of(rows, "load")
    }
    if not found:
        return NotRun(_RARE)
    load = max(found, key=lambda at: abs(math.log(found[at].value)))
    return result(found[load], rows, _RARE, f"farthest of {_span(list(found))}, at {load}")


_simulated = partial(declared, prefix="twochoice", paper="twochoice", machines=False)
_simulated_beyond = partial(_simulated, stated=False)

_RESPONSES: tuple[Claim, ...] = (
    _simulated(
        "random-worse",
        "3",
        "Random selection is slower than fixed placement, whatever the straggler ratio",
        _whatever_ratio(_versus(RANDOM, FIXED), which="least"),
        baseline=FIXED,
    ),
    _simulated(
        "native-not-better",
        "3",
        "Native two-choice is not significantly better than fixed placement even with few "
        f"stragglers (up to {100 * FEW:g} %; read as within {100 * ALIKE:g} % of it)",
        _whatever_ratio(
            _versus(NATIVE, FIXED), which="farthest", wanted=lambda ratio: 0 < ratio <= FEW
        ),
        value=1.0,
        rule="within",
        baseline=FIXED,
        tolerance=ALIKE,
    ),
    _simulated(
        "native-grows",
        "3",
        "The response of native two-choice grows with the number of stragglers",
        _growth(_bursts(NATIVE), wanted=lambda ratio: ratio > 0),
        baseline="fewest-stragglers",
    ),
    _simulated(
        "collaborative-better",
        "3",
        "The collaborative probe improves native two-choice (over all straggler ratios)",
        _over_ratios(_versus(COLLABORATIVE, NATIVE)),
        baseline=NATIVE,
        larger=False,
    ),
    _simulated(
        "preassign-better",
        "3",
        "Preassign reduces the response of the collaborative probe, whatever the straggler ratio",
        _whatever_ratio(_versus(BOTH, COLLABORATIVE), which="largest"),
        baseline=COLLABORATIVE,
        larger=False,
    ),
    _simulated(
        "preassign-better-alone",
        "3",
        "Preassign reduces the response of native two-choice, whatever the straggler ratio",
        _whatever_ratio(_versus(PREASSIGN, NATIVE), which="largest"),
        baseline=NATIVE,
        larger=False,
    ),
    # Both readings of the paper's "preassign".
    *(
        claim
        for series, text, suffix in (
            (BOTH, "Preassign, with the collaborative probe,", ""),
            (PREASSIGN, "Preassign", "-alone"),
        )
        for claim in (
            _simulated(
                f"better-than-fixed{suffix}",
                "3",
                f"{text} is faster than fixed placement, whatever the straggler ratio",
                _whatever_ratio(_versus(series, FIXED), which="largest"),
                baseline=FIXED,
                larger=False,
            ),
            _simulated(
                f"stable{suffix}",
                "3",
                f"{text} is stable while the stragglers grow to half of the servers (read as "
                f"within {100 * ALIKE:g} %)",
                _growth(_bursts(series)),
                value=1.0,
                rule="within",
                baseline="no-stragglers",
                tolerance=ALIKE,
            ),
        )
    ),
)

_PLACEMENTS: tuple[Claim, ...] = (
    _simulated(
        "load-7",
        "4",
        "Input: about 60 of the servers have a load of 7",
        _of_loads(
            mean_of(
                lambda given: given[given["load"] == 7],
                "servers",
                "no server has a load of 7",
                of=amount,
                note="an input, set by the loads' mean and deviation",
            ),
            FIXED,
        ),
        value=60.0,
        rule="within",
        unit="servers",
    ),
    _simulated(
        "few-stragglers",
        "4",
        "Input: fewer than 10 servers are stragglers",
        _with_few(FIXED, "stragglers"),
        value=10.0,
        rule="at_most",
        unit="servers",
        kind="exact",
        no_effect=10.0,
        larger=False,
        size=False,
        tolerance=0.0,
    ),
    _simulated(
        "fixed-even",
        "4",
        "Fixed placement gives every server the same number of writes, the average",
        _with_few(FIXED, "most"),
        value=EVEN,
        rule="within",
        unit="writes",
        kind="exact",
        tolerance=0.0,
    ),
    _simulated(
        "random-even",
        "4",
        "Random selection gives servers of every load the average number (read as within 5 %)",
        _of_loads(_farthest_from_even, RANDOM),
        value=1.0,
        rule="within",
        baseline="even",
        tolerance=0.05,
    ),
    _simulated(
        "random-most",
        "4",
        "The largest number of writes on a server is higher with random selection than with fixed "
        "placement, at every load",
        _of_loads(
            extreme_over(
                Pair(_common(RANDOM), _common(FIXED), "most", _RARE), "load", which="least"
            ),
            RANDOM,
            FIXED,
        ),
        baseline=FIXED,
    ),
    _simulated(
        "random-straggler",
        "4",
        "Random selection places more than the average on one of the stragglers",
        _with_few(RANDOM, "straggler_most"),
        unit="writes",
        no_effect=EVEN,
    ),
    _simulated(
        "fixed-straggler",
        "4",
        "Fixed placement does not avoid stragglers: they get the average",
        _with_few(FIXED, "straggler_most"),
        value=EVEN,
        rule="within",
        unit="writes",
        kind="exact",
        tolerance=0.0,
    ),
    *(
        _simulated(
            f"{series}-avoids",
            "4",
            f"With {text} no straggler gets a write (largest number on a straggler)",
            _with_few(series, "straggler_most"),
            value=0.0,
            rule="within",
            unit="writes",
            tolerance=0.0,
        )
        for series, text in (
            (NATIVE, "native two-choice"),
            (COLLABORATIVE, "the collaborative probe"),
            (PREASSIGN, "preassign"),
            (BOTH, "both strategies"),
        )
    ),
    _simulated(
        "native-herds",
        "4",
        "Native two-choice places more than the average on servers with lower loads",
        _of_loads(
            mean_of(
                _light(NATIVE, NATIVE),
                "over_even",
                _RARE,
                of=amount,
                note=lambda rows: str(rows["loads"].iloc[0]),
            ),
            NATIVE,
        ),
        baseline="even",
    ),
    _simulated(
        "collaborative-herds",
        "4",
        "The collaborative probe places even more than native two-choice on servers with lower "
        "loads",
        _lighter(COLLABORATIVE, NATIVE),
        baseline=NATIVE,
    ),
    *(
        _simulated(
            f"preassign-spreads{suffix}",
            "4",
            "Preassign avoids new stragglers: the largest number of writes on a server with a "
            f"lower load is smaller than with {text}",
            _lighter(series, other, "most"),
            baseline=other,
            larger=False,
        )
        for series, other, text, suffix in (
            (BOTH, COLLABORATIVE, "the collaborative probe", ""),
            (PREASSIGN, NATIVE, "native two-choice", "-alone"),
        )
    ),
)

_BEYOND_SECTION_3: tuple[Claim, ...] = (
    _simulated_beyond(
        "oracle",
        "3",
        "Both strategies are slower than the oracle, whatever the straggler ratio",
        _whatever_ratio(_versus(BOTH, ORACLE), which="least"),
        baseline=ORACLE,
    ),
    _simulated_beyond(
        "prequal",
        "3",
        "Both strategies are faster than Prequal's rule, whatever the straggler ratio",
        _whatever_ratio(_versus(BOTH, PREQUAL), which="largest"),
        baseline=PREQUAL,
        larger=False,
    ),
    _simulated_beyond(
        "learning",
        "3",
        "Having learned P(load) makes both strategies faster (over all straggler ratios)",
        _over_ratios(_versus(BOTH, COLD_BOTH)),
        baseline=COLD_BOTH,
        larger=False,
    ),
    _simulated_beyond(
        "scale",
        "scale",
        "With 10,000 servers and 1,000,000 processes both strategies are faster than fixed "
        "placement",
        _versus(BOTH, FIXED, learn_rounds=SCALE_LEARN, **LARGE),
        baseline=FIXED,
        larger=False,
    ),
)

BURST_CLAIMS: tuple[Claim, ...] = (*_RESPONSES, *_PLACEMENTS, *_BEYOND_SECTION_3)

# Section VI: experiments on object servers, paired within blocks.


def _jobs(experiment: str, scheduler: str, **setting: Any) -> Rows:
    return lambda table: on_servers(table, experiment, scheduler=scheduler, **setting)


def _against(
    experiment: str, scheduler: str, baseline: str, column: str, **setting: Any
) -> Compute:
    """Compute a number under one scheduler over the same under another."""
    sides = (_jobs(experiment, scheduler, **setting), _jobs(experiment, baseline, **setting))
    return Pair(*sides, column, f"no block has both {scheduler} and {baseline}")


def _uncached(experiment: str, baseline: str, column: str, **setting: Any) -> Compute:
    """Compute a number under both strategies without remembered loads of other servers, over the
    same under `baseline`."""
    sides = (
        _jobs(experiment, BOTH, cache_s=0.0, **setting),
        _jobs(experiment, baseline, **setting),
    )
    return Pair(*sides, column, f"no block has both without remembered loads, and {baseline}")


def _on_rados(scheduler: str, baseline: str, stragglers: str, **setting: Any) -> Compute:
    """Compute the last process's end time under one scheduler over another's."""

    def side(name: str) -> Rows:
        return lambda table: on_osds(table, stragglers, scheduler=name, **setting)

    why = f"no block has both {scheduler} and {baseline}"
    return Pair(side(scheduler), side(baseline), "seconds", why)


def _number(
    experiment: str, column: str, factor: float, of: Mean = amount, **setting: Any
) -> Compute:
    def rows(table: pd.DataFrame) -> pd.DataFrame:
        return on_servers(table, experiment, **setting)

    return mean_of(rows, column, f"no run of {experiment} has the number", factor=factor, of=of)


def _probes(table: pd.DataFrame) -> pd.DataFrame:
    return on_servers(table, "probe", pending=PENDING)


def _delays(pending: int) -> Rows:
    return lambda table: on_servers(table, "delay", size_kib=1024, pending=pending)


def _table_length(table: pd.DataFrame) -> pd.DataFrame:
    rows = on_servers(table, "table")
    return rows.assign(length=rows["entries_most"] / rows["creates"]) if len(rows) else rows


def _slowest_probing(evidence: Evidence) -> Measured | NotRun:
    """Compute the probing time for four writes, at the number of schedulers with the highest
    interval: a claim about every number must hold there."""
    rows = _probes(evidence.table)
    found = {
        count: one
        for count in values_of(rows, "schedulers")
        if (one := average(rows[rows["schedulers"] == count], "probe_mean_s", 1e3, amount))
        is not None
    }
    if not found:
        return NotRun("no probing for four writes was run")
    worst = max(found, key=lambda count: max(found[count].value, found[count].high))
    listed = ", ".join(f"{count:g}: {one.value:.2g}" for count, one in found.items())
    note = f"up to most at {worst:g} schedulers; ms by schedulers: {listed}"
    return result(found[worst], rows, "", note)


_measured = partial(declared, prefix="twochoice-objects", paper="twochoice")
_beyond = partial(_measured, stated=False)

_MICRO: tuple[Claim, ...] = (
    _measured(
        "probe",
        "11",
        "Probing for four concurrent writes takes less than 10 ms, however many schedulers probe",
        _slowest_probing,
        value=PROBED_MS,
        unit="ms",
        size=False,
        no_effect=PROBED_MS,
        larger=False,
    ),
    _measured(
        "probe-stable",
        "11",
        "Probing takes as long when more schedulers probe (four writes, from one scheduler to the "
        f"most; read as within {100 * ALIKE:g} %)",
        ends(_probes, "schedulers", "probe_mean_s", "fewer than two numbers of schedulers"),
        value=1.0,
        rule="within",
        baseline="one-scheduler",
        tolerance=ALIKE,
    ),
    *(
        _measured(
            f"{name}-5ms",
            "12",
            f"A {name} of the redirect table takes less than 5 ms, nearly always (99th percentile "
            "of the client's wait, which includes the write to the home's disk)",
            _number("table", f"{name}_p99_s", 1e3),
            value=TABLE_MS,
            family="twochoice-table",
            unit="ms",
            size=False,
            no_effect=TABLE_MS,
            larger=False,
        )
        for name in ("create", "query")
    ),
    _measured(
        "table-short",
        "12",
        "The redirect table stays small compared with the number of redirected writes",
        mean_of(_table_length, "length", "no table was timed", of=amount),
        baseline="redirected-writes",
        larger=False,
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
    _measured(
        "delay-falls",
        "table1",
        "The delay is a little less with more writes at once (1 MB, eight over one)",
        Pair(_delays(8), _delays(1), "delay", "no block has both"),
        baseline="one-write",
        larger=False,
    ),
)

_WORKLOADS: tuple[Claim, ...] = (
    *(
        _measured(
            f"balance-{name}",
            "13",
            statement,
            _against("balance", BOTH, FIXED, column),
            baseline=FIXED,
            larger=False,
        )
        for name, column, statement in (
            (
                "spread",
                "spread",
                "With the dynamic scheduler servers get more even amounts of all jobs than with "
                "fixed placement (deviation over servers)",
            ),
            (
                "fullest",
                "fullest",
                "The fullest server gets less than with fixed placement",
            ),
            ("time", "seconds", "All jobs together end earlier than with fixed placement"),
        )
    ),
    *(
        _measured(
            name,
            "14",
            f"With stragglers the last process ends earlier than with {text}",
            _against("burst", BOTH, baseline, "seconds", stragglers="table2"),
            baseline=baseline,
            larger=False,
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
        "early",
        "14",
        "In the first seconds fixed placement lets more processes finish (time until a tenth of "
        "them have)",
        _against("burst", FIXED, BOTH, "process_p10_s", stragglers="table2"),
        baseline=BOTH,
        larger=False,
    ),
    _measured(
        "read-5ms",
        "14",
        "Reads are delayed by less than 5 ms: asking the home where the bytes are, mean",
        _number("burst", "read_query_mean_s", 1e3, scheduler=BOTH, stragglers="table2"),
        value=TABLE_MS,
        unit="ms",
        size=False,
        no_effect=TABLE_MS,
        larger=False,
    ),
)

_HEAD_TO_HEAD: tuple[Claim, ...] = (
    _beyond(
        "fio",
        "beyond",
        "With fio on some of the disks (object servers: an eighth, RADOS: a quarter) the last "
        "process ends earlier than with fixed placement",
        _against("burst", BOTH, FIXED, "seconds", stragglers="fio"),
        baseline=FIXED,
        larger=False,
    ),
    *(
        _beyond(
            f"{name}-{stragglers}",
            "beyond",
            f"{statement}, with stragglers of {among}",
            _against("burst", BOTH, name, "seconds", stragglers=stragglers),
            baseline=name,
            larger=larger,
        )
        for stragglers, among in (("table2", "Table II"), ("fio", "fio"))
        for name, statement, larger in (
            (ORACLE, "Both strategies end later than joining the shortest queue", True),
            (PREQUAL, "Both strategies end earlier than Prequal's rule", False),
        )
    ),
    _beyond(
        "calm",
        "beyond",
        "Without stragglers both strategies take as long as fixed placement (read as within 25 %)",
        _against("burst", BOTH, FIXED, "seconds", stragglers="none"),
        value=1.0,
        rule="within",
        baseline=FIXED,
        tolerance=ALIKE,
    ),
)

_CACHE: tuple[Claim, ...] = tuple(
    _beyond(
        f"cache-{name}-{against}",
        "cache",
        f"Without remembered loads, {statement} than with {text}",
        _uncached(experiment, baseline, column, **setting),
        baseline=baseline,
        larger=False,
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
            baseline=name,
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
        _beyond(
            f"rados-dlr-alone-{stragglers}",
            "rados",
            "DLR, which chooses primaries, does not change when a burst of writes ends: every "
            f"replica is written all the same, with {among} (read as within {100 * ALIKE:g} %)",
            _on_rados(DLR, CRUSH, stragglers),
            value=1.0,
            rule="within",
            baseline=CRUSH,
            tolerance=ALIKE,
        )
        for stragglers, among in _AMONG
    ),
    _beyond(
        "rados-calm",
        "rados",
        "On RADOS without stragglers both strategies take as long as CRUSH (read as within 25 %)",
        _on_rados(BOTH, CRUSH, "none"),
        value=1.0,
        rule="within",
        baseline=CRUSH,
        tolerance=ALIKE,
    ),
    _beyond(
        "rados-single",
        "rados",
        "On RADOS with one copy both strategies end earlier than fixed placement, with fio on a "
        "quarter of the disks",
        _on_rados(BOTH, FIXED, "fio", copies=1),
        baseline=FIXED,
        larger=False,
    ),
)

_CORES = (
    "all schedulers, servers and their network wait for the testbed's shared processors; on the "
    "paper's machine each had its own node (a reading, not varied)"
)
_HERD = (
    "remembered loads of other servers are neither fresh nor preassigned, so many schedulers "
    "choose the same few servers; without remembered loads servers get more even amounts (figure "
    "cache)"
)
EXPLAINED = {
    "probe": _CORES,
    "probe-stable": _CORES,
    "create-5ms": "a create is answered when its record is on the home's disk, which is one random "
    "write of a modelled disk; the paper does not say that its own waits for a disk",
    "delay-falls": "eight writes ask sixteen servers, one after another by one core, and go to "
    "disks of their own (a reading, not varied)",
    "balance-spread": _HERD,
    "balance-fullest": _HERD,
    "balance-time": _HERD,
    "finish-native": _HERD,
}
"""Best explanations of results that differ from the paper, shown next to the claims; by claim,
without the prefix ``twochoice-objects-``."""

OBJECT_CLAIMS: tuple[Claim, ...] = tuple(
    claim
    if claim.store  # an explanation is about object servers
    else explained(claim, EXPLAINED.get(claim.id.removeprefix("twochoice-objects-")))
    for claim in (*_MICRO, *_WORKLOADS, *_HEAD_TO_HEAD, *_CACHE, *_RADOS)
)
