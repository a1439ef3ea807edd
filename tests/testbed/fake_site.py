"""In-memory site: the whole contract and every capability, without a machine."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import UserError
from testbed.sites.contract import (
    Cost,
    EnforcedSetting,
    MachineUsage,
    Node,
    Progress,
    SiteError,
    State,
    Status,
    Testbed,
    silent,
)
from testbed.spec import GroupSpec, TestbedSpec


@dataclass
class _FakeTestbed:
    """Memory of a testbed."""

    spec: TestbedSpec
    number: int
    made: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    shaped: dict[str, tuple[float | None, float, float]] = field(default_factory=dict)
    slow: dict[str, tuple[float, bool]] = field(default_factory=dict)
    off: set[str] = field(default_factory=set)
    ends_at_s: float | None = None


class FakeSite:
    """See `testbed.sites.contract.Site`.

    Args:
        directory: holds a folder for each testbed; without it testbeds name missing folders.
        clock: seconds since the epoch.
        lease_s: length of a lease; None: testbeds never end.
    """

    kind = "fake"

    def __init__(
        self,
        directory: Path = Path("/nonexistent"),
        *,
        clock: Callable[[], float] = time.time,
        lease_s: float | None = None,
    ) -> None:
        self.fail_after: int | None = None  # provisioning fails once, after so many nodes
        self._directory, self._clock, self._lease_s = directory, clock, lease_s
        self._numbers = itertools.count(1)
        self._kept: dict[str, _FakeTestbed] = {}

    def plan(self, spec: TestbedSpec) -> Cost:
        return Cost.of(spec, "in memory", self._lease_s and self._lease_s / 3600)

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        kept = self._kept.get(spec.name)
        if kept is not None and kept.spec != spec:
            raise UserError(f"a testbed {spec.name!r} of another spec is there; release it first")
        if kept is None:
            ends = None if self._lease_s is None else self._clock() + self._lease_s
            kept = self._kept[spec.name] = _FakeTestbed(spec, next(self._numbers), ends_at_s=ends)
        names = [name for group in spec.groups for name in group.node_names()]
        for number, name in enumerate(names):
            if number == self.fail_after:
                self.fail_after = None
                raise SiteError(f"node {name} broke", retry_after_s=0.0)
            if name not in kept.made:
                kept.made.append(name)
        for faulty in (kept.cut, kept.shaped, kept.slow, kept.off):
            faulty.clear()  # type: ignore[attr-defined]
        if self._directory.is_dir():
            (self._directory / spec.name).mkdir(exist_ok=True)
        progress("ready", 1.0)
        return self._describe(kept)

    def status(self, name: str) -> Status:
        kept = self._kept.get(name)
        if kept is None:
            return Status(State.ABSENT, f"there is no testbed {name!r}")
        names = [each for group in kept.spec.groups for each in group.node_names()]
        nodes = {each: "running" if each in kept.made else "stopped" for each in names}
        if kept.ends_at_s is not None and self._clock() >= kept.ends_at_s:
            return Status(State.FAILED, "the lease has ended", nodes, kept.ends_at_s)
        nodes |= dict.fromkeys(kept.cut, "link down") | dict.fromkeys(kept.off, "stopped")
        whole = State.FAILED if kept.cut or kept.off else State.READY
        state = whole if len(kept.made) == len(names) else State.BUILDING
        detail = f"{len(kept.made)} of {len(names)} nodes run"
        return Status(state, detail, nodes, kept.ends_at_s)

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        kept = self._kept.get(name)
        if kept is None or not (partly or self.status(name).state is State.READY):
            return None
        return self._describe(kept)

    def folder(self, name: str) -> Path:
        return self._directory / name

    def names(self) -> Sequence[str]:
        return sorted(self._kept)

    def extend(self, name: str, seconds: float) -> Status:
        kept = self._kept.get(name)
        if kept is not None and kept.ends_at_s is not None:
            kept.ends_at_s += seconds
        return self.status(name)

    def release(self, name: str, progress: Progress = silent) -> None:
        if self._kept.pop(name, None) is not None:
            shutil.rmtree(self._directory / name, ignore_errors=True)
        progress("removed", 1.0)

    # -- capabilities ---------------------------------------------------------------------------

    def snapshot(self, name: str, label: str) -> None:
        kept = self._of(name)
        if label in kept.snapshots:
            raise UserError(f"there is a snapshot {label!r} already", where=f"testbed {name}")
        kept.snapshots.append(label)

    def restore(self, name: str, label: str, progress: Progress = silent) -> Testbed:
        progress("ready", 1.0)
        return self._describe(self._with_snapshot(name, label))

    def snapshots(self, name: str) -> Sequence[str]:
        return tuple(self._of(name).snapshots)

    def delete_snapshot(self, name: str, label: str) -> None:
        self._with_snapshot(name, label).snapshots.remove(label)

    def settings(self, name: str, disks: Mapping[str, object]) -> Sequence[EnforcedSetting]:
        return []  # tests replace it: isinstance() remembers the classes of a protocol

    def shape(self, name: str, on: bool) -> None:
        self._of(name)

    def link(self, name: str, node: str, up: bool) -> None:
        cut = self._running(name, node).cut
        if up:
            cut.discard(node)
        else:
            cut.add(node)

    def check_link(self, name: str, node: str, *, packets: bool) -> None:
        self._running(name, node)

    def shape_link(
        self,
        name: str,
        node: str,
        *,
        bits_per_s: float | None = None,
        delay_s: float = 0.0,
        loss: float = 0.0,
    ) -> None:
        shaped = self._running(name, node).shaped
        shaped[node] = (bits_per_s, delay_s, loss)
        if shaped[node] == (None, 0.0, 0.0):
            del shaped[node]

    def power(self, name: str, node: str, on: bool) -> None:
        kept = self._of(name, node)
        kept.cut.discard(node)
        kept.shaped.pop(node, None)
        kept.slow.pop(node, None)
        if on:
            kept.off.discard(node)
        else:
            kept.off.add(node)

    def disk_fault(self, name: str, node: str, *, slow: float = 1.0, error: bool = False) -> None:
        kept = self._running(name, node)
        if not self._describe(kept).node(node).devices:
            raise UserError(f"node {node} has no disk of its own", where=f"testbed {name}")
        kept.slow[node] = (slow, error)
        if kept.slow[node] == (1.0, False):
            del kept.slow[node]

    def usage_counters(self, name: str) -> Mapping[str, float]:
        """Return the counters of an idle machine; see `UsageSite.usage_counters`."""
        return {"wall": self._clock(), **{f"node:{node}": 0.0 for node in self._of(name).made}}

    def usage_between(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> MachineUsage:
        nodes = {key.removeprefix("node:"): 0.0 for key in after if key.startswith("node:")}
        return MachineUsage(after["wall"] - before["wall"], 0.0, 0.0, nodes)

    # -- inside ---------------------------------------------------------------------------------

    def _of(self, name: str, node: str | None = None) -> _FakeTestbed:
        kept = self._kept.get(name)
        if kept is None:
            raise UserError(f"there is no testbed {name!r}", allowed=", ".join(self.names()))
        if node is not None and node not in kept.made:
            raise UserError(
                f"has no node {node!r}", where=f"testbed {name}", allowed=", ".join(kept.made)
            )
        return kept

    def _running(self, name: str, node: str) -> _FakeTestbed:
        kept = self._of(name, node)
        if node in kept.off:
            raise SiteError(f"node {node} is stopped")
        return kept

    def _with_snapshot(self, name: str, label: str) -> _FakeTestbed:
        kept = self._of(name)
        if label not in kept.snapshots:
            there = ", ".join(kept.snapshots) or "none"
            raise UserError(f"no snapshot {label!r}", where=f"testbed {name}", allowed=there)
        return kept

    def _describe(self, kept: _FakeTestbed) -> Testbed:
        folder = self.folder(kept.spec.name)
        members = [(group, name) for group in kept.spec.groups for name in group.node_names()]
        racks = kept.spec.rack_of()
        nodes = tuple(
            Node(
                name=name,
                address=f"2001:db8:{kept.number:x}::{index:x}",
                roles=frozenset(group.roles),
                group=group.name,
                devices=_devices(group),
                cpus=group.cpus,
                memory_bytes=group.memory,
                rack=racks.get(name),
            )
            for index, (group, name) in enumerate(members, start=1)
        )
        return Testbed(
            name=kept.spec.name,
            site=self.kind,
            nodes=nodes,
            ssh_key=folder / "id",
            known_hosts=folder / "known_hosts",
            directory=folder,
            spec_hash=kept.spec.digest(),
        )


def _devices(group: GroupSpec) -> dict[str, str]:
    if group.disk is None:
        return {}
    devices = {"scratch": "/dev/fake1"} if group.disk.scratch else {}
    for number in range(group.disks):
        devices[f"osd{number or ''}"] = f"/dev/fake{number + 2}"
    return devices
