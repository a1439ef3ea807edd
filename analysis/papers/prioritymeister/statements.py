"""Further statements of the PriorityMeister paper, sentence by sentence, and the statements that no
run here can support, with the reason."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, unreachable
from analysis.core.evidence import from_runs
from analysis.core.stats import amount, fraction
from analysis.papers.prioritymeister import runs
from analysis.papers.prioritymeister.claims import (
    ALLOWED,
    OTHERS,
    TAIL_S,
    alone,
    always,
    burst,
    claim,
    disk,
    flooded,
    label,
    longer,
    mean_over_blocks,
    misses,
    more,
    network,
    normal,
    permuted,
    similar,
    times,
    with_explanation,
)

_ON_DISK: tuple[Claim, ...] = (
    more(
        "workloads-met",
        "5",
        "With PM more workloads satisfy their SLOs at the 99.9th percentile than with Cake "
        "(abstract)",
        (disk("pm"), disk("cake")),
        runs.workloads_met,
        over="cake",
    ),
    always(
        "disk-bottleneck",
        "5",
        "In figure 5 the storage is the bottleneck (section 6.1): the disk is busier than every "
        "link under PM",
        disk("pm"),
        runs.column("busiest"),
    ),
    always(
        "c-last",
        "5",
        "PM gives C, with the highest load, the last priority of A, B and C, though its SLO is the "
        "tightest (section 6.1)",
        disk("pm"),
        runs.c_after("A", "B"),
    ),
    *(
        longer(
            f"byslo-c-{workload.lower()}",
            "5",
            f"bySLO prioritizes C, with a large impact on {workload}: a longer 99.9th percentile "
            "than under PM (section 6.1)",
            times("5", runs.only(disk("byslo"), workload), runs.only(disk("pm"), workload), TAIL_S),
            baseline="pm",
            family="byslo-c",
        )
        for workload in ("A", "B")
    ),
    similar(
        "estimator-same-order",
        "10",
        "As long as the same priority order is chosen, latencies are similar (section 6.5; 99.9th "
        "percentile, within 10 %)",
        times(
            "10",
            partial(runs.of_same_order, estimator="constant"),
            partial(runs.of_same_order, estimator="profile"),
            TAIL_S,
        ),
        baseline="profile",
    ),
    always(
        "corrected",
        "11",
        "Where prioritizing by SLO does not work PM detects and corrects it (section 6.5): PM "
        "meets every permutation that bySLO misses",
        permuted(None),
        runs.corrected,
    ),
)

_BURSTS: tuple[Claim, ...] = (
    misses(
        "harder",
        "As burstiness increases from C_A^2 = 1 to 40, it is harder to meet SLOs with PM too",
        ("H", "pm"),
        ("F", "pm"),
        over="ca2-1",
    ),
    misses(
        "better-f",
        "The proactive approach consistently does better: PM misses fewer SLOs than Cake at "
        "C_A^2 = 1 too",
        ("F", "cake"),
        ("F", "pm"),
        over="pm",
    ),
    longer(
        "burst-latency",
        "7",
        "Burstiness inherently increases the latency of a workload (99.9th percentile of H over F "
        "under PM)",
        times("7", burst("H", "pm"), burst("F", "pm"), TAIL_S),
        baseline="ca2-1",
    ),
    always(
        "tail-h",
        "7",
        "At C_A^2 = 40 it is not possible to meet the SLO at the tail: PM meets it at the 99th "
        "percentile and misses it at the 99.9th",
        burst("H", "pm"),
        runs.only_above(99.0),
    ),
    more(
        "upper-helps",
        "cake",
        "Increasing the upper bound of SLO compliance improves Cake's tail latency (section 5.3): "
        "fewer missed SLOs with 4 than with 1.2",
        tuple(
            runs.of("burst", "cake", burst=..., gaps="balanced", k=2.0, cake_upper=upper)
            for upper in (1.2, 4.0)
        ),
        runs.missed_share,
        over="upper-4",
        why="no block of Cake with the upper bounds 1.2 and 4",
    ),
)

TIGHT = 0.9
"""Share of a tight bound that the longest latency reaches."""


def _over_time(one: Claim) -> Claim:
    """Return a claim about the bursty trace's runs under Cake, with the columns `runs.WINDOWS`."""
    rows, values = runs.with_slo(burst("B", "cake")), partial(runs.windows, workload="B")
    return replace(one, compute=from_runs(rows, runs.WINDOWS, values, one.compute))


_IN_TIME: tuple[Claim, ...] = (
    claim(
        "low-burst-cake",
        "1",
        "With little burstiness (F) Cake meets its SLO with infrequent violations (section 1, read "
        "as less than 1 % of the requests)",
        mean_over_blocks("1", burst("F", "cake"), runs.missed_share, fraction),
        no_effect=ALLOWED,
        larger=False,
    ),
    _over_time(
        always(
            "burst-periods",
            "1",
            "On the bursty trace (B) Cake has periods of significant SLO violations (section 1, "
            f"read as ten seconds with more than {100 * runs.PERIOD:.0f} % of the requests)",
            lambda table: table,
            runs.column("period"),
        )
    ),
    _over_time(
        claim(
            "before-reacting",
            "1",
            "Bursts cause many SLO violations before Cake can react (section 1, read as more of "
            "the violations than of the requests in the busiest tenth of the time)",
            mean_over_blocks("1", lambda table: table, runs.column("in_bursts"), amount),
            unit="ratio",
            no_effect=1.0,
        )
    ),
)

_MISBEHAVING: tuple[Claim, ...] = tuple(
    more(
        f"harmed-{other}",
        "8",
        f"When D misbehaves, C is negatively impacted under {label(other)}: fewer of its requests "
        "are within the SLO than while D behaves",
        (runs.only(normal(other), "C"), flooded(other)),
        runs.column("within"),
        over="d-misbehaves",
        family="harmed",
    )
    for other in OTHERS
)

