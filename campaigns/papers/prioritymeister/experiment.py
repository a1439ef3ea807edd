"""An experiment: machines, replays and enforcement. Any ground can run it: simulated (`sim`), or a
real NFS server and real links (`local`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from campaigns.papers.prioritymeister.topology import Topology
from controllers.prioritymeister.plan import Plan


@dataclass(frozen=True)
class Replay:
    """Requests that a workload really sends.

    Attributes:
        name: the workload's name in the topology.
        file: requests in the format ``plain`` with offsets, times from 0.
        requests: lines of the file.
        seconds: time of the last request.
        span: bytes that are touched; offsets are in [0, span).
        closed: 0 for an open loop, each request at its time (section 5.1). Otherwise the number of
            requests in flight: the file's requests in turn, repeated until the end (workload L).
    """

    name: str
    file: Path
    requests: int
    seconds: float
    span: int
    closed: int = 0


@dataclass(frozen=True)
class Enforcement:
    """A policy (section 5.3) and its parameters, see `campaigns.papers.prioritymeister.parameters`.

    Attributes:
        policy: pm, ps, cake, edf, byslo, mclock or none.
        mode: mode of pm.
        depth: concurrent requests at a device.
        cake: parameters of Cake that differ from the default.
        reservations: mClock's, in seconds of the device per second, by workload.
    """

    policy: str
    mode: str = "hold"
    depth: int = 1
    cake: Mapping[str, float] = field(default_factory=dict)
    reservations: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """An experiment: everything that runs at once.

    Attributes:
        name: name for people and folders.
        topology: hosts, links, workloads with their SLOs, and devices with the profile that planner
            and enforcers charge requests by.
        base: folder for the topology's relative file names.
        replays: by workload.
        enforcement: the policy that enforces the workloads' shares.
        plan: priorities and token buckets; None if the policy has no plan.
        serves: a device's real profile by queue (``s0:disk``), if it is not the topology's (figure
            10).
        seconds: length; later arrivals are dropped.
        measured_from_s: requests that arrive from then on count (section 5.3: the second half).
        window_s: window of the time series (figure 1).
        frame: bytes of the largest packets.
        seed: seed of the ground's random draws.
    """

    name: str
    topology: Topology
    base: Path
    replays: Mapping[str, Replay]
    enforcement: Enforcement
    plan: Plan | None
    serves: Mapping[str, Path]
    seconds: float
    measured_from_s: float
    window_s: float = 10.0
    frame: float = 9038.0
    seed: int = 0

    def alone(self, name: str) -> Experiment:
        """Return a workload alone on the same machines, first come first served, for SLOs."""
        workload = next(one for one in self.topology.workloads if one.name == name)
        return replace(
            self,
            name=f"{self.name}-alone-{name}",
            topology=self.topology.model_copy(update={"workloads": (workload,)}),
            replays={name: self.replays[name]},
            enforcement=Enforcement("none", depth=self.enforcement.depth),
            plan=None,
        )

    def digest(self) -> str:
        """Return sixteen hex digits of all that can change the result: file contents, not names."""
        hosts = self.topology.model_dump(mode="json", exclude={"workloads"})
        if self.topology.links is None:  # keeps digests from before `links` existed
            del hosts["links"]
        body: dict[str, Any] = {
            "hosts": hosts,
            "workloads": [
                w.model_dump(mode="json", exclude={"trace", "slo"}) for w in self.topology.workloads
            ],
            "replays": [
                (name, _contents(one.file), one.closed) for name, one in self.replays.items()
            ],
            "devices": sorted(
                _contents(self.base / device.profile)
                for host in self.topology.hosts.values()
                for device in host.devices.values()
            ),
            "serves": sorted((queue, _contents(path)) for queue, path in self.serves.items()),
            "enforcement": repr(self.enforcement),
            "plan": repr(self.plan),
            "times": [self.seconds, self.measured_from_s, self.window_s, self.frame],
            "seed": self.seed,
        }
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _contents(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
