"""Claims of the two-choice paper about its measurements (section VI, figures 11 to 14 and Table I),
and claims beyond it. Disks are modelled, so on a local testbed sizes cannot count as reproduced;
directions can."""

from __future__ import annotations

from functools import partial

from analysis.core.claims import Claim, declared
from analysis.core.explained import explained
from analysis.papers.twochoice.objects.measures import (
    PENDING,
    delay_falls,
    length_of_table,
    number,
    on_rados,
    probing_grows,
    slowest_probing,
    uncached,
    versus,
)
from analysis.papers.twochoice.runs import BOTH, CRUSH, DLR, FIXED, NATIVE, ORACLE, PREQUAL

__all__ = ["CLAIMS", "PENDING", "PROBED_MS", "TABLE1", "TABLE_MS"]

TABLE1 = {
    1024: {1: 12.5, 2: 11.7, 4: 10.6, 8: 10.3},
    2048: {1: 6.25, 2: 5.85, 4: 5.3, 8: 5.1},
    4096: {1: 3.12, 2: 2.93, 4: 2.15, 8: 2.1},
}
"""Table I: delay in percent by KiB of a write and writes at once."""

STABLE = 0.25
"""Maximum relative difference of values that are "stable"."""
PROBED_MS, TABLE_MS = 10.0, 5.0
"""The paper's upper bounds: the claim is a value below them, not a size."""

_claim = partial(declared, prefix="twochoice-objects", paper="twochoice")

_CORES = (
    "all schedulers, servers and their network share the testbed's processors, which is what they "
    "wait for; on the paper's machine each was a node (a reading, not varied)"
)
_HERD = (
    "loads that servers remember of others are neither fresh nor preassigned, so that many "
    "schedulers find the same few servers in them; without them servers get more even amounts "
    "(figure cache)"
)
_DISK = (
    "a create is answered when its record is on the home's disk, which is one random write of a "
    "modelled disk; the paper does not say that its own waits for a disk"
)
_ASKED = (
    "eight writes ask sixteen servers, one after another by one core, and go to disks of their own "
    "(a reading, not varied)"
)
EXPLAINED = {
    f"twochoice-objects-{name}": why
    for names, why in (
        (("probe", "probe-stable"), _CORES),
        (("create-5ms",), _DISK),
        (("delay-falls",), _ASKED),
        (("balance-spread", "balance-fullest", "balance-time", "finish-native"), _HERD),
    )
    for name in names
}
"""Best explanations of results that differ from the paper, shown next to the claims."""

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

CLAIMS: tuple[Claim, ...] = tuple(
    explained(claim, EXPLAINED.get(claim.id))
    for claim in (*_MICRO, *_WORKLOADS, *_BEYOND, *_CACHE, *_RADOS)
)
