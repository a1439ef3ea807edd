"""Calibration of the replacement for %iowait: one node loaded alone, with 0 to 100 %.

On the local site /proc/stat covers the whole machine, so a node has no %iowait of its own. The
share of time in which some task of the node waited for I/O (io.pressure) replaces it. Here both are
read in parallel while a single node is loaded. On a machine of two processors with nothing else to
do, /proc/stat shows what the paper's nodes (two processors, section V-A) would show.

Two kinds of reads are offered: libaio, as the paper's fio submits them (its tasks wait only if the
device's queue is full), and psync, blocking reads like those of an OSD's threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from schemas.errors import UserError
from testbed.agent import units
from testbed.agent.contract import Agent
from testbed.agent.probe import cpu_ticks, some_total
from testbed.deploy.inventory import fio_file_bytes
from testbed.sites.contract import Progress, Testbed, silent
from testbed.spec import TestbedSpec
from testbed.ssh import Shell
from workloads.errors import WorkloadError
from workloads.fio import FioLoad, parse_fio

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Engine = Literal["libaio", "psync"]
ENGINES: tuple[Engine, ...] = ("libaio", "psync")
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
HOTSPOT = "hotspot"
THRESHOLDS = {"θ_h": 50.0, "θ_l": 20.0}  # section IV-D
_UNIT = "load-calibrate"
_RAMP_S = 2.0
_GRACE_S = 30.0
_CAPACITY_S = 6.0
_IOWAIT = 4  # place in /proc/stat's line ``cpu``


@dataclass(frozen=True)
class SignalLevel:
    """Result of one load. `offered` is its share of the disk's random-read capacity (None: the
    hotspot, a closed loop), `iops` its rate. Percentages: 0 to 100; `iowait` is the machine's, over
    its `cpus`."""

    engine: Engine
    offered: float | None
    iops: float
    io_pressure: float
    iowait: float
    cpus: int
    seconds: float

    @property
    def name(self) -> str:
        """Name of the load: ``25 %`` or ``hotspot``."""
        return HOTSPOT if self.offered is None else f"{self.offered:.0%}".replace("%", " %")


@dataclass(frozen=True)
class SignalCounters:
    """Counters of the two signals at one moment."""

    at: float  # seconds since the node started; clock changes do not affect it
    pressure_us: int
    ticks: tuple[int, ...]  # /proc/stat's line ``cpu``
    cpus: int


def read_counters(shell: Shell, pressure_file: str) -> SignalCounters:
    """Read both counters of the shell's node in one call."""
    done = shell.run(
        ["sh", "-c", 'cat /proc/uptime "$1"; echo; cat /proc/stat', "read", pressure_file]
    )
    first, _, rest = done.text.partition("\n")
    pressure, _, stat = rest.partition("\n\n")
    total = some_total(pressure)
    if total is None:
        raise WorkloadError(f"node {shell.node}: {pressure_file} holds no pressure counter.")
    ticks, cpus = cpu_ticks(stat)
    return SignalCounters(float(first.split()[0]), total, tuple(ticks), cpus)


def signals(before: SignalCounters, after: SignalCounters) -> tuple[float, float]:
    """Return (io.pressure, %iowait) between two readings, percent.

    Raises:
        WorkloadError: no time passed between them.
    """
    seconds = after.at - before.at
    ticks = [late - early for early, late in zip(before.ticks, after.ticks, strict=True)]
    if seconds <= 0 or sum(ticks) <= 0:
        raise WorkloadError("the two readings are of the same moment.")
    pressure = (after.pressure_us - before.pressure_us) / 1e6 / seconds
    return 100 * min(1.0, pressure), 100 * max(0, ticks[_IOWAIT]) / sum(ticks)


