"""Further statements of the PriorityMeister paper, sentence by sentence, and the statements that no
run here can support, with the reason."""

from __future__ import annotations

from functools import partial

from analysis.core.claims import Claim, unreachable
from analysis.papers.prioritymeister import runs
from analysis.papers.prioritymeister.claims import (
    OTHERS,
    alone,
    always,
    claim,
    disk,
    flooded,
    label,
    misses,
    more,
    network,
    normal,
    permuted,
    times,
    with_explanation,
    within,
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
        "c-last",
        "5",
        "PM gives C, with the highest load, the last priority of A, B and C, though its SLO is the "
        "tightest (section 6.1)",
        disk("pm"),
        runs.c_last,
    ),
    *(
        claim(
            f"byslo-c-{workload.lower()}",
            "5",
            f"bySLO prioritizes C, with a large impact on {workload}: a longer 99.9th percentile "
            "than under PM (section 6.1)",
            times(
                "5",
                runs.only(disk("byslo"), workload),
                runs.only(disk("pm"), workload),
                runs.column("p99.9_s"),
            ),
            unit="ratio",
            baseline="pm",
            no_effect=1.0,
            family="byslo-c",
        )
        for workload in ("A", "B")
    ),
    within(
        "estimator-same-order",
        "10",
        "As long as the same priority order is chosen, latencies are similar (section 6.5; 99.9th "
        "percentile, within 10 %)",
        times(
            "10",
            lambda table: runs.of_same_order(table, "constant"),
            lambda table: runs.of_same_order(table, "profile"),
            runs.column("p99.9_s"),
        ),
        value=1.0,
        unit="ratio",
        baseline="profile",
        tolerance=0.1,
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
    claim(
        "burst-latency",
        "7",
        "Burstiness inherently increases the latency of a workload (99.9th percentile of H over F "
        "under PM)",
        times(
            "7",
            runs.of("burst", "pm", burst="H", gaps="balanced", k=2.0),
            runs.of("burst", "pm", burst="F", gaps="balanced", k=2.0),
            runs.column("p99.9_s"),
        ),
        unit="ratio",
        baseline="ca2-1",
        no_effect=1.0,
    ),
    always(
        "tail-h",
        "7",
        "At C_A^2 = 40 it is not possible to meet the SLO at the tail: PM meets it at the 99th "
        "percentile and misses it at the 99.9th",
        runs.of("burst", "pm", burst="H", gaps="balanced", k=2.0),
        runs.only_the_tail,
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
    within(
        "ingress-similar",
        "9",
        "With the clients' link in as the bottleneck results are similar (mean of the 99.9th "
        "percentiles under all policies, within 10 %)",
        times(
            "9",
            lambda table: runs.latency(network("ingress", None)(table)),
            lambda table: runs.latency(network("egress", None)(table)),
            runs.column("p99.9_s"),
        ),
        value=1.0,
        unit="ratio",
        baseline="egress",
        tolerance=0.1,
    ),
)

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
    map(with_explanation, (*_ON_DISK, *_BURSTS, *_MISBEHAVING, *_LINKS, *_NOT_HERE))
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
