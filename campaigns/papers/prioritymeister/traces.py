"""Traces: Table 2's columns for any trace, stand-ins for its workloads, and windows of real traces
from a folder with one file per workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from campaigns.papers.prioritymeister.plan import measure_trace
from controllers.prioritymeister import estimators
from controllers.prioritymeister.estimators import StageCosts, load_profile
from schemas.errors import UserError, not_allowed
from workloads.traces import arrivals, standins
from workloads.traces.reader import ReadingReport, TraceReader
from workloads.traces.requests import RequestBlock, save

REFERENCE = Path(estimators.__file__).with_name("disk7200.json")
"""A 7200 RPM disk like the paper's, for stand-ins without a given profile."""


@dataclass(frozen=True)
class Statistics:
    """A row of Table 2. Loads are shares of the device, and of the link in its busier direction.
    They are None without a profile, or if all requests arrive at one instant."""

    trace: str
    format: str
    requests: int
    malformed: int
    seconds: float
    read_share: float
    mean_bytes: float
    storage_load: float | None
    network_load: float | None
    network_in_load: float | None
    network_out_load: float | None
    scv: float | None


@dataclass(frozen=True)
class MadeTrace:
    """A written stand-in with its actual loads and C_A^2."""

    workload: str
    file: str
    requests: int
    size: int
    sequential_share: float
    seconds: float
    storage_load: float | None
    network_load: float | None
    scv: float | None


def link_rate(link: float) -> float:
    """Return the bytes per second of a link of `link` bits; raise UserError if it has none."""
    if not link > 0:
        raise not_allowed("--link", link, "a rate above 0")
    return link / 8


def statistics(
    reader: TraceReader, profile: Path | None, link: float
) -> tuple[Statistics, ReadingReport]:
    """Read a trace once, in bounded memory, and return its statistics."""
    rate = link_rate(link)
    costs = StageCosts(None) if profile is None else load_profile(profile)
    network = ("network-in", "network-out")
    stages = network if costs.storage is None else ("storage", *network)
    demand, report = measure_trace(reader, costs, stages, curves=False)
    loads = [demand.load(stage, rate) for stage in network]
    storage = None if costs.storage is None else demand.load("storage")
    found = Statistics(
        trace=str(reader.path),
        format=report.format,
        requests=demand.requests,
        malformed=report.malformed,
        seconds=demand.seconds,
        read_share=demand.reads / demand.requests,
        mean_bytes=demand.bytes / demand.requests,
        storage_load=storage,
        network_load=max((load for load in loads if load is not None), default=None),
        network_in_load=loads[0],
        network_out_load=loads[1],
        scv=demand.scv,
    )
    return found, report


def check_new(out: Path) -> None:
    """Raise UserError if a file cannot be created, before any work is done for it."""
    if out.exists():
        raise UserError("exists; nothing is overwritten", where=out, do="choose another name")
    if not out.parent.is_dir():
        where = f"no folder {out.parent}"
        raise UserError(f"there is {where}", where=out, do="make it, or choose another name")


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise not_allowed("--seed", seed, "a whole number of 0 or more")


def _written(blocks: Iterable[RequestBlock], out: Path) -> int:
    """Write a new trace completely or not at all, and return its number of requests."""
    try:
        return save(blocks, out)
    except BaseException as error:
        out.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot be written ({error.strerror})", where=out) from error
        raise


def convert(reader: TraceReader, out: Path) -> tuple[int, ReadingReport]:
    """Write a trace of any format in the replayer's format ``plain``, block by block, and return
    the number of requests and the reader's report. Times start at the first request; known offsets
    are kept; `out`, a new file, is compressed if it ends in ``.gz``."""
    check_new(out)
    return _written(_from_zero(reader), out), reader.report


def _from_zero(blocks: Iterable[RequestBlock]) -> Iterator[RequestBlock]:
    """Yield the same blocks, with times from the first request on."""
    zero: int | None = None
    for block in blocks:
        if zero is None and len(block):
            zero = int(block.time_ns[0])
        yield replace(block, time_ns=block.time_ns - (zero or 0))


