"""PriorityMeister's experiments on a deployed testbed: the ground `local`, and any other with real
nodes; the places of workloads on nodes, and results with the conditions of bounds.

Before a run, none of Hotbed's load runs, the servers' proxies are idle and caches are empty. The
policy's parameters are applied at proxies and network and read back. Then all replayers begin at
one instant. The parameters are always removed after the run.

A bound requires enforcement: token buckets and priorities at every disk *and* every link. The
server must keep up with its charged load, and requests must come at their traces' times. A run
reports each of these, or the reason why its bounds are not proven.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.engine.judge import spoiled
from campaigns.engine.provenance import Facts
from campaigns.grounds.live import LiveTestbed
from campaigns.papers.prioritymeister import replays
from campaigns.papers.prioritymeister.apply import differences_of
from campaigns.papers.prioritymeister.experiment import (
    WINDOW_S,
    Conditions,
    MeasuredRequests,
    PmExperiment,
    PmOutcome,
)
from campaigns.papers.prioritymeister.measure import (
    TAKES_S,
    measured_on_path,
    measured_profile,
    profile_path,
)
from campaigns.papers.prioritymeister.mixes import RAMDISK, PmMachines, labels_of
from campaigns.papers.prioritymeister.plan import EnforcerParameters, parameters_of
from campaigns.papers.prioritymeister.replays import ClientLoad, NfsServer
from campaigns.papers.prioritymeister.topology import Topology, htb_links
from controllers.prioritymeister.estimators import load_profile
from schemas.campaign import Limits
from schemas.cells.prioritymeister import PmCell
from schemas.durable import write_file
from schemas.errors import HotbedError, UserError
from testbed.deploy.enforcement import NfsEnforcement
from testbed.sites.contract import CountedDisksSite, Testbed
from testbed.spec import DiskSpec, GroupSpec, NfsSpec, TestbedSpec
from testbed.stores.nfs.shaping import FRAME, bucket
from testbed.stores.nfs.wire import frame_of

NFS, CLIENT = "nfs", "client"
SCRATCH = "/var/lib/hotbed/scratch"
"""Mount point of a server's disk; an export is a folder in it with the export's name."""
FILE_BYTES = 1 << 29
"""Largest size of a client's file. Seeks within and between files are typical of the disk. A run
reads little of the files, so the server's page cache holds almost nothing of them."""
FILE_SHARE = 0.8
"""Share of a disk for all clients' files."""
ON_RAM = ("C", "I", "J", "K")
"""Workloads of figure 9; here they share one fast disk in addition to one link, the server's."""


@dataclass(frozen=True)
class NfsPlaces:
    """Nodes by role.

    `disk` is the NFS server with the disk that workloads share, `ram` the one with a disk that is
    no bottleneck, if any. Each of the `clients` sends one workload; `servers` has the bytes of a
    client's file on each server. `switch_levels` are the priorities of the switch's ports (0 for
    none), `frame` the bytes of the links' largest frame.
    """

    disk: str
    ram: str | None
    clients: tuple[str, ...]
    servers: Mapping[str, int]
    store: NfsSpec
    switch_levels: int = 0
    frame: int = FRAME

    @property
    def folder(self) -> str:
        """Folder of clients' files on a server."""
        return f"{SCRATCH}{self.store.export}"

    def server(self, testbed: Testbed, name: str) -> NfsServer:
        """Return a server's address and export for clients."""
        address, store = testbed.node(name).address, self.store
        return NfsServer(name, address, store.export, store.port, store.mount_port)


def places_of(spec: TestbedSpec) -> NfsPlaces:
    """Return the places of a testbed; raise UserError if it lacks an NFS server or a client."""
    disks = {name: group.disk for group in _with_role(spec, NFS) for name in group.node_names()}
    clients = tuple(name for group in _with_role(spec, CLIENT) for name in group.node_names())
    if not disks or not clients or not isinstance(spec.store, NfsSpec):
        raise UserError(
            f"has {len(disks)} nodes of role {NFS} and {len(clients)} of role {CLIENT}",
            where=f"testbed {spec.name}",
            allowed="one of each at least",
        )
    speeds = {name: _positioning(disk) for name, disk in disks.items()}
    slow = max(speeds, key=lambda name: speeds[name])
    fast = min(speeds, key=lambda name: speeds[name])
    return NfsPlaces(
        disk=slow,
        ram=fast if speeds[fast] < speeds[slow] else None,
        clients=clients,
        servers={name: _file_bytes(disk, len(clients)) for name, disk in disks.items()},
        store=spec.store,
        switch_levels=spec.priority_levels,
        frame=frame_of(spec.mtu),
    )