def measure_level(
    shell: Shell,
    pressure_file: str,
    load: FioLoad | None,
    *,
    offered: float | None,
    engine: Engine,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> SignalLevel:
    """Load the node and read both signals over `seconds` once fio runs steadily."""
    if load is not None:
        argv = load.argv(seconds + _RAMP_S + _GRACE_S)
        units.start(shell, _UNIT, argv, max_s=seconds + _RAMP_S + _GRACE_S)
    iops = 0.0
    try:
        sleep(_RAMP_S)
        before = read_counters(shell, pressure_file)
        sleep(seconds)
        after = read_counters(shell, pressure_file)
    finally:
        unit = units.stop(shell, _UNIT) if load is not None else None
    if load is not None:
        if unit is None or unit.exit_code is not None:
            said = unit.stderr.strip().splitlines() if unit else []
            raise WorkloadError(
                f"fio on node {shell.node} ended by itself: {said[-1] if said else 'no message'}"
            )
        iops = parse_fio(unit.stdout).iops
    io_pressure, iowait = signals(before, after)
    return SignalLevel(engine, offered, iops, io_pressure, iowait, after.cpus, after.at - before.at)


def calibrate(
    shell: Shell,
    pressure_file: str,
    file_bytes: int,
    *,
    seconds: float = 7.0,
    shares: Sequence[float] = SHARES,
    engines: Sequence[Engine] = ENGINES,
    progress: Progress = silent,
    sleep: Callable[[float], None] = time.sleep,
) -> list[SignalLevel]:
    """Measure every load of `shares`, and the hotspot, with each engine; about two minutes.

    Shares are of the hotspot's rate (libaio), which is measured first.
    """

    def hotspot(engine: Engine, duration: float) -> SignalLevel:
        return measure_level(
            shell,
            pressure_file,
            FioLoad(file_bytes=file_bytes, ioengine=engine),
            offered=None,
            engine=engine,
            seconds=duration,
            sleep=sleep,
        )

    steps = len(engines) * (len(shares) + 1) + 1
    progress("capacity", 0.0)
    capacity = hotspot("libaio", _CAPACITY_S).iops
    if capacity <= 0:
        raise WorkloadError(f"fio read nothing on node {shell.node}: is its disk alive?")
    levels: list[SignalLevel] = []
    for engine in engines:
        for share in shares:
            progress(f"{engine} {share:.0%}", (len(levels) + 1) / steps)
            wanted = share * capacity
            load = None
            if wanted >= 1:
                load = FioLoad(file_bytes=file_bytes, offered_iops=wanted, ioengine=engine)
            levels.append(
                measure_level(
                    shell,
                    pressure_file,
                    load,
                    offered=share,
                    engine=engine,
                    seconds=seconds,
                    sleep=sleep,
                )
            )
        progress(f"{engine} {HOTSPOT}", (len(levels) + 1) / steps)
        levels.append(hotspot(engine, seconds))
    progress("done", 1.0)
    return levels


def calibrate_node(
    agent: Agent,
    testbed: Testbed,
    spec: TestbedSpec,
    shell: Shell,
    progress: Progress = silent,
) -> list[SignalLevel]:
    """Calibrate on one node of a deployed testbed; the other nodes stay idle.

    Args:
        agent: the testbed's admin node.
        testbed: ready and deployed, so that fio and its files are on the node.
        spec: the testbed's spec.
        shell: shell on the node.

    Raises:
        UserError: the node has no disk or no pressure file, or something loads the testbed.
    """
    node = testbed.node(shell.node)
    if "osd" not in node.roles:
        names = ", ".join(other.name for other in testbed.with_role("osd"))
        raise UserError(
            "has no disk of its own", where=f"node {node.name}", do=f"calibrate on one of {names}"
        )
    if node.pressure_file is None:
        raise UserError(
            f"senses {node.signal}, which needs no calibration: only the local site's "
            "io_pressure does",
            where=f"node {node.name}",
        )
    for other, loads in (*agent.units().items(), *agent.strays().items()):
        raise UserError(
            f"is not idle: {loads[0]} runs on node {other}",
            where=f"testbed {testbed.name}",
            do="end it first",
        )
    disk = next(group.disk for group in spec.groups if node.name in group.node_names())
    assert disk is not None  # the spec refuses an osd without one
    return calibrate(shell, node.pressure_file, fio_file_bytes(disk, node.name), progress=progress)


def frame(levels: Sequence[SignalLevel]) -> pd.DataFrame:
    """Return one row per level, columns as the fields of `SignalLevel` and `load`."""
    import pandas as pd

    return pd.DataFrame([asdict(level) | {"load": level.name} for level in levels])


def table(levels: Sequence[SignalLevel]) -> str:
    """Return a Markdown table for docs/queue-disk.md."""
    rows = [
        "| fio's reads | offered load | IOPS | io.pressure some, % | %iowait of the machine |",
        "|---|---|---|---|---|",
    ]
    for level in levels:
        rows.append(
            f"| {level.engine} | {level.name} | {level.iops:.0f} | {level.io_pressure:.1f} "
            f"| {level.iowait:.1f} |"
        )
    return "\n".join(rows) + "\n"


def figure(levels: Sequence[SignalLevel]) -> Figure:
    """Return a figure of both signals over the offered load, one panel per engine."""
    from matplotlib.figure import Figure

    engines = list(dict.fromkeys(level.engine for level in levels))
    picture = Figure(figsize=(5.2 * len(engines), 3.6), layout="constrained")
    axes = picture.subplots(1, len(engines), sharey=True, squeeze=False)[0]
    for axis, engine in zip(axes, engines, strict=True):
        chosen = [level for level in levels if level.engine == engine]
        names = [level.name for level in chosen]
        axis.plot(names, [level.io_pressure for level in chosen], "o-", label="io.pressure (some)")
        axis.plot(names, [level.iowait for level in chosen], "s--", label="%iowait of the machine")
        for name, value in THRESHOLDS.items():
            axis.axhline(value, color="0.6", linewidth=0.8)
            axis.annotate(name, (0, value), xytext=(2, 2), textcoords="offset points", color="0.4")
        axis.set(title=f"random reads, {engine}", xlabel="offered load", ylim=(-3, 105))
    axes[0].set_ylabel("percent")
    axes[0].legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.93))
    return picture


def check_new(folder: Path) -> None:
    """Raise UserError if `folder` holds a calibration: results are not overwritten."""
    if (folder / "signal.csv").exists():
        raise UserError("holds a calibration already", where=folder, do="give another folder")


def write(levels: Sequence[SignalLevel], folder: Path) -> list[Path]:
    """Write signal.csv, signal.md, signal.png and signal.pdf into a new folder; return them.

    Raises:
        UserError: see `check_new`.
    """
    check_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    frame(levels).to_csv(folder / "signal.csv", index=False, float_format="%.4g")
    (folder / "signal.md").write_text(table(levels))
    picture = figure(levels)
    for kind in ("png", "pdf"):
        picture.savefig(folder / f"signal.{kind}", dpi=150)
    return [folder / f"signal.{kind}" for kind in ("csv", "md", "png", "pdf")]
