"""PriorityMeister's experiments on a deployed testbed: the ground `local`, and any other with real
nodes.

Before a run, none of Hotbed's load runs, the servers' proxies are idle and caches are empty. The
policy's parameters are applied at proxies and network and read back. Then all replayers begin at
one instant. The parameters are always removed after the run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from campaigns.engine.judge import spoiled
from campaigns.engine.provenance import Facts
from campaigns.grounds.live import LiveTestbed
from campaigns.papers.prioritymeister.experiment import PmExperiment, PmOutcome
from campaigns.papers.prioritymeister.live import replays
from campaigns.papers.prioritymeister.live.machines import (
    NfsPlaces,
    client_nodes,
    machines_of,
    places_of,
)
from campaigns.papers.prioritymeister.live.profiles import (
    TAKES_S,
    Enforcing,
    measured_on_path,
    measured_profile,
    profile_path,
)
from campaigns.papers.prioritymeister.live.replays import ClientLoad, NfsServer
from campaigns.papers.prioritymeister.live.results import (
    as_text,
    conditions_of,
    late,
    numbers_of,
    result_of,
)
from campaigns.papers.prioritymeister.mixes import PmMachines
from campaigns.papers.prioritymeister.plan import (
    EnforcerParameters,
    device_queues,
    network_parameters,
    storage_parameters,
)
from schemas.campaign import Limits
from schemas.durable import write_file
from schemas.errors import HotbedError
from testbed.deploy.enforcement import NfsEnforcement
from testbed.sites.contract import Testbed

LEAST_WAIT_S = 5.0
MOST_WAIT_S = 30.0
"""Bounds of the waiting time for replies after the last arrival: three times the loosest SLO."""
IDLE_S = 60.0
"""Seconds within which a server must answer the rest of an earlier run."""

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Ignore the message: a `Say` without output."""


@runtime_checkable
class CountedDiskSite(Protocol):
    """A site that reports its disks' counters."""

    def disk_stats(self, name: str, node: str) -> Mapping[str, object]:
        """Return counters of a node's disk."""


@dataclass(frozen=True)
class NfsTestbed:
    """A testbed of NFS servers, with its roles and the enforcement of policies."""

    live: LiveTestbed
    places: NfsPlaces
    enforcement: Enforcing

    @classmethod
    def of(cls, live: LiveTestbed) -> NfsTestbed:
        """Return the NFS servers of a testbed.

        Raises:
            UserError: the testbed lacks an NFS server or a client.
        """
        return cls(live, places_of(live.spec), NfsEnforcement(live.testbed))


class LocalGround:
    """A `campaigns.papers.prioritymeister.cell.Ground`.

    Args:
        nfs: the testbed.
        machines: the machines that traces are made for.
        limits: limits beyond which a run is spoiled.
    """

    name = "local"

    def __init__(self, nfs: NfsTestbed, machines: PmMachines, limits: Limits) -> None:
        self.machines, self.nfs = machines, nfs
        self._live, self._places, self._enforcement = nfs.live, nfs.places, nfs.enforcement
        self._limits = limits

    def carry_out(self, experiment: PmExperiment) -> PmOutcome:
        """See `Ground.carry_out`.

        Raises:
            UserError: the testbed lacks something that the experiment needs.
            HotbedError: a node, a server or a replayer failed; the testbed is left as it was found.
        """
        client_nodes(experiment.topology, self._live.testbed)
        loads = self._loads(experiment)
        self._clean()
        replays.check_clocks(loads, self._live.shell_to)
        meter = self._live.meter(*(self._live.testbed.node(load.client.name) for load in loads))
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
            logs["bounds.json"] = as_text(conditions)
        return PmOutcome(
            results={
                workload: result_of(report, experiment.window_s, experiment.seconds)
                for workload, report in reports.items()
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
            self._enforcement.apply(wanted.model_dump(mode="json"))
            self._check(wanted)
            yield logs
        finally:
            self._enforcement.remove()

    def _check(self, parameters: EnforcerParameters) -> None:
        """Raise if the applied parameters differ from `parameters`."""
        for queue, wanted in parameters.storage.items():
            server = queue.split(":", 1)[0]
            found = self._enforcement.parameters(server)
            names = {one["name"] for one in found["workloads"]}
            if found["policy"] != wanted["policy"] or names != {
                one["name"] for one in wanted["workloads"]
            }:
                raise HotbedError(f"the proxy on node {server} does not have the run's parameters")
        network = parameters.network.model_dump(mode="json")
        for node, differences in self._enforcement.network_check(network).items():
            if differences:
                raise HotbedError(
                    f"the network of node {node} differs from the run's parameters: "
                    f"{differences[0]}"
                )

    def _seen(self, experiment: PmExperiment) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the proxies' counts by server and as logs, before parameters are removed."""
        servers = sorted({workload.server or "" for workload in experiment.topology.workloads})
        statuses, found = {}, {}
        for server in servers:
            statuses[server] = dict(self._enforcement.status(server))
            found[f"proxy-{server}.json"] = json.dumps(statuses[server], indent=1) + "\n"
            found[f"proxy-{server}.prom"] = self._enforcement.metrics(server)
        return statuses, found

    def _work(self, experiment: PmExperiment) -> dict[str, float]:
        """Return each server's charged seconds so far, and the seconds that its disk really took if
        the site can report them. The bound is about charged seconds."""
        found: dict[str, float] = {}
        site = self._live.site
        for server in sorted({workload.server or "" for workload in experiment.topology.workloads}):
            status = self._enforcement.status(server)
            charged = [float(one["work_seconds"]) for one in status["workloads"]]
            found[f"charged_s.{server}"] = sum(charged)
            if isinstance(site, CountedDiskSite):
                stats = site.disk_stats(self._live.name, server)
                found[f"disk_busy_s.{server}"] = float(str(stats["busy_s"]))
                found[f"disk_requests.{server}"] = float(str(stats["requests"]))
        return found


def parameters_on(experiment: PmExperiment, testbed: Testbed) -> EnforcerParameters:
    """Return the parameters of proxies and network for an experiment on a testbed's nodes."""
    enforcement, topology = experiment.enforcement, experiment.topology
    addresses = {node.name: [node.address] for node in testbed.nodes}
    return EnforcerParameters(
        policy=enforcement.policy,
        storage={
            queue: storage_parameters(
                topology,
                experiment.plan,
                queue,
                policy=enforcement.policy,
                mode=enforcement.mode,
                depth=enforcement.depth,
                addresses=addresses,
                cake=enforcement.cake,
                reservations=enforcement.reservations or None,
            )
            for queue in device_queues(topology)
        },
        network=network_parameters(
            topology, experiment.plan, policy=enforcement.policy, addresses=addresses
        ),
    )


def wait_s(experiment: PmExperiment) -> float:
    """Return the seconds of waiting for replies after the last arrival."""
    slos = [workload.slo.latency or 0.0 for workload in experiment.topology.workloads]
    return min(max(3 * max(slos, default=0.0), LEAST_WAIT_S), MOST_WAIT_S)


def laid_out(
    nfs: NfsTestbed, say: Say = silent, servers: Collection[str] | None = None
) -> PmMachines:
    """Return the machines that traces are made for. Files are made and disks measured once in a
    testbed's life.

    Args:
        nfs: the testbed.
        say: called before a long step.
        servers: the servers that get requests; None means all.
    """
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
    path: Path, nfs: NfsTestbed, server: NfsServer, *, size: int, link: float, say: Say
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
