"""The ground `local`, and any other with real nodes: PriorityMeister's experiments on a deployed
testbed.

Before a run, none of Hotbed's load runs, the servers' proxies are idle and caches are empty. The
policy's parameters are applied at proxies and network and read back. Then all replayers begin at
one instant. The parameters are always removed after the run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from campaigns.engine.judge import spoiled
from campaigns.papers.dlr.steps.usage import Usage
from campaigns.papers.prioritymeister.experiment import Experiment
from campaigns.papers.prioritymeister.live import replays
from campaigns.papers.prioritymeister.live.bounds import as_text, conditions_of
from campaigns.papers.prioritymeister.live.machines import Places, client_nodes
from campaigns.papers.prioritymeister.live.replays import ClientLoad
from campaigns.papers.prioritymeister.live.results import late, numbers_of, result_of
from campaigns.papers.prioritymeister.machines import Machines
from campaigns.papers.prioritymeister.outcome import Outcome
from campaigns.papers.prioritymeister.parameters import (
    Parameters,
    device_queues,
    network_parameters,
    storage_parameters,
)
from schemas.campaign import Limits
from schemas.errors import HotbedError
from testbed.agent.contract import Agent
from testbed.sites.contract import Node, Site, Testbed
from testbed.ssh import Shell

LEAST_WAIT_S = 5.0
MOST_WAIT_S = 30.0
"""Bounds of the waiting time for replies after the last arrival: three times the loosest SLO."""
IDLE_S = 60.0
"""Seconds within which a server must answer the rest of an earlier run."""


class Enforcing(Protocol):
    """The used part of `testbed.deploy.enforcement.Enforcement`: proxies by node, and network."""

    def apply(self, parameters: Mapping[str, Any]) -> object: ...

    def remove(self) -> object: ...

    def parameters(self, server: str) -> dict[str, Any]: ...

    def put_profile(self, server: str, profile: Mapping[str, Any]) -> object: ...

    def status(self, server: str) -> dict[str, Any]: ...

    def metrics(self, server: str) -> str: ...

    def network_check(self, network: Mapping[str, Any]) -> Mapping[str, Sequence[str]]: ...

    def caches(self) -> object: ...


@runtime_checkable
class DiskSite(Protocol):
    """A site that reports its disks' counters."""

    def disk_stats(self, name: str, node: str) -> Mapping[str, object]:
        """Return counters of a node's disk."""


@dataclass(frozen=True)
class Reached:
    """A testbed that is up and deployed, with its agent, enforcement and shells."""

    site: Site
    testbed: Testbed
    places: Places
    agent: Agent
    enforcement: Enforcing
    shell_to: Callable[[str], Shell]