_LINKS: tuple[Claim, ...] = (
    always(
        "network-i",
        "9",
        "I's SLO, which is higher, is satisfied by all policies",
        {label(name): runs.only(network("egress", name), "I") for name in ("pm", "byslo", "ps")},
        runs.all_met(),
    ),
    always(
        "network-byslo-k",
        "9",
        "bySLO gives K, which has the lowest SLO, the highest priority: K meets its SLO and "
        "another workload misses at the tail",
        network("egress", "byslo"),
        runs.only_k_met,
    ),
    always(
        "tail-only-ps",
        "9",
        "Without network QoS (ps) workloads start missing their SLOs at the tail: all are met at "
        "the 90th percentile and not at the 99.9th",
        network("egress", "ps"),
        runs.only_above(90.0),
    ),
    similar(
        "ingress-similar",
        "9",
        "With the clients' link in as the bottleneck results are similar (mean of the 99.9th "
        "percentiles under all policies, within 10 %)",
        times(
            "9",
            runs.with_slo(network("ingress", None)),
            runs.with_slo(network("egress", None)),
            TAIL_S,
        ),
        baseline="egress",
    ),
)


def _reached(compute: Compute) -> Compute:
    """Compute a share of the bound that shows a tight bound. A lower share shows nothing: a trace
    is not the worst of the arrivals that the rate limits allow."""

    def shown(evidence: Evidence) -> Measured | NotRun:
        found = compute(evidence)
        if isinstance(found, NotRun) or found.estimate.value >= TIGHT:
            return found
        share = f"{found.estimate.value:.2g} of the bound"
        return NotRun(f"no trace leads to the worst case: the longest latencies are {share}")

    return shown


_BOUND: tuple[Claim, ...] = (
    claim(
        "tight",
        "bounds",
        "The worst-case bound is tight (section 4.4): some arrivals reach it (read as: in a block "
        f"some latency of a workload that others precede is at least {100 * TIGHT:.0f} % of its "
        "bound)",
        _reached(mean_over_blocks("bounds", runs.waiting, runs.largest_of_bound, amount)),
        unit="ratio",
        baseline="bound",
        no_effect=TIGHT,
    ),
)


def _long(table: pd.DataFrame) -> pd.DataFrame:
    """Return figure 5's rows under PM of runs with ten requests beyond the 99.99th percentile."""
    found = runs.latency(disk("pm")(table))
    least = found["requests"].astype(float).groupby(found["run_id"]).transform("min")
    return found[least >= 1e4 * runs.BEYOND]


OPEN: tuple[Claim, ...] = (
    always(
        "p9999",
        "5",
        "PM meets all SLOs at the 99.99th percentile too (section 1)",
        _long,
        runs.all_met(99.99),
        why="no cell of figure 5 has 100,000 requests of each workload in the half that counts",
    ),
    claim(
        "limits-alone",
        "5",
        "Rate limiting alone is insufficient (section 1)",
        "no cell has PM's rate limits and one priority for all workloads",
    ),
    claim(
        "stages-mixed",
        "9",
        "Different priorities at each stage let more workloads meet their SLOs than one priority "
        "throughout (sections 1 and 4.3)",
        "no cell has PM with one priority of a workload at all stages",
    ),
    claim(
        "search-quick",
        "levels",
        "The search for priorities is quick, polynomial in the number of workloads (sections 1 and "
        "4.3)",
        "no cell varies the number of workloads, and no run counts the bounds of its search",
    ),
    claim(
        "unhindered",
        "4",
        "A workload that keeps to its trace is not held back by any (r, b) pair of its border "
        "(sections 3.2 and 4.1)",
        "no run counts the requests that token buckets hold back",
    ),
    claim(
        "closed-masks",
        "5",
        "Closed-loop replay masks many of the high tail latencies (section 5.1)",
        "no cell replays A, B and C in a closed loop",
    ),
)
"""Statements that a campaign could show but no cell does."""

_unreachable = partial(unreachable, prefix="pm", paper="prioritymeister")
_NOT_HERE: tuple[Claim, ...] = (
    _unreachable(
        "cake-network",
        "5",
        "Extending Cake to network rate limits hurts more than it helps (sections 2 and 5.3)",
        "the paper names the extension in one sentence and drops it; nothing specifies it",
    ),
    _unreachable(
        "cake-converges",
        "5",
        "It is not clear whether Cake's parameters converge with several workloads (section 6.1)",
        "an open question of the paper; it states no result",
    ),
    _unreachable(
        "edf-cake-network",
        "9",
        "EDF and Cake do not generalize to networks (section 6.4)",
        "about the ability of switches; nothing to measure",
    ),
    _unreachable(
        "table1",
        "5",
        "Of eleven schedulers none but PM addresses latency above the 99th percentile (table 1)",
        "a survey of the literature",
    ),
)

STATEMENTS: tuple[Claim, ...] = tuple(
    map(
        with_explanation,
        (*_IN_TIME, *_ON_DISK, *_BURSTS, *_MISBEHAVING, *_LINKS, *_BOUND, *OPEN, *_NOT_HERE),
    )
)
"""Statements about simulated runs, and those that no run supports."""

TAIL_LOCAL: tuple[Claim, ...] = (
    alone(
        "tail-edf",
        "5",
        "PM meets all SLOs at the 99.9th percentile and EDF, its strongest rival, does not",
        lambda variant: runs.whole_trace("disk", variant),
        "edf",
        why="no block of figure 5's cells of 28 minutes (pm-local, grid tail) with both",
    ),
)
"""The comparison at the 99.9th percentile on a testbed."""
