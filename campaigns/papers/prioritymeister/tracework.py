"""Table 2's columns for any trace, and stand-ins for its workloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from campaigns.papers.prioritymeister.study import measure_trace
from controllers.prioritymeister import profiles
from controllers.prioritymeister.estimators import Costs
from controllers.prioritymeister.profiles import load_profile
from schemas.errors import UserError
from workloads.traces import arrivals, standins
from workloads.traces.reader import Report, TraceReader
from workloads.traces.requests import RequestBlock, save

REFERENCE = Path(profiles.__file__).with_name("disk7200.json")
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
        raise UserError(f"--link {link:g}: a link's rate is above 0.")
    return link / 8


def statistics(reader: TraceReader, profile: Path | None, link: float) -> tuple[Statistics, Report]:
    """Read a trace once, in bounded memory, and return its statistics.

    Raises:
        UserError: the file, the profile or the link is wrong.
    """
    rate = link_rate(link)
    costs = Costs(None) if profile is None else load_profile(profile)
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
        raise UserError(f"{out} exists: choose another name, nothing is overwritten.")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}: make it, or choose another name.")


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise UserError(f"--seed {seed}: write a whole number of 0 or more.")


def _written(blocks: Iterable[RequestBlock], out: Path) -> int:
    """Write a new trace completely or not at all, and return its number of requests."""
    try:
        return save(blocks, out)
    except BaseException as error:
        out.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"{out}: cannot be written ({error.strerror}).") from error
        raise


def convert(reader: TraceReader, out: Path) -> tuple[int, Report]:
    """Write a trace of any format in the replayer's format ``plain``, and return the number of
    requests and the reader's report. Times start at the first request; known offsets are kept;
    `out` is compressed if it ends in ``.gz``. One block of requests is in memory at a time.

    Raises:
        UserError: the trace is wrong, or `out` exists or cannot be written.
    """
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
    """Write requests of one size that arrive by a process; see `workloads.traces.arrivals`.

    Args:
        process: ``poisson``, ``hyperexponential``, ``interrupted`` or ``copy``. A copy reads
            (`read_share` of 0.5 or more) or writes `count` requests in a row, `rate` a second.
        out: a new file.

    Raises:
        UserError: the process is unknown, the file exists or cannot be written, or a number is out
            of range.
    """
    check_new(out)
    _check_seed(seed)
    shares = (read_share, sequential_share)
    if not all(0 <= share <= 1 for share in shares):
        raise UserError(f"--read-share and --sequential-share are 0 to 1, not {shares}.")
    try:
        if process == "copy":
            block = arrivals.file_copy(count * size, size, rate * size, write=read_share < 0.5)
        else:
            times = {
                "poisson": lambda: arrivals.poisson(rate, count, seed),
                "hyperexponential": lambda: arrivals.hyperexponential(rate, c2, count, seed),
                "interrupted": lambda: arrivals.interrupted_poisson(rate, c2, burst_s, count, seed),
            }
            if process not in times:
                raise UserError(f"process {process!r}: known are {', '.join(times)}, copy")
            block = arrivals.requests(
                times[process](),
                size=size,
                read_share=read_share,
                sequential_share=sequential_share,
                seed=seed,
            )
    except UserError as error:
        raise UserError(f"{error}.") from error
    _written([block], out)
    return statistics(TraceReader(out), None, 1e9)[0]


def make_standin(
    label: str, out: Path, profile: Path | None, link: float, *, seconds: float, seed: int
) -> MadeTrace:
    """Write a stand-in for a workload of Table 2.

    Raises:
        UserError: the workload is unknown, the file exists or cannot be written, or the device
            cannot get this load.
    """
    check_new(out)
    _check_seed(seed)
    rate = link_rate(link)
    if not 1 <= seconds <= 1e7:
        raise UserError(f"--seconds {seconds:g}: a trace lasts 1 to 10,000,000 seconds.")
    costs = load_profile(profile or REFERENCE)
    try:
        made = standins.make(
            label,
            lambda block: costs.estimator("storage").work(block),
            lambda block: costs.estimator("network-out").work(block),
            rate,
            seconds=seconds,
            seed=seed,
        )
    except UserError as error:
        raise UserError(f"{error}.") from error
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