def make_trace(
    process: str,
    out: Path,
    *,
    rate: float,
    count: int,
    c2: float,
    burst_s: float,
    size: int,
    read_share: float,
    sequential_share: float,
    seed: int,
) -> Statistics:
    """Write requests of one size that arrive by a process (see `workloads.traces.arrivals`) into a
    new file: ``poisson``, ``hyperexponential``, ``interrupted``, or ``copy``, which reads
    (`read_share` of 0.5 or more) or writes `count` requests in a row, `rate` a second.

    Raises:
        UserError: the process is unknown, the file exists or cannot be written, or a number is out
            of range.
    """
    check_new(out)
    _check_seed(seed)
    for name, share in (("--read-share", read_share), ("--sequential-share", sequential_share)):
        if not 0 <= share <= 1:
            raise not_allowed(name, share, "0 to 1")
    times = {
        "poisson": lambda: arrivals.poisson(rate, count, seed),
        "hyperexponential": lambda: arrivals.hyperexponential(rate, c2, count, seed),
        "interrupted": lambda: arrivals.interrupted_poisson(rate, c2, burst_s, count, seed),
    }
    if process == "copy":
        block = arrivals.file_copy(count * size, size, rate * size, write=read_share < 0.5)
    elif process in times:
        block = arrivals.requests(
            times[process](),
            size=size,
            read_share=read_share,
            sequential_share=sequential_share,
            seed=seed,
        )
    else:
        raise not_allowed("process", process, ", ".join((*times, "copy")))
    _written([block], out)
    return statistics(TraceReader(out), None, 1e9)[0]


def make_standin(
    label: str, out: Path, profile: Path | None, link: float, *, seconds: float, seed: int
) -> MadeTrace:
    """Write a stand-in for a workload of Table 2 into a new file; raise UserError if the workload
    is unknown, the file cannot be written, or the device cannot get this load."""
    check_new(out)
    _check_seed(seed)
    rate = link_rate(link)
    if not 1 <= seconds <= 1e7:
        raise not_allowed("--seconds", seconds, "1 to 10,000,000 seconds")
    costs = load_profile(profile or REFERENCE)
    made = standins.make(
        label,
        partial(costs.work, "storage"),
        partial(costs.work, "network-out"),
        rate,
        seconds=seconds,
        seed=seed,
    )
    _written([made.block], out)
    found, _ = statistics(TraceReader(out), profile or REFERENCE, link)
    return MadeTrace(
        workload=label,
        file=str(out),
        requests=found.requests,
        size=made.size,
        sequential_share=made.sequential_share,
        seconds=found.seconds,
        storage_load=found.storage_load,
        network_load=found.network_load,
        scv=found.scv,
    )


Floats = npt.NDArray[np.float64]

SUFFIXES = (".csv", ".csv.gz", ".txt", ".txt.gz")


def file_of(folder: Path, label: str) -> Path | None:
    """Return the folder's trace of a workload: ``A.csv``, ``A.txt.gz``; None if there is none.
    Raise UserError if there is no such folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder of traces", where="traces")
    found = (folder / f"{label}{suffix}" for suffix in SUFFIXES)
    return next((path for path in found if path.is_file()), None)


def window(
    folder: Path,
    label: str,
    costs: StageCosts,
    *,
    load: float | None,
    seconds: float,
    seed: int,
    place: int | None = None,
) -> RequestBlock | None:
    """Return `seconds` of a real trace; None if there is no file.

    The trace is played faster or slower until all of it loads the device by the share `load` (None:
    its own speed), which does not change C_A^2. It is read twice, so that only the window of a long
    trace is kept in memory. `place` is 0 for the first `seconds` of the trace, 1 for the next, and
    so on, without overlap. None means a random place by `seed`; the trace then repeats after its
    end and a mean gap.

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
        what = f"has no two requests in a window of {seconds:g} s"
        raise UserError(what, where=path, do="take longer windows")
    chosen = found.chosen(index[keep])
    return RequestBlock(at[keep].astype(np.int64), chosen.size, chosen.read, chosen.offset)


@dataclass(frozen=True)
class WholeTrace:
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
        """Raise UserError unless there are `count` consecutive windows of `seconds`; see
        `slower`."""
        lasts_ns = self.span_ns * self.slower(load)
        there = int(lasts_ns // (seconds * 1e9))
        if count > there:
            raise UserError(
                f"lasts {lasts_ns * 1e-9:.6g} s at the speed that it is played with: {there} "
                f"windows of {seconds:g} s one after the other, too few for {count} blocks",
                where=self.path,
                do="take fewer repetitions, fewer seconds, or trace_windows: random",
            )


def measured(path: Path, costs: StageCosts | None) -> WholeTrace:
    """Read a trace once; `costs` are its device's. Raise UserError if it cannot be read, or is too
    short to have a rate."""
    estimator = None if costs is None else costs.estimator("storage")
    count, work, begin, end = 0, 0.0, 0, 0
    for block in TraceReader(path):
        if len(block):
            begin = begin if count else int(block.time_ns[0])
            end = int(block.time_ns[-1])
            count += len(block)
            work += 0.0 if estimator is None else float(estimator(block).sum())
    if end <= begin:
        raise UserError("has no two requests at different times, and so no rate", where=path)
    return WholeTrace(path, count, None if estimator is None else work, begin, end - begin)


def _from(
    path: Path, whole: WholeTrace, slower: float, start: float, limit: float
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
