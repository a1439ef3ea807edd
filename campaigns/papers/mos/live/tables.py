"""`samples.parquet` and `latency.parquet` of a run on microstores; `t_s` counts from the start of
the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from campaigns.papers.mos.live.results import MEGA, Sent


def write_samples(
    folder: Path, samples: Sequence[Mapping[str, Any]], sent: Mapping[str, Sent], start: float
) -> None:
    """Write the recorder's metrics by node, and ``requests_s``, ``mb_s``, ``failed_s`` and
    ``read_mean_s`` of each workload (node ``workload A``)."""
    rows = [
        (float(line["wall"]) - start, node, metric, float(value))
        for line in samples
        for node, metrics in line["values"].items()
        for metric, value in metrics.items()
    ]
    for letter, one in sent.items():
        node = f"workload {letter}"
        mean = np.divide(
            one.read_s, one.reads, out=np.full(one.seconds, np.nan), where=one.reads > 0
        )
        for metric, values in (
            ("requests_s", one.ops),
            ("mb_s", one.bytes / MEGA),
            ("failed_s", one.failed),
            ("read_mean_s", mean),
        ):
            rows += [
                (float(at), node, metric, float(value))
                for at, value in enumerate(values)
                if not np.isnan(value)
            ]
    table = pd.DataFrame(rows, columns=["t_s", "node", "metric", "value"])
    table.to_parquet(folder / "samples.parquet", index=False)


def write_latency(folder: Path, sent: Mapping[str, Sent]) -> None:
    """Write the measured latencies, one row per bucket; the tenant is the workload's letter."""
    rows = [
        (0.0, op, letter, "", low, high, count)
        for letter, one in sent.items()
        for op, buckets in one.buckets.items()
        for (low, high), count in sorted(buckets.items())
    ]
    names = ["t_s", "op", "tenant", "node", "low_ns", "high_ns", "count"]
    pd.DataFrame(rows, columns=names).to_parquet(folder / "latency.parquet", index=False)