def machines_of(spec: TestbedSpec, places: NfsPlaces) -> PmMachines:
    """Return the machines for traces; the disks' profiles are the defaults until measured. Links
    are as fast as the slowest, except the link of the server with a disk that is no bottleneck."""
    used = [*_with_role(spec, NFS), *_with_role(spec, CLIENT)]
    rates = {name: float(group.network) for group in used for name in group.node_names()}
    ram = places.ram
    others = {} if ram is None else {ram: rates.pop(ram)}
    return PmMachines(
        link=min(rates.values()),
        other_links=others,
        server=places.disk,
        clients=places.clients,
        network={} if ram is None else dict.fromkeys(ON_RAM, (ram, RAMDISK)),
        links=htb_links(places.frame),
    )


def server_of(cell: PmCell, places: NfsPlaces) -> str:
    """Return the server of all workloads of a cell. For figure 9 it is the one without a bottleneck
    at its disk, if any, otherwise the one with the shared disk."""
    on_ram = cell.scenario == "network" and set(labels_of(cell)) <= set(ON_RAM)
    return places.ram if on_ram and places.ram is not None else places.disk


_ON_SIM = "run the experiment on the ground sim"


def require_hosts(topology: Topology, testbed: Testbed) -> None:
    """Raise UserError if a testbed lacks a host of an experiment, or a client for each workload."""
    names, where = {node.name for node in testbed.nodes}, f"testbed {testbed.name}"
    missing = next((host for host in topology.hosts if host not in names), None)
    if missing is not None:
        raise UserError(f"the experiment needs a host {missing}", where=where, do=_ON_SIM)
    clients = Counter(workload.client for workload in topology.workloads)
    client, count = clients.most_common(1)[0]
    if count > 1:
        raise UserError(f"{count} workloads would share node {client}", where=where, do=_ON_SIM)


def _with_role(spec: TestbedSpec, role: str) -> list[GroupSpec]:
    return [group for group in spec.groups if role in group.roles]


def _positioning(disk: DiskSpec | None) -> float:
    return 0.0 if disk is None else float(disk.positioning)


def _file_bytes(disk: DiskSpec | None, clients: int) -> int:
    if disk is None:
        return FILE_BYTES
    room = int(FILE_SHARE * (disk.scratch or disk.size) / clients)
    return min(FILE_BYTES, room) >> 20 << 20


LAG_S = 1e-3
"""A replayer with a 99th percentile of lateness above this spoils the run."""
HDR_WIDTH = 1e-3
"""Relative width of HDR histograms of latencies: three digits, rounded up."""


def result_of(report: Mapping[str, Any], experiment: PmExperiment) -> MeasuredRequests:
    """Return a workload's result from the output of `replay run`. There, a request without an
    answer counts with its waiting time; the result counts it separately, as infinitely long."""
    part = report["second_half" if experiment.measured_from_s else "whole"]
    counts = {(low, below): count for low, below, count in part["latency"].get("buckets") or ()}
    for low, below, count in part["unanswered"].get("buckets") or ():
        counts[low, below] -= count
    rows = sorted((low, below - 1, count) for (low, below), count in counts.items() if count)
    low_ns, high_ns, count = np.array(rows, np.int64).reshape(-1, 3).T
    return MeasuredRequests(
        requests=int(part["requests"]),
        misses=None if part["slo_misses"] is None else int(part["slo_misses"]),
        mean_s=float(part["latency"]["mean"]),
        max_s=float(part["latency"]["max"]),
        max_whole_s=float(report["whole"]["latency"]["max"]),
        low_ns=low_ns,
        high_ns=high_ns,
        count=count,
        bytes=int(part["bytes"]),
        series=series_of(report["timeline"], experiment.seconds),
        unfinished=int(part["unanswered"]["count"]),
    )


