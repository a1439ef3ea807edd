"""Ursa compared with `osdmaptool --upmap`, Ceph's own balancer: 1024 OSDs and 32,768 PGs.

Ceph's tool levels the numbers of placement groups. Ursa gets the same task: a replica weighs 1, and
an OSD's capacity is its current number, brought within the same deviation of the mean. Both plans,
and an Ursa plan with known PG loads, are compared by the load of the heaviest OSD.

Both plans are applied to the PG table printed by `osdmaptool --test-map-pgs-dump` and checked
there. For the tool's own plan, `--save` checks that the table is Ceph's result of the commands;
osdmaptool cannot read other commands into a map.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from frame import Row, row
from numpy.typing import NDArray

from controllers.ursa.check import check
from controllers.ursa.instance import Instance, MigrationPlan, Racks, Timer
from controllers.ursa.plan import plan
from controllers.ursa.run import warm_up
from testbed.sites.local import image
from testbed.sites.local.names import LocalNames

OSDS, PG_BITS = 1024, 5
DEVIATION = 1
REPEAT = 5
LOAD_DEVIATION = 0.1
"""Largest allowed excess of an OSD's load over the mean, as a part of the mean."""
TOOL_S = 300.0
FASTER = 100.0
FLAT = ("--osd_crush_chooseleaf_type=0",)  # one host holds all: replicas on different OSDs

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Levelled:
    """Plan by either tool: processor seconds (unaffected by other load), the PG table after the
    plan, and pairs of OSDs in its commands."""

    seconds: float
    table: Ints
    moves: int


def rows(folder: Path) -> list[Row]:
    """Return the bench's rows; one without a value if osdmaptool is not installed."""
    name = f"ursa osdmaptool {OSDS} OSDs {OSDS << PG_BITS} PGs"
    if not command():
        note = "osdmaptool is neither installed (Debian: ceph-base) nor in a root image of hotbed's"
        return [row(f"{name}, times faster", None, "x", FASTER, note=note, at_least=True)]
    try:
        table = created(folder / "osdmap")
        start = _children_s()
        theirs = by_tool(folder / "osdmap", table)
    except subprocess.TimeoutExpired:
        return _unended(name, table, _children_s() - start)
    except (subprocess.SubprocessError, ValueError) as error:
        note = f"osdmaptool failed: {' '.join(str(error).split())[:200]}"
        return [row(f"{name}, times faster", None, "x", FASTER, note=note, at_least=True)]
    most = max(1, deviation(theirs.table))
    ours = by_count(table, most)
    loads = pareto(len(table))
    by_load = loaded(table, loads)
    weights = {
        "before": heaviest(table, loads),
        "osdmaptool": heaviest(theirs.table, loads),
        "ours by number": heaviest(ours.table, loads),
    }
    others = ", ".join(f"{what} {value:.3f}" for what, value in weights.items())
    return [
        row(
            f"{name}, times faster",
            theirs.seconds / ours.seconds,
            "x",
            FASTER,
            note=f"{theirs.seconds:.2f} s of processor time and {theirs.moves} moves against "
            f"{ours.seconds:.4f} s and {ours.moves}",
            at_least=True,
        ),
        row(
            f"{name}, deviation of the number of PGs",
            deviation(ours.table),
            "PGs",
            float(most),
            note=f"osdmaptool {deviation(theirs.table)}, before {deviation(table)}",
        ),
        row(
            f"{name}, load of the heaviest OSD over the mean",
            heaviest(by_load.table, loads),
            "x",
            1 + LOAD_DEVIATION,
            note=f"planned by load in {by_load.seconds:.4f} s, {by_load.moves} moves; {others}",
        ),
    ]


def _unended(name: str, table: Ints, seconds: float) -> list[Row]:
    """Return the row of an unfinished osdmaptool: its used time is a lower bound."""
    ours = by_count(table, DEVIATION)
    note = (
        f"osdmaptool had not ended after {seconds:.0f} s of processor time; ours took "
        f"{ours.seconds:.4f} s and {ours.moves} moves for a deviation of {deviation(ours.table)}"
    )
    ratio = seconds / ours.seconds
    return [row(f"{name}, times faster", ratio, "x", FASTER, note=note, at_least=True)]


