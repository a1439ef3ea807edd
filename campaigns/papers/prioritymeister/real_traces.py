"""Windows of real traces instead of stand-ins, from a folder with one file per workload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister.estimators import Costs
from schemas.errors import UserError
from workloads.traces.reader import TraceReader
from workloads.traces.requests import RequestBlock

Floats = npt.NDArray[np.float64]

SUFFIXES = (".csv", ".csv.gz", ".txt", ".txt.gz")


def file_of(folder: Path, label: str) -> Path | None:
    """Return the folder's trace of a workload: ``A.csv``, ``A.txt.gz``; None if there is none.

    Raises:
        UserError: there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"traces: {folder} is no folder of traces.")
    found = (folder / f"{label}{suffix}" for suffix in SUFFIXES)
    return next((path for path in found if path.is_file()), None)


def window(
    folder: Path,
    label: str,
    costs: Costs,
    *,
    load: float | None,
    seconds: float,
    seed: int,
    place: int | None = None,
) -> RequestBlock | None:
    """Return `seconds` of a real trace; None if there is no file.

    The trace is played faster or slower until all of it loads the device as in Table 2, which does
    not change C_A^2. It is read twice, so that only the window of a long trace is kept in memory.

    Args:
        folder: folder of the traces.
        label: the workload's label.
        costs: costs of the device.
        load: share of the device; None means the trace's own speed.
        seconds: length of the window.
        seed: seed of a random place; the trace repeats after its end and a mean gap.
        place: 0 for the first `seconds` of the trace, 1 for the next, and so on, without overlap.
            None means a random place.

    Raises:
        UserError: the trace cannot be read, is too short to have a rate, or has no such window.
    """
    path = file_of(folder, label)
    if path is None:
        return None
    whole = measured(path, costs)
    slower = whole.slower(load)
    limit = seconds * 1e9
    period = whole.span_ns * slower * (1 + 1 / whole.count)
    if place is None:
        found, at = _from(
            path, whole, slower, np.random.default_rng(seed).uniform(0, period), limit
        )
        rounds = max(1, int(np.ceil(limit / period)))
        at, index = (
            np.concatenate([at + period * k for k in range(rounds)]),
            np.tile(np.arange(len(at)), rounds),
        )
    else:
        whole.require(place + 1, load=load, seconds=seconds)
        found, at = _from(path, whole, slower, place * limit, limit)
        index = np.arange(len(at))
    keep = at < limit
    if np.count_nonzero(keep) < 2:
        raise UserError(
            f"{path}: has no two requests in a window of {seconds:g} s: take longer ones."
        )
    chosen = found.chosen(index[keep])
    return RequestBlock(at[keep].astype(np.int64), chosen.size, chosen.read, chosen.offset)


@dataclass(frozen=True)
class Whole:
    """A whole trace: its file, requests, seconds of the device (None without a device), first time
    and duration."""

    path: Path
    count: int
    work: float | None
    begin_ns: int
    span_ns: int

    def slower(self, load: float | None) -> float:
        """Return the factor for the trace's times so that all of it is `load` of the device, on
        which it must have been measured. None means its own speed."""
        if load is None:
            return 1.0
        assert self.work is not None, self.path
        return self.work / (self.span_ns * 1e-9) / load

    def require(self, count: int, *, load: float | None, seconds: float) -> None:
        """Raise unless there are `count` consecutive windows of `seconds`.

        Args:
            count: number of windows, one for each block of a campaign.
            load: see `slower`.
            seconds: length of a window.

        Raises:
            UserError: there are fewer windows.
        """
        lasts_ns = self.span_ns * self.slower(load)
        there = int(lasts_ns // (seconds * 1e9))
        if count > there:
            raise UserError(
                f"{self.path}: lasts {lasts_ns * 1e-9:.6g} s at the speed that it is played with, "
                f"{there} windows of {seconds:g} s one after the other, too few for {count} "
                "blocks: fewer repetitions, less seconds, or trace_windows: random."
            )


def measured(path: Path, costs: Costs | None) -> Whole:
    """Read a trace once; `costs` are its device's.

    Raises:
        UserError: the trace cannot be read, or is too short to have a rate.
    """
    estimator = None if costs is None else costs.estimator("storage")
    count, work, begin, end = 0, 0.0, 0, 0
    for block in TraceReader(path):
        if len(block):
            begin = begin if count else int(block.time_ns[0])
            end = int(block.time_ns[-1])
            count += len(block)
            work += 0.0 if estimator is None else float(estimator.work(block).sum())
    if end <= begin:
        raise UserError(f"{path}: has no two requests at different times, and so no rate.")
    return Whole(path, count, None if estimator is None else work, begin, end - begin)


def _from(
    path: Path, whole: Whole, slower: float, start: float, limit: float
) -> tuple[RequestBlock, Floats]:
    """Return requests within `limit` ns after `start` in the repeating trace, and their times."""
    period = whole.span_ns * slower * (1 + 1 / whole.count)
    blocks: list[RequestBlock] = []
    times: list[Floats] = [np.empty(0)]
    for block in TraceReader(path):
        played = np.asarray((block.time_ns - whole.begin_ns) * slower, np.float64)
        at = (played - start) % period
        near = at < limit
        blocks.append(block.chosen(near))
        times.append(at[near])
    found, after = RequestBlock.joined(blocks), np.concatenate(times)
    order = np.argsort(after, kind="stable")
    return found.chosen(order), after[order]
