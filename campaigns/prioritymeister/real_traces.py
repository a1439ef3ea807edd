"""Windows of real traces in place of stand-ins: a folder with a file for each workload it has."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from controllers.prioritymeister.estimators import Costs
from schemas.errors import UserError
from workloads.traces.reader import TraceReader
from workloads.traces.requests import RequestBlock

SUFFIXES = (".csv", ".csv.gz", ".txt", ".txt.gz")


def file_of(folder: Path, label: str) -> Path | None:
    """The folder's trace of a workload: ``A.csv``, ``A.txt.gz``; None where it has none.

    Raises:
        UserError: there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"traces: {folder} is no folder of traces.")
    found = (folder / f"{label}{suffix}" for suffix in SUFFIXES)
    return next((path for path in found if path.is_file()), None)


def window(
    folder: Path, label: str, costs: Costs, *, load: float, seconds: float, seed: int
) -> RequestBlock | None:
    """`seconds` of a real trace from a place that the seed chooses; None where there is no file.

    The trace is played faster or slower until it loads the device as Table 2 says; that leaves
    C_A^2 as it is. Beyond its end it begins anew, after a mean gap.

    Args:
        folder: of the traces.
        label: the workload's.
        costs: of the device.
        load: share of the device.
        seconds: length of the window.
        seed: of the place.

    Raises:
        UserError: the trace cannot be read, or is too short to have a rate.
    """
    path = file_of(folder, label)
    if path is None:
        return None
    block = RequestBlock.joined(list(TraceReader(path))).by_time()
    span = float(block.time_ns[-1] - block.time_ns[0]) * 1e-9 if len(block) > 1 else 0.0
    if not span > 0:
        raise UserError(f"{path}: has no two requests at different times, and so no rate.")
    work = float(costs.estimator("storage").work(block).sum())
    times = (block.time_ns - block.time_ns[0]) * (work / span / load)
    period = times[-1] * (1 + 1 / len(block))
    start = np.random.default_rng(seed).uniform(0, period)
    order = np.argsort((times - start) % period, kind="stable")
    rounds = max(1, int(np.ceil(seconds * 1e9 / period)))
    first = (times[order] - start) % period
    at = np.concatenate([first + period * k for k in range(rounds)])
    index = np.tile(order, rounds)
    keep = at < seconds * 1e9
    chosen = block.chosen(index[keep])
    return RequestBlock(at[keep].astype(np.int64), chosen.size, chosen.read, chosen.offset)
