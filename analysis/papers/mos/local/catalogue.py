"""Figures of runs on real microstores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from analysis.core.claims import Evidence
from analysis.core.figures import FigureEntry, Missing
from analysis.core.papers import Part
from analysis.papers.mos.local import (
    course_figures,
    elastic_claims,
    elastic_figures,
    setups_claims,
    setups_figure,
    single_claims,
    single_figures,
)
from analysis.papers.mos.local.runs import table
from analysis.papers.mos.local.tables import tables

COMMAND = "hotbed run mos-local --figure {figure}"

_MEAN = "Means over runs with 95 % intervals; all setups of a block meet the same draws."
_STATED = "Diamonds: what the paper's ratios make of our"
_COURSE = (
    "Mean over blocks, band: their range. The load is the paper's in shape; it gives no numbers of "
    "processes."
)


def _entry(
    figure: str, title: str, caption: str, draw: Callable[[Evidence, Path, str], Path | Missing]
) -> FigureEntry:
    return FigureEntry(figure, title, caption, draw, figure, COMMAND)


FIGURES: tuple[FigureEntry, ...] = (
    _entry(
        "1",
        "Performance under various object store configurations",
        f"{_MEAN} Workloads A to D at once. {_STATED} Default: 8 and 3.25 times the QPS, "
        "a 5.25th of the bandwidth with FavorsSmall and the same with FavorsLarge.",
        setups_figure.setups,
    ),
    _entry(
        "2",
        "Impact of varying the object size on read performance",
        f"{_MEAN} One proxy of 0.4 core and 200 Mbit/s. Latencies of all runs together.",
        single_figures.sizes,
    ),
    _entry(
        "3a",
        "Proxy scaling, small objects",
        f"{_MEAN} {_STATED} QPS with one proxy (3,700 over 2,200).",
        single_figures.proxy_small,
    ),
    _entry(
        "3b",
        "Proxy scaling, large objects",
        f"{_MEAN} {_STATED} bandwidth with one proxy (2 times).",
        single_figures.proxy_large,
    ),
    _entry(
        "3c",
        "Storage scaling",
        f"{_MEAN} The paper's peak is where storage servers together have the proxy's cores (R4).",
        single_figures.storage,
    ),
    _entry(
        "4a",
        "Homogeneous disks and the network, small objects",
        f"{_MEAN} {_STATED} slow network: 12 % on HDDs, 70 % on SSDs.",
        single_figures.network_small,
    ),
    _entry(
        "4b",
        "Homogeneous disks and the network, large objects",
        f"{_MEAN} {_STATED} slow network: 900 % on SSDs.",
        single_figures.network_large,
    ),
    _entry(
        "5",
        "Heterogeneous disks and the network, large objects",
        f"{_MEAN} The paper has 310, 620 and 930 MB/s at 2.5, 5 and 7.5 Gbit/s: the links' "
        "limits, dotted here.",
        single_figures.mixes,
    ),
    _entry(
        "8",
        "Overall throughput and bandwidth under different setups",
        f"{_MEAN} Dotted: linear regression, as in the paper.",
        elastic_figures.overall,
    ),
    _entry(
        "9",
        "Throughput and 95th percentile latency of workload A",
        _MEAN,
        elastic_figures.small_tail,
    ),
    _entry(
        "10",
        "Bandwidth and 95th percentile latency of workload C",
        _MEAN,
        elastic_figures.large_tail,
    ),
    _entry("11a", "A load that changes: throughput of A", _COURSE, course_figures.throughput),
    _entry("11b", "A load that changes: latency of A", _COURSE, course_figures.latency),
    _entry("11c", "A load that changes: bandwidth of C", _COURSE, course_figures.bandwidth),
    _entry(
        "12",
        "Breakdown of resources under the load that changes",
        "The first block's run of MOS++.",
        course_figures.resources,
    ),
)

LOCAL = Part(
    (*setups_claims.CLAIMS, *single_claims.CLAIMS, *elastic_claims.CLAIMS),
    FIGURES,
    kind="mos",
    simulated=False,
    tabulate=table,
    tables=tables,
)