def created(path: Path) -> Ints:
    """Return [PGs, 3] of a new map: the OSDs of every PG, the primary first."""
    _tool(str(path), "--createsimple", str(OSDS), "--pg-bits", str(PG_BITS), "--with-default-pool")
    return dumped(path)


def dumped(path: Path) -> Ints:
    """Return [PGs, 3], as osdmaptool maps them."""
    return parsed(_tool(str(path), "--mark-up-in", "--test-map-pgs-dump"))


def parsed(output: str) -> Ints:
    """Parse the table of `--test-map-pgs-dump`, by the PG's number in its pool."""
    found = re.findall(r"^\d+\.([0-9a-f]+)\s+\[([\d,]+)\]", output, re.MULTILINE)
    table = {int(pg, 16): [int(osd) for osd in osds.split(",")] for pg, osds in found}
    replicas = [table[pg] for pg in sorted(table)]
    if not replicas or {len(osds) for osds in replicas} != {3}:
        raise ValueError("its dump has no PG, or PGs that have not three replicas")
    return np.array(replicas, dtype=np.int64)


def by_tool(path: Path, table: Ints) -> Levelled:
    """Return the plan of `osdmaptool --upmap`; its saved map must equal the table after it."""
    commands = path.with_suffix(".upmap")
    start = _children_s()
    _tool(
        str(path),
        "--mark-up-in",
        "--upmap",
        str(commands),
        "--upmap-max",
        str(100 * len(table)),
        "--upmap-deviation",
        str(DEVIATION),
        "--save",
    )
    seconds = _children_s() - start
    after, moves = applied(table, commands.read_text())
    if not (np.sort(after, axis=1) == np.sort(dumped(path), axis=1)).all():
        raise ValueError("its saved map is not what its commands make of the table")
    return Levelled(seconds, after, moves)


def applied(table: Ints, commands: str) -> tuple[Ints, int]:
    """Return the table after `ceph osd pg-upmap-items` commands, and their number of pairs."""
    after, moves = table.copy(), 0
    for pg, pairs in re.findall(r"pg-upmap-items \d+\.([0-9a-f]+)((?: \d+)+)", commands):
        osds = [int(osd) for osd in pairs.split()]
        for source, target in zip(osds[::2], osds[1::2], strict=True):
            row = after[int(pg, 16)]
            if source not in row or target in row:
                raise ValueError(f"PG {pg} cannot go from OSD {source} to {target}")
            row[row == source] = target
            moves += 1
    return after, moves


def as_commands(table: Ints, made: MigrationPlan) -> str:
    """Return our moves as `ceph osd pg-upmap-items` commands of pool 1, one per PG."""
    pairs: dict[int, list[int]] = {}
    moves = zip(made.move_partition, made.move_replica, made.move_to, strict=True)
    for pg, replica, target in moves:
        pairs.setdefault(int(pg), []).extend((int(table[pg, replica]), int(target)))
    return "".join(
        f"ceph osd pg-upmap-items 1.{pg:x} {' '.join(map(str, osds))}\n"
        for pg, osds in sorted(pairs.items())
    )


def by_count(table: Ints, most: int) -> Levelled:
    """Return our plan for numbers of PGs at most `most` off the mean."""
    case = unit_instance(table, most)
    return _planned(case, table)


def unit_instance(table: Ints, most: int) -> Instance:
    """Return an instance: replicas weigh 1, moves cost 1, and capacities are `capacities`."""
    ones = np.ones(len(table), dtype=np.float32)
    return Instance(
        replica_node=table.astype(np.int32),
        primary_load=ones,
        secondary_load=ones,
        capacity=capacities(numbers(table), most).astype(np.float32),
        fault_domain=np.arange(OSDS, dtype=np.int32),
        distance=Racks(np.zeros(OSDS, dtype=np.int32), np.ones((1, 1), dtype=np.float32)),
    )


def capacities(number: Ints, most: int) -> Ints:
    """Return [OSDs] whole numbers within `most` of the mean that sum up to all replicas.

    Their sum leaves no slack, so no OSD ends with less. They are as close as possible to the
    current numbers, so that the fewest replicas move.
    """
    mean = number.sum() / len(number)
    low, high = int(np.ceil(mean - most)), int(np.floor(mean + most))
    found = np.clip(number, low, high)
    while missing := int(number.sum() - found.sum()):
        step = 1 if missing > 0 else -1
        able = np.flatnonzero(found < high if step > 0 else found > low)
        # The emptiest OSDs take one more, or the fullest one less.
        able = able[np.argsort(step * number[able], kind="stable")][: abs(missing)]
        found[able] += step
    return found


