"""Claims beyond the DLR paper: dlr-pg and dlr-auto against DLR.

Each of eight settings has its own claim. The claim over all four settings of reads decides if a
controller beats DLR: of eight claims at 95 %, one holds by chance every third time. A block's mean
over settings also varies less than a single setting.
"""

from __future__ import annotations

import numpy as np

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun
from analysis.core.stats import ratio
from analysis.papers.dlr.compare import metric_of, paired, select
from analysis.papers.dlr.gains import HETEROGENEITY, INTERFERENCE, gain, with_controller

_READS = tuple(
    (scenario, op) for scenario in (HETEROGENEITY, INTERFERENCE) for op in ("seq", "rand")
)


def over_all_reads(controller: str, against: str = "dlr") -> Compute:
    """Compute throughput over that of `against`, minus 1: per block (with all four cells) the
    geometric mean over sequential and random reads under heterogeneity and interference."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        blocks: dict[object, list[float]] = {}
        grounds: set[str] = set()
        scale = 1.0
        for scenario, op in _READS:
            top = select(evidence.table, op=op, **with_controller(scenario, controller))
            bottom = select(evidence.table, op=op, **with_controller(scenario, against))
            grounds |= set(top["ground"])
            scale = float(top["time_scale"].iloc[0]) if len(top) else scale
            pairs = paired(top, bottom, metric_of(op, "throughput"))
            pairs = pairs[(pairs > 0).all(axis=1)]
            for block, row in pairs.iterrows():
                blocks.setdefault(block, []).append(float(row["treated"] / row["baseline"]))
        whole = [values for values in blocks.values() if len(values) == len(_READS)]
        if not whole:
            return NotRun("no block has both controllers in all four settings")
        means = [float(np.exp(np.mean(np.log(values)))) for values in whole]
        estimate = ratio(means, [1.0] * len(means)).map(lambda r: r - 1)
        return Measured(estimate, "+".join(sorted(grounds)), scale)

    return compute


_BY_SETTING: tuple[Claim, ...] = tuple(
    Claim(
        id=f"{controller}-beats-dlr-{scenario['scenario']}-{op}",
        figure=figure,
        statement=f"{controller} raises {op} throughput over DLR under {scenario['scenario']}",
        paper_value=None,
        compute=gain(scenario, op, "throughput", controller, "dlr"),
        unit="relative change",
        baseline="dlr",
        size=False,
    )
    for controller in ("dlr-pg", "dlr-auto")
    for scenario, figure in ((HETEROGENEITY, "6a"), (INTERFERENCE, "8a"))
    for op in ("seq", "rand")
)

_OVER_ALL: tuple[Claim, ...] = tuple(
    Claim(
        id=f"{controller}-beats-dlr",
        figure="6a, 8a",
        statement=f"{controller} raises read throughput over DLR, over both scenarios and reads",
        paper_value=None,
        compute=over_all_reads(controller),
        unit="relative change",
        baseline="dlr",
        size=False,
    )
    for controller in ("dlr-pg", "dlr-auto")
)

BEYOND: tuple[Claim, ...] = (*_OVER_ALL, *_BY_SETTING)
"""Claims beyond the paper."""
