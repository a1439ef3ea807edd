"""A deployed testbed in a cell: quieting, recording, control, and measurement of other load.

The live cells of every paper run these steps, so this file is part of their runs' identity.
`campaigns.grounds.testbed` opens testbeds and is not.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

from campaigns.engine.judge import MachineLoad, stalled
from campaigns.grounds.cores import CoreShares, factor_of, lacking, scales, sentence
from controllers import remote
from schemas.durable import write_file
from schemas.errors import HotbedError, RemoteError
from testbed.agent.contract import Agent, UnitResult
from testbed.agent.recorder import INTERVAL_S
from testbed.agent.speed import REFERENCE_UNITS_S
from testbed.deploy.roles import SPEC_FILE
from testbed.reach import shell_to
from testbed.sites.contract import (
    EnforcedSetting,
    Node,
    SettingsSite,
    ShapingSite,
    Site,
    Testbed,
    UsageSite,
)
from testbed.spec import TestbedSpec
from testbed.ssh import Shell

CLEAN_S = 240.0
CACHES_S = 120.0
FETCH_S = 120.0
ENDS_S = 60.0
"""Seconds in which a unit that is stopped at its limit must end."""
SPEEDS = 5
"""Measurements of a core's speed at the start of a block; the median counts."""
_STEAL = 7  # position in a cpu line of /proc/stat; user and nice include guest time
_COUNTED = 8

