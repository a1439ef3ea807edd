"""Beyond the paper: the same DLR steered by three signals (supplement S1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, counts
from analysis.papers.dlr.compare import OP_NAMES, OPS, compare, metric_of, select

NAMES = {
    "node": "the node's disk pressure\n(%iowait or its stand-in)",
    "osd": "the OSD's own pressure\n(without fio's)",
    "op_r_latency": "the OSD's read latency\n(op_r_latency)",
}
_COLOURS = {"node": "#0072B2", "osd": "#56B4E9", "op_r_latency": "#CC79A7"}


def by_signal(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw DLR over default Ceph under heterogeneity for each signal, paired by block."""
    found: dict[tuple[str, str], Estimate] = {}
    for op in OPS:
        base = select(evidence.table, op=op, scenario="heterogeneity", controller="default")
        for signal in NAMES:
            treated = select(
                evidence.table, op=op, scenario="heterogeneity", controller="dlr", signal=signal
            )
            estimate = compare(treated, base, metric_of(op, "throughput"))
            if estimate is not None:
                found[op, signal] = estimate
    signals = [signal for signal in NAMES if any(key[1] == signal for key in found)]
    if len(signals) < 2:
        return Missing("DLR runs steered by the OSD's own pressure and by op_r_latency")
    ops = [op for op in OPS if sum(key[0] == op for key in found) > 1]
    width = 0.8 / len(signals)
    with style.figure(width=7.2) as (drawn, (axes,)):
        for place, signal in enumerate(signals):
            mine = [(i, found[op, signal]) for i, op in enumerate(ops) if (op, signal) in found]
            axes.bar(
                [i + (place - (len(signals) - 1) / 2) * width for i, _ in mine],
                [estimate.value for _, estimate in mine],
                width * 0.94,
                color=_COLOURS[signal],
                yerr=np.array([estimate.error for _, estimate in mine]).T,
                capsize=3,
                label=NAMES[signal],
            )
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(ops)), [OP_NAMES[op] for op in ops])
        axes.set_ylabel("Throughput / default Ceph")
        axes.set_title(f"DLR by signal, heterogeneity ({counts(found.values())})")
        axes.margins(y=0.3)
        style.legend(drawn, [axes])
        return style.save(drawn, folder, name)