class LocalGround:
    """A `campaigns.papers.prioritymeister.ground.Ground`.

    Args:
        reached: the testbed.
        machines: the machines that traces are made for.
        limits: limits beyond which a run is spoiled.
    """

    name = "local"

    def __init__(self, reached: Reached, machines: Machines, limits: Limits) -> None:
        self.machines, self.reached = machines, reached
        self._site, self._testbed, self._places = reached.site, reached.testbed, reached.places
        self._agent, self._enforcement = reached.agent, reached.enforcement
        self._shell, self._limits = reached.shell_to, limits

    def carry_out(self, experiment: Experiment) -> Outcome:
        """See `Ground.carry_out`.

        Raises:
            UserError: the testbed lacks something that the experiment needs.
            HotbedError: a node, a server or a replayer failed; the testbed is left as it was found.
        """
        client_nodes(experiment.topology, self._testbed)
        loads = self._loads(experiment)
        self._clean()
        replays.check_clocks(loads, self._shell)
        usage = Usage(self._site, self._testbed, *(self._node(x.client.name) for x in loads))
        try:
            replays.lay_out(loads, self._shell)
            with self._enforced(experiment) as applied:
                before = self._work(experiment)
                with usage.measured():
                    reports = replays.replay(
                        self._agent,
                        loads,
                        seconds=experiment.seconds,
                        wait_s=wait_s(experiment),
                    )
                work = {key: value - before[key] for key, value in self._work(experiment).items()}
                statuses, seen = self._seen(experiment)
                logs = applied | seen
        finally:
            replays.clear(loads, self._shell)
        for workload, report in reports.items():
            logs[f"replay-{workload}.json"] = json.dumps(report) + "\n"
        conditions = conditions_of(
            experiment,
            parameters_on(experiment, self._testbed),
            statuses,
            reports,
            switch_levels=self._places.switch_levels,
            frame=self._places.frame,
        )
        if conditions:
            logs["bounds.json"] = as_text(conditions)
        why = late(reports) or spoiled(usage.load, self._limits)
        cores = {f"cores.{node}": used for node, used in usage.cores.items()}
        return Outcome(
            results={
                workload: result_of(report, experiment.window_s, experiment.seconds)
                for workload, report in reports.items()
            },
            spoiled=why,
            extra={**numbers_of(reports), **usage.load.as_summary(), **cores, **work},
            logs=logs,
            conditions=conditions,
            settings=usage.load.settings,
        )

    def _loads(self, experiment: Experiment) -> list[ClientLoad]:
        return [
            ClientLoad(
                workload=workload.name,
                client=self._node(workload.client),
                server=self._places.server(self._testbed, workload.server or ""),
                trace=experiment.replays[workload.name].file.read_bytes(),
                slo_s=workload.slo.latency,
                closed=experiment.replays[workload.name].closed,
                seed=experiment.seed,
            )
            for workload in experiment.topology.workloads
        ]

    def _clean(self) -> None:
        """Remove everything of an earlier run, and raise if other load runs."""
        for node, units in self._agent.units().items():
            for unit in units:
                self._agent.unit_stop(node, unit)
        for node, found in self._agent.strays().items():
            if found:
                raise HotbedError(
                    f"node {node} runs load that is not Hotbed's: process {found[0]!r}; end it "
                    "first"
                )
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
    def _enforced(self, experiment: Experiment) -> Iterator[dict[str, str]]:
        """Apply the policy's parameters around the block; yield their logs."""
        told = parameters_on(experiment, self._testbed)
        logs = {"parameters.json": told.model_dump_json(indent=1) + "\n"}
        try:
            for queue in told.storage:
                server, device = queue.split(":", 1)
                profile = experiment.topology.hosts[server].devices[device].profile
                text = (experiment.base / profile).read_text()
                self._enforcement.put_profile(server, json.loads(text))
                logs[f"profile-{server}.json"] = text
            self._enforcement.apply(told.model_dump(mode="json"))
            self._check(told)
            yield logs
        finally:
            self._enforcement.remove()

    def _check(self, told: Parameters) -> None:
        """Raise if the applied parameters differ from `told`."""
        for queue, wanted in told.storage.items():
            server = queue.split(":", 1)[0]
            found = self._enforcement.parameters(server)
            names = {one["name"] for one in found["workloads"]}
            if found["policy"] != wanted["policy"] or names != {
                one["name"] for one in wanted["workloads"]
            }:
                raise HotbedError(f"the proxy on node {server} does not have what it was told")
        network = told.network.model_dump(mode="json")
        for node, differences in self._enforcement.network_check(network).items():
            if differences:
                raise HotbedError(f"the network of node {node} is not as told: {differences[0]}")

    def _seen(self, experiment: Experiment) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the proxies' counts by server and as logs, before parameters are removed."""
        servers = sorted({workload.server or "" for workload in experiment.topology.workloads})
        statuses, found = {}, {}
        for server in servers:
            statuses[server] = dict(self._enforcement.status(server))
            found[f"proxy-{server}.json"] = json.dumps(statuses[server], indent=1) + "\n"
            found[f"proxy-{server}.prom"] = self._enforcement.metrics(server)
        return statuses, found

    def _work(self, experiment: Experiment) -> dict[str, float]:
        """Return each server's charged seconds so far, and the seconds that its disk really took if
        the site can report them. The bound is about charged seconds."""
        found: dict[str, float] = {}
        for server in sorted({workload.server or "" for workload in experiment.topology.workloads}):
            status = self._enforcement.status(server)
            charged = [float(one["work_seconds"]) for one in status["workloads"]]
            found[f"charged_s.{server}"] = sum(charged)
            if isinstance(self._site, DiskSite):
                stats = self._site.disk_stats(self._testbed.name, server)
                found[f"disk_busy_s.{server}"] = float(str(stats["busy_s"]))
                found[f"disk_requests.{server}"] = float(str(stats["requests"]))
        return found

    def _node(self, name: str) -> Node:
        return self._testbed.node(name)


def parameters_on(experiment: Experiment, testbed: Testbed) -> Parameters:
    """Return the parameters of proxies and network for an experiment on a testbed's nodes."""
    enforcement, topology = experiment.enforcement, experiment.topology
    addresses = {node.name: [node.address] for node in testbed.nodes}
    return Parameters(
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


def wait_s(experiment: Experiment) -> float:
    """Return the seconds of waiting for replies after the last arrival."""
    slos = [workload.slo.latency or 0.0 for workload in experiment.topology.workloads]
    return min(max(3 * max(slos, default=0.0), LEAST_WAIT_S), MOST_WAIT_S)