ShellTo = Callable[[str], Shell]
"""Function that returns a shell on the node of a name."""
V = TypeVar("V")
AdminService = Literal["controller", "disturbance", "recorder"]
"""Service that a cell runs on the admin node."""


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make independent calls in parallel, because each needs an ssh session and an interpreter;
    return their results. HotbedError: the first failed call. All calls have ended at the return,
    also after an error or Ctrl-C, so that the caller knows what they have started."""
    pool = ThreadPoolExecutor(len(calls) or 1)
    try:
        futures = [pool.submit(call) for call in calls]
        wait(futures)
    finally:
        pool.shutdown()
    return [future.result() for future in futures]


def run_units(
    agent: Agent,
    unit: str,
    commands: Mapping[str, Sequence[str]],
    *,
    max_s: float,
    judged: Callable[[str, UnitResult], V],
) -> dict[str, V]:
    """Run a command on each node at the same time, each at most `max_s` seconds, and return by node
    what `judged` makes of its result. As soon as one raises, or after Ctrl-C, all are stopped."""

    def run(node: str) -> V:
        agent.unit_start(node, unit, commands[node], max_s=max_s)
        return judged(node, agent.unit_wait(node, unit, timeout_s=max_s + ENDS_S))

    with ThreadPoolExecutor(max(1, len(commands))) as pool:
        futures = {node: pool.submit(run, node) for node in commands}
        try:
            wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in futures.values():
                if future.done():
                    future.result()
        except BaseException:
            for node in commands:
                with suppress(HotbedError):  # the error that is raised matters
                    agent.unit_stop(node, unit)
            raise
    return {node: future.result() for node, future in futures.items()}


@dataclass(frozen=True)
class LiveTestbed:
    """A testbed that is up and deployed, with its spec, its agent and shells of its nodes, and the
    CPU shares in force."""

    site: Site
    testbed: Testbed
    spec: TestbedSpec
    agent: Agent
    shell_to: ShellTo
    cores: CoreShares = field(default_factory=CoreShares)

    @property
    def name(self) -> str:
        """Name of the testbed."""
        return self.testbed.name

    def names(self, role: str) -> tuple[str, ...]:
        """Return the names of the nodes with a role."""
        return tuple(node.name for node in self.testbed.with_role(role))

    def quiet(self, *services: AdminService) -> None:
        """Stop everything that an earlier cell left running, with these services of the admin node,
        and refuse other load. HotbedError: other load runs, which would affect the measurements."""
        at_once(partial(self.stop_all, *services), self.refuse_strays)

    def stop_all(self, *services: AdminService) -> None:
        """Stop `services` on the admin node, then every unit of load on any node."""
        agent = self.agent
        stops: dict[AdminService, Callable[[], object]] = {
            "controller": lambda: remote.stop(agent),
            "disturbance": lambda: agent.call("disturb-stop", {}, timeout_s=CACHES_S),
            "recorder": lambda: agent.call("recorder-stop", {}),
        }
        if services:
            at_once(*(stops[service] for service in services))
        for node, units in agent.units().items():
            for unit in units:
                agent.unit_stop(node, unit)

    def refuse_strays(self) -> None:
        """Raise if load that is not Hotbed's runs. HotbedError: the node and the process."""
        strays = self.agent.strays()
        for node, processes in strays.items():
            if processes:
                pid = processes[0].split()[0]
                more = sum(len(found) for found in strays.values()) - 1
                others = f" ({more} more)" if more > 0 else ""
                raise HotbedError(
                    f"node {node} runs load that is not Hotbed's: process {processes[0]!r}{others};"
                    f" end it first: hotbed exec {node} -- kill {pid}"
                )

    def put_right(self) -> list[str]:
        """Reset a Ceph's affinities, weights, upmaps and balancer; return the differences as text.

        Returns when every placement group is active+clean and all deletions have finished.
        """
        payload = {"caches": False, "timeout_s": CLEAN_S}
        answer = self.agent.call("clean", payload, timeout_s=CLEAN_S + 60)
        return [str(words) for words in answer["put_right"]]

    def drop_caches(self) -> None:
        """Empty the nodes' page caches and the OSDs' own caches. HotbedError: an OSD kept its
        cache."""
        answer = self.agent.call("caches", {}, timeout_s=CACHES_S)
        for osd, why in answer["failed"].items():
            raise HotbedError(f"the cache of {osd} could not be emptied: {why}")

    def meter(
        self,
        *clients: Node,
        disks: Mapping[str, Sequence[tuple[float, float]]] | None = None,
        core_speed: bool = False,
    ) -> LoadMeter:
        """Return a meter of other load; see `LoadMeter`. `core_speed`: measure now how fast a core
        of the admin node is, for a cell that processors limit."""
        units_s = self.agent.call("core-speed").get("units_s") if core_speed else None
        return LoadMeter(
            self.site, self.testbed, *clients, disks=disks, units_s=units_s, cores=self.cores
        )

    def core_units_s(self) -> float:
        """Measure the speed of a core of the admin node, in units of fixed work a second."""
        return median(float(self.agent.call("core-speed")["units_s"]) for _ in range(SPEEDS))

    def scale_cores(self, units_s: float | None, from_run: str | None = None) -> str:
        """Choose CPU shares of nodes by the speed of a core; return a sentence. A store's groups
        inside nodes follow when the store divides its cores. `units_s`: measured speed; None
        restores the spec's shares. `from_run`: earlier run of the block with this speed."""
        site, spec, cores = self.site, self.spec, self.cores
        assert scales(site, spec)
        cores.factor, cores.record = 1.0, {}
        if units_s is None:
            site.scale_cpus(self.name, 1.0)
            return "CPU shares are the spec's"
        cores.factor, processors = factor_of(units_s), site.processors()
        short = lacking(spec, cores.factor, processors)
        cores.record = {
            "cores.factor": cores.factor,
            "cores.units_s": units_s,
            "cores.reference_units_s": REFERENCE_UNITS_S,
            "cores.from_run": from_run,
            "cores.processors": processors,
            "cores.lacking": short,
        }
        site.scale_cpus(self.name, cores.factor)
        return sentence(units_s, cores.factor, short, processors)

    @contextmanager
    def unshaped(self) -> Iterator[None]:
        """Remove the service times of disks and links inside the block, if the site can."""
        site = self.site
        if not isinstance(site, ShapingSite):
            yield
            return
        site.shape(self.name, False)
        try:
            yield
        finally:
            site.shape(self.name, True)

    @contextmanager
    def controller(
        self,
        name: str,
        *,
        parameters: Mapping[str, object] | None = None,
        seed: int = 0,
        interval_s: float,
        signal: str = "node",
        controllers_dir: Path | None = None,
        journal: Path | None = None,
    ) -> Iterator[None]:
        """Run a controller around the block, with a control interval in real seconds and the signal
        ``node``, ``osd`` or ``op_r_latency``. A failed controller fails the cell. `journal`: file
        to which the journal is copied at the end; None if the caller fetches it. HotbedError: the
        controller does not start, or failed."""
        agent = self.agent
        try:
            remote.start(
                agent,
                name,
                parameters=parameters,
                seed=seed,
                interval_s=interval_s,
                signal=signal,
                controllers_dirs=() if controllers_dir is None else (controllers_dir,),
            )
            yield
        except BaseException:
            remote.stop(agent)
            raise
        ended = remote.stop(agent, name)
        if journal is not None:
            remote.fetch_journal(agent, name, journal)
        if not ended["was_running"] or ended["code"] != 0:
            raise HotbedError(f"the controller {name} failed: {ended['reason']}")


class Recorder:
    """The recorder of a cell, which reads the nodes' counters once a second.

    Attributes:
        stalled: share of the recording that is gaps, see `campaigns.engine.judge.stalled`; None
            before `fetch`.
    """

    def __init__(self, agent: Agent, run_id: str) -> None:
        self._agent = agent
        self._name = f"{run_id}-{secrets.token_hex(3)}"
        self.stalled: float | None = None

    @contextmanager
    def recording(self, most_s: float) -> Iterator[None]:
        """Record inside the block, and at most `most_s` seconds if the engine is lost."""
        try:
            self._agent.call("recorder-start", {"name": self._name, "max_s": most_s})
            yield
        finally:
            self._agent.call("recorder-stop", {})

    def fetch(self, logs: Path) -> list[dict[str, Any]]:
        """Return the samples; move them from the admin node to `recording.jsonl` in `logs`."""
        payload = {"name": self._name, "forget": True}
        answer = self._agent.call("recorder-fetch", payload, timeout_s=FETCH_S)
        samples: list[dict[str, Any]] = answer["samples"]
        lines = "".join(json.dumps(line) + "\n" for line in samples)
        write_file(logs / "recording.jsonl", lines)
        self.stalled = stalled([float(line["wall"]) for line in samples], INTERVAL_S)
        return samples


