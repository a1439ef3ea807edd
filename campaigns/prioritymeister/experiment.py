"""An experiment: machines, what workloads send, and how they are told apart. Any ground carries it
out: simulated (`sim`), or a real NFS server and real links (`local`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from campaigns.prioritymeister.topology import Topology
from controllers.prioritymeister.plan import Plan


@dataclass(frozen=True)
class Replay:
    """What a workload really sends.

    Attributes:
        name: the workload's, as in the topology.
        file: requests in the format ``plain`` with offsets, times from 0.
        requests: lines of the file.
        seconds: time of the last one.
        span: bytes that are touched; offsets lie in [0, span).
        closed: 0 for an open loop: each request at its time (section 5.1). Else so many in flight,
            the file's requests in turn, over and over until the end (workload L).
    """

    name: str
    file: Path
    requests: int
    seconds: float
    span: int
    closed: int = 0


@dataclass(frozen=True)
class Enforcement:
    """A policy (section 5.3) and its parameters, as of `campaigns.prioritymeister.parameters`.

    Attributes:
        policy: pm, ps, cake, edf, byslo, mclock or none.
        mode: of pm.
        depth: requests that a device is given at a time.
        cake: parameters of Cake that are not the usual ones.
        reservations: of mClock, seconds of the device per second, by workload.
    """

    policy: str
    mode: str = "hold"
    depth: int = 1
    cake: Mapping[str, float] = field(default_factory=dict)
    reservations: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Everything that runs at once.

    Attributes:
        name: for people and folders.
        topology: hosts, links, workloads with their SLOs, and devices with the profile by which
            planner and enforcers charge requests.
        base: folder that the topology's file names are relative to.
        replays: by workload.
        enforcement: how they are told apart.
        plan: priorities and token buckets; None where the policy has none.
        serves: the profile by which a device really serves, by queue (``s0:disk``), where it is not
            the topology's (figure 10).
        seconds: length; what would arrive later does not.
        measured_from_s: requests that arrive from then on count (section 5.3: the second half).
        window_s: of the time series (figure 1).
        frame: bytes of the largest packets.
        seed: of whatever is random on the ground.
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
        """A workload alone on the same machines, first come first served: what SLOs are made of."""
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
        """Sixteen hex digits of all that can change the result; contents of files, not names."""
        hosts = self.topology.model_dump(mode="json", exclude={"workloads"})
        if self.topology.links is None:  # as it was before topologies could tell
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
