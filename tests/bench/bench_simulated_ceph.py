"""Modelled Ceph at scale: time, memory, and cost of a policy's step.

Half of the nodes are hotspots, and every OSD has 16 operations in flight, reads of 4 MiB.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

from frame import ROOT, Row, not_built, row, show, unmeasured

from controllers.decide import InProcessDecider
from controllers.journal import JournalWriter
from controllers.loop import Loop, LoopPlan
from controllers.registry import create, find
from controllers.saved import Saved
from schemas.errors import StoreError
from testbed.simulated import Benchmark, ModelParameters, SimulatedCeph, SimulatedClock
from testbed.spec import TestbedSpec, load_spec
from testbed.stores.contract import OSDS, PGS, PRESSURE, SetPrimaryAffinity

SPEC = ROOT / "testbed" / "specs" / "dlr.yaml"
IN_FLIGHT = 16  # per OSD
PGS_PER_OSD = 50  # Ceph's rule: a hundred, including replicas
MOST_PGS = 65_536
OBJECTS_PER_OSD = 112  # of 4 MiB: with two replicas a quarter of the store
SENSES = frozenset({PRESSURE, OSDS, PGS})
CHANGED = 10  # OSDs whose affinity a step changes
BETWEEN_S = 5.0  # virtual seconds, enough for a step's placement groups to peer


def spec_of(osds: int) -> TestbedSpec:
    """Return the spec with `osds` nodes like the eight-node testbed's."""
    spec = load_spec(SPEC)
    assert spec.store is not None
    pool = spec.store.pools[0].model_copy(update={"pg_num": min(MOST_PGS, _pgs(osds))})
    groups = tuple(
        group.model_copy(update={"count": osds}) if "osd" in group.roles else group
        for group in spec.groups
    )
    store = spec.store.model_copy(update={"pools": (pool,)})
    return spec.model_copy(update={"groups": groups, "store": store})


def _pgs(osds: int) -> int:
    """Return the nearest power of two."""
    return 1 << round(math.log2(PGS_PER_OSD * osds))


