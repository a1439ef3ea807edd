"""Every figure of the DLR paper: its content, its drawing function and its runs."""

from __future__ import annotations

from functools import partial

from analysis.core.figures import FigureEntry
from analysis.papers.dlr import bars, lines, scale_figure, signals, timelines

_BARS = (
    "Mean of runs with 95 % confidence intervals. The diamond is where the worst change that the "
    "paper states would lead from our value without disturbance."
)
_PAIRED = (
    "Paired by block, geometric mean of ratios to default Ceph with 95 % confidence intervals."
)

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "1a",
        "Throughput with four slow nodes",
        _BARS,
        partial(bars.degradation, scenario="heterogeneity", what="throughput"),
        "1",
    ),
    FigureEntry(
        "1b",
        "Latency with four slow nodes",
        _BARS,
        partial(bars.degradation, scenario="heterogeneity", what="latency"),
        "1",
    ),
    FigureEntry(
        "1c",
        "Throughput with moving hotspots",
        _BARS,
        partial(bars.degradation, scenario="interference", what="throughput"),
        "1",
    ),
    FigureEntry(
        "1d",
        "Latency with moving hotspots",
        _BARS,
        partial(bars.degradation, scenario="interference", what="latency"),
        "1",
    ),
    FigureEntry(
        "3",
        "Mean pressure and throughput",
        "Five load mixes on every OSD node; on modelled disks these are offered loads.",
        lines.load_mix,
        "3",
    ),
    FigureEntry(
        "4",
        "Spread of pressure and throughput",
        "The mean offered load is 50 %; half the nodes get more, half less (labels).",
        lines.load_spread,
        "4",
    ),
    FigureEntry(
        "5",
        "DLR's imbalance threshold",
        "Sequential reads under moving hotspots for several thresholds.",
        lines.threshold,
        "5",
    ),
    FigureEntry(
        "6a",
        "Throughput by controller, heterogeneity",
        _PAIRED,
        partial(bars.normalized, scenario="heterogeneity", what="throughput"),
        "6",
    ),
    FigureEntry(
        "6b",
        "Latency by controller, heterogeneity",
        _PAIRED,
        partial(bars.normalized, scenario="heterogeneity", what="latency"),
        "6",
    ),
    FigureEntry(
        "6c",
        "Primary affinity, heterogeneity",
        "One run of DLR; lines are offset by a hair, so that none hides another.",
        partial(timelines.affinity, scenario="heterogeneity"),
        "6",
    ),
    FigureEntry(
        "7",
        "Throughput by time interval, heterogeneity",
        "Each point is the mean over runs of one sixth of the run, with 95 % interval.",
        partial(timelines.by_interval, scenario="heterogeneity"),
        "7",
    ),
    FigureEntry(
        "8a",
        "Throughput by controller, interference",
        _PAIRED,
        partial(bars.normalized, scenario="interference", what="throughput"),
        "8",
    ),
    FigureEntry(
        "8b",
        "Latency by controller, interference",
        _PAIRED,
        partial(bars.normalized, scenario="interference", what="latency"),
        "8",
    ),
    FigureEntry(
        "8c",
        "Primary affinity, interference",
        "One run of DLR; lines are offset by a hair, so that none hides another.",
        partial(timelines.affinity, scenario="interference"),
        "8",
    ),
    FigureEntry(
        "9",
        "Throughput by time interval, interference",
        "Each point is the mean over runs of one sixth of the run, with 95 % interval.",
        partial(timelines.by_interval, scenario="interference"),
        "9",
    ),
    FigureEntry(
        "10",
        "Object sizes",
        "Sequential reads, mean of runs with 95 % confidence intervals.",
        lines.object_sizes,
        "10",
    ),
    FigureEntry(
        "11",
        "DLR's overhead",
        "From the journals of every DLR run, mean of runs with 95 % confidence intervals.",
        timelines.overhead,
        "11",
        not_simulated="virtual time does not pass while a controller decides",
    ),
    FigureEntry(
        "S1",
        "DLR by signal (not in the paper)",
        _PAIRED,
        signals.by_signal,
        "signals",
    ),
)

_GAIN = (
    "Paired by block, geometric mean of ratios with 95 % confidence intervals. Filled: the "
    "interval excludes no effect."
)

SCALE_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "osds",
        "Gain against the number of OSDs",
        f"{_GAIN} Two operations in flight to an OSD, placement groups by Ceph's rule.",
        partial(scale_figure.gain, axis_id="osds"),
        "osds",
        told=partial(scale_figure.told, axis_id="osds"),
    ),
    FigureEntry(
        "hot",
        "Gain against the share of hot nodes",
        _GAIN,
        partial(scale_figure.gain, axis_id="hot"),
        "hot",
        told=partial(scale_figure.told, axis_id="hot"),
    ),
    FigureEntry(
        "move",
        "Gain against how often the hotspots move",
        f"{_GAIN} The control interval is 20 s; runs last at least two moves.",
        partial(scale_figure.gain, axis_id="move"),
        "move",
        told=partial(scale_figure.told, axis_id="move"),
    ),
)