def loaded(table: Ints, loads: NDArray[np.float32]) -> Levelled:
    """Return our plan for loads up to `LOAD_DEVIATION` above the mean; secondaries carry half."""
    total = float(loads.sum()) * (1 + (table.shape[1] - 1) / 2)
    bare = unit_instance(table, 1)
    case = replace(
        bare,
        primary_load=loads,
        secondary_load=(loads / 2).astype(np.float32),
        capacity=np.full(OSDS, (1 + LOAD_DEVIATION) * total / OSDS, dtype=np.float32),
    )
    return _planned(case, table)


def pareto(count: int) -> NDArray[np.float32]:
    """Return [count] loads of a power law as in `generate`, at most 30 times the least."""
    draws = np.random.Generator(np.random.PCG64(1)).random(count)
    return ((1 - (1 - 30.0**-1.5) * draws) ** (-1 / 1.5)).astype(np.float32)


def numbers(table: Ints) -> Ints:
    """Return [OSDs], the number of replicas of each."""
    return np.bincount(table.ravel(), minlength=OSDS).astype(np.int64)


def deviation(table: Ints) -> int:
    """Return the largest deviation of an OSD's number of PGs from the mean, rounded up."""
    number = numbers(table)
    return int(np.ceil(np.abs(number - number.mean()).max() - 1e-9))


def heaviest(table: Ints, loads: NDArray[np.float32]) -> float:
    """Return the load of the heaviest OSD over the mean."""
    weight = np.repeat(loads[:, None].astype(float), table.shape[1], axis=1)
    weight[:, 1:] /= 2
    load = np.bincount(table.ravel(), weight.ravel(), OSDS)
    return float(load.max() / load.mean())


def _planned(case: Instance, table: Ints) -> Levelled:
    """Return our plan, and the median processor seconds of a few decisions."""
    warm_up("alp-fast")
    runs = [plan(case, "alp-fast", timer=Timer(time.process_time)) for _ in range(REPEAT)]
    return _levelled(case, table, runs[-1], sorted(_total(made) for made in runs)[REPEAT // 2])


def _levelled(case: Instance, table: Ints, made: MigrationPlan, seconds: float) -> Levelled:
    report = check(case, made)
    if report.violations:
        raise ValueError(f"our plan is wrong: {report.violations[0]}")
    primary = np.zeros(len(table), dtype=np.int64)
    for pg, replica in zip(made.swap_partition, made.swap_replica, strict=True):
        primary[pg] = replica
    row, after = np.arange(len(table)), table.copy()
    after[:, 0], after[row, primary] = table[row, primary], table[:, 0]
    moved, moves = applied(after, as_commands(table, made))
    return Levelled(seconds, moved, moves)


def _children_s() -> float:
    """Return the processor seconds of ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _total(made: MigrationPlan) -> float:
    seconds = made.summary["decision_seconds"]
    assert isinstance(seconds, dict)
    return float(seconds["total"])


def command() -> list[str]:
    """Return the command of osdmaptool: the machine's, or the one in the nodes' root image with the
    image's own loader and libraries. Return an empty list without either."""
    if shutil.which("osdmaptool") is not None:
        return ["osdmaptool"]
    root = image.folder(LocalNames.of_environment().cache, image.DEFAULT_SUITE)
    program = root / "usr/bin/osdmaptool"
    loaders = sorted(root.glob("lib*/ld-linux-*.so.*"))
    if not program.is_file() or not loaders:
        return []
    folders = [root / "usr/lib", *sorted(root.glob("usr/lib/*-linux-gnu*"))]
    folders += [each / "ceph" for each in folders]
    path = ":".join(str(each) for each in folders if each.is_dir())
    return [str(loaders[0]), "--library-path", path, str(program)]


def _tool(*words: str) -> str:
    done = subprocess.run(
        [*command(), *FLAT, *words], capture_output=True, text=True, check=False, timeout=TOOL_S
    )
    if done.returncode != 0:
        raise ValueError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return done.stdout