class LoadMeter:
    """Meter of other load in the block of `measured`: by the site if it can, otherwise from each
    node's /proc/stat. With several clients the busiest counts.

    The nodes' settings are read back at both ends, if the site can.

    Args:
        site, testbed: the testbed.
        clients: nodes with load generators.
        disks: the experiment's disk settings (`SettingsSite.settings`).
        units_s: the measured speed of a core (`testbed.agent.speed`), for the run's calibration.
        cores: the CPU shares in force; by default the spec's.
    """

    def __init__(
        self,
        site: Site,
        testbed: Testbed,
        *clients: Node,
        disks: Mapping[str, Sequence[tuple[float, float]]] | None = None,
        units_s: float | None = None,
        cores: CoreShares | None = None,
    ) -> None:
        self._site = site
        self._testbed = testbed
        self._clients = clients
        self._disks = disks or {}
        self._speed = {} if units_s is None else {"core_units_s": units_s}
        self._cores = cores or CoreShares()
        self.load = MachineLoad()

    def require_settings(self) -> dict[str, Any]:
        """Read the nodes' settings back, by path in a run's calibration. If nodes differ, a path
        has a value by node. HotbedError: a setting differs from the spec."""
        site, testbed = self._site, self._testbed
        if not isinstance(site, SettingsSite):
            return {}
        found = [self._scaled(one) for one in site.settings(testbed.name, self._disks)]
        wrong = [setting for setting in found if setting.differs]
        if wrong:
            more = f" (and {len(wrong) - 1} settings more)" if wrong[1:] else ""
            raise HotbedError(
                f"{wrong[0].sentence()}{more}: `hotbed up {testbed.directory / SPEC_FILE}` "
                "sets it back."
            )
        read: dict[str, dict[str, Any]] = {}
        for one in found:
            read.setdefault(f"{one.where}.{one.name}", {})[one.node] = one.found
        return {
            path: by_node if len(set(by_node.values())) > 1 else next(iter(by_node.values()))
            for path, by_node in read.items()
        }

    def _scaled(self, one: EnforcedSetting) -> EnforcedSetting:
        """Return a setting; if it is a scaled CPU share, with the wanted share, and with a path of
        its own: in the calibration, shares of groups remain the spec's."""
        factor = self._cores.factor
        if one.name != "cpus" or not self._cores.record or isinstance(one.wanted, str):
            return one
        where, unit = one.where.replace("groups", "cores.effective", 1), f"cores (x {factor:.3g})"
        return replace(one, where=where, wanted=one.wanted * factor, unit=unit)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the load while the workload runs in the block. HotbedError: a node's setting
        differs from the spec, before or after the block."""
        self.require_settings()
        with self._counted():
            yield
        settings = {**self.require_settings(), **self._speed, **self._cores.record}
        self.load = replace(self.load, settings=settings)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        site, name = self._site, self._testbed.name
        if isinstance(site, UsageSite):
            before = site.usage_counters(name)
            yield
            usage = site.usage_between(before, site.usage_counters(name))
            shares = [
                usage.node_cores[client.name] / (client.cpus * self._cores.factor)
                for client in self._clients
                if client.cpus and client.name in usage.node_cores
            ]
            busiest = max(shares, default=None)
            self.load = MachineLoad(
                usage.outside_cores, usage.steal, busiest, cores=usage.node_cores
            )
            return
        started = self._stats()
        yield
        ended = self._stats()
        self.load = load_between(started, ended, *(client.name for client in self._clients))

    def _stats(self) -> dict[str, str]:
        """Return /proc/stat of every node, empty for a node without an answer."""
        nodes = self._testbed.nodes

        def read(node: Node) -> str:
            try:
                return shell_to(self._testbed, node).run(["cat", "/proc/stat"]).text
            except RemoteError:
                return ""

        with ThreadPoolExecutor(len(nodes)) as pool:
            texts = pool.map(read, nodes)
            return dict(zip((node.name for node in nodes), texts, strict=True))


def load_between(before: Mapping[str, str], after: Mapping[str, str], *clients: str) -> MachineLoad:
    """Return the load: the largest steal of any node, and the busiest client's CPU share."""
    steals: list[float] = []
    shares: list[float] = []
    for node, text in after.items():
        first, last = ticks(before.get(node, "")), ticks(text)
        if first is None or last is None:
            continue
        delta = [b - a for a, b in zip(first, last, strict=True)]
        total = sum(delta)
        if total <= 0:
            continue
        steals.append(max(0.0, delta[_STEAL] / total))
        if node in clients:
            shares.append(max(0.0, (total - delta[3] - delta[4] - delta[_STEAL]) / total))
    return MachineLoad(None, max(steals, default=None), max(shares, default=None))


def ticks(text: str) -> list[int] | None:
    """Return the ticks of user nice system idle iowait irq softirq steal."""
    fields = text.split("\n", 1)[0].split()
    if len(fields) <= _COUNTED or fields[0] != "cpu":
        return None
    return [int(field) for field in fields[1 : _COUNTED + 1]]