def series_of(timeline: Mapping[str, Any], seconds: float) -> tuple[tuple[int, int], ...]:
    """Return arrived requests and SLO misses in each window of an experiment (figure 1)."""
    width = float(timeline["bin_s"])
    if width > WINDOW_S:
        raise HotbedError(f"the replayer reports bins of {width:g} s, not of {WINDOW_S:g} s")
    windows = [[0, 0] for _ in range(max(1, -int(-seconds // WINDOW_S)))]
    for place, one in enumerate(timeline["bins"] or ()):
        window = windows[min(int(place * width / WINDOW_S), len(windows) - 1)]
        window[0] += int(one["requests"])
        window[1] += int(one["slo_misses"])
    return tuple((arrived, missed) for arrived, missed in windows)


def late(reports: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why a run's replayers spoil it; None if they kept the traces' times."""
    for workload, report in reports.items():
        lag = float(report["send_lag"]["p99"])
        if lag > LAG_S:
            return (
                f"the replayer of {workload} was late by {1e3 * lag:.2f} ms at the 99th "
                f"percentile, above {1e3 * LAG_S:g} ms"
            )
    return None


def numbers_of(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the replayers' numbers for a run's summary, by name and workload."""
    found: dict[str, float] = {}
    for workload, report in reports.items():
        found[f"send_lag_p99_s.{workload}"] = float(report["send_lag"]["p99"])
        found[f"send_lag_max_s.{workload}"] = float(report["send_lag"]["max"])
        found[f"max_outstanding.{workload}"] = float(report["max_outstanding"])
        found[f"max_backlog.{workload}"] = float(report["max_backlog"])
        found[f"started.{workload}"] = float(report["started"])
    started = [float(report["started"]) for report in reports.values()] or [0.0]
    return found | {"start_spread_s": max(started) - min(started)}


def conditions_of(
    experiment: PmExperiment,
    applied: EnforcerParameters,
    statuses: Mapping[str, Mapping[str, Any]],
    reports: Mapping[str, Mapping[str, Any]],
    *,
    switch_levels: int,
    frame: int = FRAME,
) -> dict[str, Conditions]:
    """Return the kept conditions by workload; empty without an enforced plan.

    `applied` are the parameters of proxies and hosts, read back from them; `statuses` are of each
    server's proxy at the end of the run (GET /status); `reports` are the replayers' output;
    `switch_levels` are the priorities of the switch's ports, and `frame` the bytes of the links'
    largest frame.
    """
    if experiment.plan is None:
        return {}
    network = network_differs(applied, switch_levels, frame)
    found = {}
    for workload in experiment.topology.workloads:
        name, report = workload.name, reports[workload.name]
        profile = load_profile(experiment.base / experiment.topology.device_of(workload).profile)
        service = statuses[workload.server or ""].get("service")
        behind = None if service is None else float(service["lag_seconds"])
        allowed = profile.overhead.latency
        unanswered = int(report["whole"]["unanswered"]["count"])
        lost = f"{unanswered} requests were not answered by the end of the run"
        found[name] = Conditions(
            why_not=network or _server_differs(behind, allowed) or (lost if unanswered else None),
            late_s=float(report["send_lag"]["max"]),
            behind_s=behind,
            allowed_s=allowed,
            network=network is None,
            unanswered=unanswered,
            width=HDR_WIDTH,
        )
    return found


def network_differs(
    applied: EnforcerParameters, switch_levels: int, frame: int = FRAME
) -> str | None:
    """Return why the network stage is not enforced as planned; None if it is."""
    if applied.network.mode != "priority":
        return "the network is not enforced"
    used = max(
        (flow.level for host in applied.network.hosts.values() for flow in host.flows), default=0
    )
    if used > switch_levels:
        return f"the plan has {used} network levels, and the switch {switch_levels}"
    for name, host in applied.network.hosts.items():
        for flow in host.flows:
            # A bucket as fast as the link is left out, because the link itself limits the flow.
            planned = [pair for pair in flow.pairs if pair[0] < host.rate]
            if any(bucket(*pair, frame) != pair for pair in planned):
                return f"host {name} keeps token buckets of {flow.workload} that let more through"
    return None


def _server_differs(behind: float | None, allowed: float) -> str | None:
    if behind is None:
        return "the proxy does not report the delay of its server"
    if behind <= allowed:
        return None
    says = (
        f"its profile allows {1e3 * allowed:.3g} ms"
        if allowed
        else "its profile has no overhead.latency, as if none ever was"
    )
    return f"the server was behind what it was charged by up to {1e3 * behind:.3g} ms, and {says}"


LEAST_WAIT_S = 5.0
MOST_WAIT_S = 30.0
"""Bounds of the waiting time for replies after the last arrival: three times the loosest SLO."""
IDLE_S = 60.0
"""Seconds within which a server must answer the rest of an earlier run."""


@dataclass(frozen=True)
class NfsTestbed:
    """A testbed of NFS servers, with its roles and the enforcement of policies."""

    live: LiveTestbed
    places: NfsPlaces
    enforcement: NfsEnforcement

    @classmethod
    def of(cls, live: LiveTestbed) -> NfsTestbed:
        """Return the NFS servers of a testbed; raise UserError if a server or a client is
        missing."""
        return cls(live, places_of(live.spec), NfsEnforcement(live.testbed))


class LocalGround:
    """A `campaigns.papers.prioritymeister.cell.PmGround` on a testbed, for traces made for
    `machines`; beyond `limits` a run is spoiled."""

    name = "local"

    def __init__(self, nfs: NfsTestbed, machines: PmMachines, limits: Limits) -> None:
        self.machines, self.nfs = machines, nfs
        self._live, self._places, self._enforcement = nfs.live, nfs.places, nfs.enforcement
        self._limits = limits

    def carry_out(self, experiment: PmExperiment) -> PmOutcome:
        """See `PmGround.carry_out`; after a failure the testbed is left as it was found."""
        require_hosts(experiment.topology, self._live.testbed)
        loads = self._loads(experiment)
        self._clean()
        replays.check_clocks(loads, self._live.shell_to)
        clients = (self._live.testbed.node(load.client.name) for load in loads)
        meter = self._live.meter(*clients, core_speed=True)
        try:
            replays.lay_out(loads, self._live.shell_to)
            with self._enforced(experiment) as applied:
                before = self._work(experiment)
                with meter.measured():
                    reports = replays.replay(
                        self._live.agent,
                        loads,
                        seconds=experiment.seconds,
                        wait_s=wait_s(experiment),
                    )
                work = {key: value - before[key] for key, value in self._work(experiment).items()}
                statuses, seen = self._seen(experiment)
                logs = applied | seen
        finally:
            replays.clear(loads, self._live.shell_to)
        for workload, report in reports.items():
            logs[f"replay-{workload}.json"] = json.dumps(report) + "\n"
        conditions = conditions_of(
            experiment,
            parameters_on(experiment, self._live.testbed),
            statuses,
            reports,
            switch_levels=self._places.switch_levels,
            frame=self._places.frame,
        )
        if conditions:
            reasons = {name: one.why_not for name, one in conditions.items()}
            logs["bounds.json"] = json.dumps(reasons, indent=1) + "\n"
        return PmOutcome(
            results={
                workload: result_of(report, experiment) for workload, report in reports.items()
            },
            spoiled=late(reports) or spoiled(meter.load, self._limits),
            extra={**numbers_of(reports), **meter.load.numbers(), **work},
            logs=logs,
            conditions=conditions,
            settings=meter.load.settings,
        )

    def _loads(self, experiment: PmExperiment) -> list[ClientLoad]:
        return [
            ClientLoad(
                workload=workload.name,
                client=self._live.testbed.node(workload.client),
                server=self._places.server(self._live.testbed, workload.server or ""),
                trace=experiment.replays[workload.name].file.read_bytes(),
                slo_s=workload.slo.latency,
                closed=experiment.replays[workload.name].closed,
                seed=experiment.seed,
            )
            for workload in experiment.topology.workloads
        ]

    def _clean(self) -> None:
        """Remove everything of an earlier run, and raise if other load runs."""
        self._live.quiet()
        self._enforcement.remove()
        for server in self._places.servers:
            self._until_idle(server)
        self._enforcement.caches()

    def _until_idle(self, server: str) -> None:
        end = time.monotonic() + IDLE_S
        while True:
            status = self._enforcement.status(server)
            if not status["queued"] and not status["outstanding"]:
                return
            if time.monotonic() > end:
                raise HotbedError(
                    f"the NFS server on node {server} still has {status['outstanding']} requests "
                    f"of an earlier run after {IDLE_S:g} s"
                )
            time.sleep(0.25)

    @contextmanager
    def _enforced(self, experiment: PmExperiment) -> Iterator[dict[str, str]]:
        """Apply the policy's parameters around the block; yield their logs."""
        wanted = parameters_on(experiment, self._live.testbed)
        logs = {"parameters.json": wanted.model_dump_json(indent=1) + "\n"}
        try:
            for queue in wanted.storage:
                server, device = queue.split(":", 1)
                profile = experiment.topology.hosts[server].devices[device].profile
                text = (experiment.base / profile).read_text()
                self._enforcement.put_profile(server, json.loads(text))
                logs[f"profile-{server}.json"] = text
            given = wanted.model_dump(mode="json")
            self._enforcement.apply(given)
            for node, problems in differences_of(self._enforcement, given).items():
                raise HotbedError(f"node {node} differs from the run's parameters: {problems[0]}")
            yield logs
        finally:
            self._enforcement.remove()

    def _seen(self, experiment: PmExperiment) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the proxies' counts by server and as logs, before parameters are removed."""
        statuses, found = {}, {}
        for server in _servers(experiment):
            statuses[server] = dict(self._enforcement.status(server))
            found[f"proxy-{server}.json"] = json.dumps(statuses[server], indent=1) + "\n"
            found[f"proxy-{server}.prom"] = self._enforcement.metrics(server)
        return statuses, found

    def _work(self, experiment: PmExperiment) -> dict[str, float]:
        """Return each server's charged seconds so far, and the seconds that its disk really took if
        the site can report them. The bound is about charged seconds."""
        found: dict[str, float] = {}
        site = self._live.site
        for server in _servers(experiment):
            status = self._enforcement.status(server)
            charged = [float(one["work_seconds"]) for one in status["workloads"]]
            found[f"charged_s.{server}"] = sum(charged)
            if isinstance(site, CountedDisksSite):
                stats = site.disks_stats(self._live.name, server)[0]
                found[f"disk_busy_s.{server}"] = float(str(stats["busy_s"]))
                found[f"disk_requests.{server}"] = float(str(stats["requests"]))
        return found


def _servers(experiment: PmExperiment) -> list[str]:
    return sorted({workload.server or "" for workload in experiment.topology.workloads})


def parameters_on(experiment: PmExperiment, testbed: Testbed) -> EnforcerParameters:
    """Return the parameters of proxies and network for an experiment on a testbed's nodes."""
    addresses = {node.name: [node.address] for node in testbed.nodes}
    return parameters_of(experiment.topology, experiment.plan, experiment.enforcement, addresses)


def wait_s(experiment: PmExperiment) -> float:
    """Return the seconds of waiting for replies after the last arrival."""
    slos = [workload.slo.latency or 0.0 for workload in experiment.topology.workloads]
    return min(max(3 * max(slos, default=0.0), LEAST_WAIT_S), MOST_WAIT_S)


def laid_out(
    nfs: NfsTestbed, say: Callable[[str], None], servers: Collection[str] | None = None
) -> PmMachines:
    """Return the machines that traces are made for. Files are made and disks measured once in a
    testbed's life, on the servers that get requests (None: all); `say` is called before a long
    step."""
    places, live = nfs.places, nfs.live
    made = machines_of(live.spec, places)
    for server, size in places.servers.items():
        if servers is not None and server not in servers:
            continue
        address, clients = places.server(live.testbed, server), places.clients
        say(f"laying out {len(clients)} files of {size >> 20} MiB on node {server}")
        with live.unshaped():
            replays.prepare(live.agent, [(address, client, size) for client in clients])
        files = [f"{places.folder}/{replays.file_of(client)}" for client in clients]
        profile = measured_profile(
            live.testbed, live.shell_to(server), files, size, say, mtu=live.spec.mtu
        )
        _complete(profile, nfs, address, size=size, link=made.link_of(server), say=say)
        if server == places.disk:
            made = replace(made, disk=profile)
        if server == places.ram:
            made = replace(made, ramdisk=profile)
    return made


def _complete(
    path: Path,
    nfs: NfsTestbed,
    server: NfsServer,
    *,
    size: int,
    link: float,
    say: Callable[[str], None],
) -> None:
    """Measure the times of requests on the live path, which fio cannot measure."""
    profile = json.loads(path.read_text())
    if "overhead" in profile:
        return
    say(
        f"measuring the time of requests through the proxy of node {server.name} for about "
        f"{TAKES_S / 60:.0f} minutes"
    )
    complete = measured_on_path(
        profile,
        server,
        size,
        clients=[nfs.live.testbed.node(name) for name in nfs.places.clients],
        link=link,
        agent=nfs.live.agent,
        enforcement=nfs.enforcement,
        shell_to=nfs.live.shell_to,
    )
    write_file(path, json.dumps(complete, indent=1) + "\n")


def with_profiles(facts: Facts, nfs: NfsTestbed) -> Facts:
    """Return a testbed's facts with its disks' measured profiles, for its runs."""
    paths = {node: profile_path(nfs.live.testbed, node) for node in nfs.places.servers}
    profiles = {node: json.loads(path.read_text()) for node, path in paths.items() if path.exists()}
    calibration = {**facts.calibration, "profiles": profiles}
    return replace(facts, osd_count=None, calibration=calibration)