def opened(osds: int, *, loaded: bool) -> SimulatedCeph:
    """Open a store with objects; if `loaded`, with hotspots on half of its nodes."""
    model = ModelParameters(clients=osds)  # 16 operations per client stay below its limit of bytes
    ceph = SimulatedCeph(spec_of(osds), seed=1, parameters=model)
    ceph.prefill(OBJECTS_PER_OSD * osds, 4 * 2**20)
    if loaded:
        ceph.start_disturbance([(0.0, dict.fromkeys(ceph.nodes[: osds // 2]))])
    return ceph


def processor_s(pid: int) -> float:
    """Return the processor time used by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def running_s(pid: int) -> float:
    """Return the run time of a process's threads, precise enough for a step."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def peak_gib(pid: int) -> float:
    """Return the peak resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    raise StoreError(f"process {pid} reports no memory.")


def machine() -> str:
    """Return the other load of the machine."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} cores, load average before {load}"


def speed(osds: int = 1000, seconds: float = 180.0) -> Row:
    """Measure wall seconds for a benchmark of this many virtual seconds."""
    about = machine()
    began = time.perf_counter()
    with opened(osds, loaded=True) as ceph:
        built = time.perf_counter() - began
        ceph.start_benchmark(Benchmark("rand", concurrency=IN_FLIGHT, duration_s=seconds))
        result = ceph.run_benchmark(grace_s=60.0)
        took = time.perf_counter() - began
        events = ceph.statistics()["events"]
        cpu, memory = processor_s(ceph.simulator_pid), peak_gib(ceph.simulator_pid)
    note = (
        f"wall time, {built:.1f} s of it to build; {cpu:.1f} s of processor time, "
        f"{events / 1e6:.1f} million events, {result.operations} reads, {memory:.2f} GiB; {about}"
    )
    name = f"modelled Ceph, {osds} OSDs, {IN_FLIGHT * osds} in flight, {seconds:g} virtual seconds"
    return row(name, took, "s", 60.0, note=note)


def memory(osds: int = 10_000, seconds: float = 10.0) -> Row:
    """Measure the simulator's peak memory, including one report of the whole placement map."""
    about = machine()
    with opened(osds, loaded=True) as ceph:
        ceph.start_benchmark(Benchmark("rand", concurrency=IN_FLIGHT, duration_s=seconds))
        ceph.advance(seconds / 2)
        pgs = len(ceph.sense(SENSES).pgs)
        result = ceph.run_benchmark(grace_s=60.0)
        peak = peak_gib(ceph.simulator_pid)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    note = (
        f"peak resident, after {seconds:g} virtual seconds, {result.operations} reads and a map of "
        f"{pgs} placement groups; Python in addition {own:.2f} GiB; {about}"
    )
    name = f"modelled Ceph, {osds} OSDs, {IN_FLIGHT * osds} in flight, memory"
    return row(name, peak, "GiB", 3.0, note=note)


def step(osds: int = 1000, steps: int = 50) -> Row:
    """Measure sense and act of a policy's step on an idle store, without simulated load."""
    about = machine()
    senses, acts, works = [], [], []
    with opened(osds, loaded=False) as ceph:
        pid = ceph.simulator_pid
        for number in range(steps + 1):
            worked = time.process_time() + running_s(pid)
            began = time.perf_counter()
            seen = ceph.sense(SENSES)
            sensed = time.perf_counter()
            changed = [(number * CHANGED + i) % osds for i in range(min(CHANGED, osds))]
            value = 0.5 if seen.osds[changed[0]].primary_affinity == 1 else 1.0
            effects = ceph.act([SetPrimaryAffinity(osd, value) for osd in changed])
            ended = time.perf_counter()
            works.append(1e3 * (time.process_time() + running_s(pid) - worked))
            if not all(effect.ok for effect in effects):
                raise StoreError(f"a step failed: {effects}")
            senses.append(1e3 * (sensed - began))
            acts.append(1e3 * (ended - sensed))
            ceph.advance(BETWEEN_S)
    both = [a + b for a, b in zip(senses[1:], acts[1:], strict=True)]
    sense, act, work = (statistics.median(values[1:]) for values in (senses, acts, works))
    note = (
        f"median (sense {sense:.2f}, act {act:.2f}); largest {max(both):.1f} ms; processor time of "
        f"both programs {work:.2f} ms in the median, {max(works[1:]):.1f} ms at most; first step, "
        f"which reports the whole map, {senses[0] + acts[0]:.0f} ms; sense with {len(seen.pgs)} "
        f"placement groups, {len(changed)} affinities changed, deciding left out; {about}"
    )
    name = f"modelled Ceph, {osds} OSDs, a policy's step over the bridge"
    return row(name, statistics.median(both), "ms", 5.0, n=steps, note=note)


class Stopwatch(SimulatedClock):
    """Stopwatch for steps, excluding the simulation between them. `works` holds each step's
    milliseconds of processor time, `walls` of wall clock time."""

    def __init__(self, ceph: SimulatedCeph) -> None:
        super().__init__(ceph)
        self._pid = ceph.simulator_pid
        self._began: tuple[float, float] | None = None
        self.works: list[float] = []
        self.walls: list[float] = []

    def wait(self, seconds: float) -> bool:
        if self._began is not None:
            worked, began = self._now()
            self.works.append(1e3 * (worked - self._began[0]))
            self.walls.append(1e3 * (began - self._began[1]))
        stop = super().wait(seconds)
        self._began = self._now()
        return stop

    def _now(self) -> tuple[float, float]:
        return time.process_time() + running_s(self._pid), time.perf_counter()


def loop(osds: int = 1000, steps: int = 50) -> Row:
    """Measure everything that a step of DLR does in the control loop, including its journal."""
    about = machine()
    policy = create(find("dlr"), {}, 1)
    plan = LoopPlan(
        "dlr", policy.needs, policy.parameters(), 1, BETWEEN_S, "node", "", steps=steps + 1
    )
    with opened(osds, loaded=True) as ceph, tempfile.TemporaryDirectory() as folder:
        clock = Stopwatch(ceph)
        with JournalWriter(Path(folder) / "journal.jsonl", sync=False) as journal:
            outcome = Loop(
                plan,
                decider=InProcessDecider(policy),
                store=ceph,
                journal=journal,
                saved=Saved(Path(folder) / "saved.json"),
                clock=clock,
            ).run()
    if outcome.code:
        raise StoreError(f"the loop failed: {outcome.reason}")
    # The first step encodes the whole map, and the end follows the last step.
    walls, works = clock.walls[1:steps], clock.works[1:steps]
    note = (
        f"median, {min(walls):.1f} to {max(walls):.1f} ms; processor time of both programs "
        f"{statistics.median(works):.2f} ms; first step, which encodes the whole map, "
        f"{clock.walls[0]:.0f} ms; sensed, decided, acted and journalled, half of the nodes hot; "
        f"{about}"
    )
    name = f"modelled Ceph, {osds} OSDs, a step of DLR with all that the loop does"
    return row(name, statistics.median(walls), "ms", 5.0, n=len(walls), note=note)


def main() -> None:
    """Print the rows as JSON."""
    if why := not_built("hotbedsim"):
        show([unmeasured("modelled Ceph", why, "s")])
        return
    show([step(), loop(), speed(), memory()])


if __name__ == "__main__":
    main()
