"""Local site: every node is a container with its own disk, link and share of this machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import MappingProxyType

from schemas.errors import RemoteError, UserError, unknown
from schemas.locks import machine_lock
from testbed import reach
from testbed.sites import keys
from testbed.sites.contract import (
    Cost,
    EnforcedSetting,
    Progress,
    SiteError,
    State,
    Status,
    Testbed,
    other_spec,
    silent,
)
from testbed.sites.local import (
    image,
    network,
    quota_slice,
    racks,
    record,
    removal,
    settings,
)
from testbed.sites.local.awake import kept_awake, wanted
from testbed.sites.local.cgroups import Cgroups, detect
from testbed.sites.local.container import share_unmounts
from testbed.sites.local.disk import MOST_QUEUE_DEPTH, LocalDisk
from testbed.sites.local.names import LocalNames
from testbed.sites.local.nodes import LocalNodes, at_once
from testbed.sites.local.record import LocalRecord, PlannedNode
from testbed.sites.local.usage import counters
from testbed.sites.records import locked
from testbed.sites.usage import between
from testbed.spec import CephSpec, TestbedSpec
from testbed.spec.stores import LAST_FILESTORE
from testbed.ssh import SshShell

_SSH_TIMEOUT_S = 60.0


class LocalSite:
    """Site on this machine with every optional ability; see `testbed.sites.contract.Site`.
    `options`: `suite`, the nodes' Debian suite. `places`: folders; by default from the environment.
    """

    kind = "local"

    def __init__(
        self, options: Mapping[str, object] | None = None, places: LocalNames | None = None
    ) -> None:
        for option in sorted({*(options or {})} - {"suite"}):
            raise UserError(f"unknown option {option!r}", where="site local", allowed="suite")
        image.suite_of(options or {})
        self.places = places or LocalNames.of_environment()

    # -- the contract ---------------------------------------------------------------------------

    def plan(self, spec: TestbedSpec) -> Cost:
        nodes = sum(group.count for group in spec.groups)
        if nodes > network.MOST_NODES:
            raise UserError(
                f"{nodes} nodes; the local site has addresses for {network.MOST_NODES} a "
                "testbed, lower the groups' counts",
                where=f"testbed {spec.name}",
            )
        for group in spec.groups:
            if group.disk is not None and group.disk.queue_depth > MOST_QUEUE_DEPTH:
                raise UserError(
                    f"group {group.name} has queue_depth {group.disk.queue_depth}; the local "
                    f"site's disks take 4 to {MOST_QUEUE_DEPTH}",
                    where=f"testbed {spec.name}",
                )
        if isinstance(spec.store, CephSpec) and spec.store.on_lvm:
            raise UserError(
                f"deployer {spec.store.deployer.kind} makes OSDs on LVM (and cephadm daemons in "
                "containers), which nodes of the local site cannot have",
                where=f"testbed {spec.name}",
                do="choose own, or ceph-ansible with `osds: raw` (docs/another-ceph.md), or a site "
                "of machines",
            )
        suite = self._suite(spec.name, spec.site.options)
        filestore = isinstance(spec.store, CephSpec) and spec.store.objectstore == "filestore"
        if filestore and image.SUITES[suite] > LAST_FILESTORE:
            raise UserError(
                f"objectstore filestore is known to Ceph up to {LAST_FILESTORE}, and suite {suite} "
                f"has Ceph {image.SUITES[suite]}",
                where=f"testbed {spec.name}",
                do="choose objectstore bluestore, or suite bookworm",
            )
        network.check_congestion_control(network.congestion_control_of(spec))
        detail = f"{nodes} containers on this machine; disks and roots take what is written to them"
        cost = Cost.of(spec, detail)
        roots = sum(group.count * group.root_size for group in spec.groups)
        return replace(cost, disk_bytes=cost.disk_bytes + roots)

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        self.plan(spec)
        _require_root()
        root = self._root(spec.name, spec.site.options, progress)
        if spec.metrics:
            suite = self._suite(spec.name, spec.site.options)
            image.ensure_metrics(self.places.cache, suite, progress)
        with self._locked(spec.name):
            known = record.load(self.places.testbed(spec.name))
            # Machines that have the packages of metrics serve a spec without metrics, too.
            fitting = (spec, spec.model_copy(update={"metrics": True}))
            if known is not None and known.spec not in fitting:
                raise other_spec(spec.name)
            found = known or self._begin(spec)
            return self._bring_up(found, root, progress)

    def status(self, name: str) -> Status:
        known = record.load(self.places.testbed(name))
        if known is None:
            if name in self.names():
                return Status(State.BUILDING, "leftovers of a testbed without a record")
            return Status(State.ABSENT, f"there is no testbed {name!r}")
        nodes, ports = self._nodes(name), network.ports(self.places, name)
        states = {member.name: nodes.state(member, ports) for member in known.members()}
        broken = [f"{node} ({state})" for node, state in states.items() if state != "running"]
        if known.ready and not broken:
            return Status(State.READY, f"{len(states)} nodes run", states)
        what = f"not whole: {', '.join(broken)}" if broken else "partly there"
        state = State.FAILED if known.ready else State.BUILDING
        return Status(state, f"{what}; run `hotbed up` again", states)

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        known = record.load(self.places.testbed(name))
        return self._describe(known) if known is not None and (known.ready or partly) else None

    def folder(self, name: str) -> Path:
        return self.places.testbed(name)

    def names(self) -> Sequence[str]:
        return removal.names(self.places, self._cgroups())

    def extend(self, name: str, seconds: float) -> Status:
        """Return the status: this machine is not leased. See `Site.extend`."""
        return self.status(name)

    def release(self, name: str, progress: Progress = silent) -> None:
        _require_root()
        with self._locked(name):
            removal.remove(self.places, self._cgroups(), name, progress)

    # -- snapshots ------------------------------------------------------------------------------

    def snapshot(self, name: str, label: str) -> None:
        """Freeze the data written so far, without a copy. See `SnapshotSite.snapshot`."""
        if not label or not all(c.isalnum() or c in "-_." for c in label) or label[0] in "-.":
            raise UserError(
                "a label is letters, digits and - _ . only", where=f"snapshot {label!r}"
            )
        root = self._root(name)
        with self._locked(name):
            known, nodes = self._known(name), self._nodes(name)
            if label in known.snapshots:
                raise UserError(f"there is a snapshot {label!r} already", where=f"testbed {name}")
            at_once(lambda disk: disk.command({"op": "shape", "on": False}), self._disks(known))
            at_once(nodes.halt, known.members())
            frozen = known.frozen(label)
            record.save(self.places.testbed(name), frozen)
            self._bring_up(frozen, root, silent)

    def restore(self, name: str, label: str, progress: Progress = silent) -> Testbed:
        root = self._root(name)
        with self._locked(name):
            known, nodes = self._with_snapshot(name, label), self._nodes(name)
            rewound = known.rewound(label)
            record.save(self.places.testbed(name), rewound.model_copy(update={"ready": False}))
            at_once(lambda member: nodes.clear(member.name), known.members())
            found = self._bring_up(rewound, root, progress)
            self._drop_layers(rewound)
            return found

    def snapshots(self, name: str) -> Sequence[str]:
        return tuple(self._known(name).snapshots)

    def delete_snapshot(self, name: str, label: str) -> None:
        with self._locked(name):
            rest = self._with_snapshot(name, label).without(label)
            record.save(self.places.testbed(name), rest)
            self._drop_layers(rest)

    # -- shaping, faults, usage -----------------------------------------------------------------

    def shape(self, name: str, on: bool) -> None:
        known = self._known(name)
        at_once(lambda disk: disk.command({"op": "shape", "on": on}), self._disks(known))
        for member in known.members():
            rate = member.group.network if on else None
            levels, mtu = known.spec.priority_levels, known.spec.mtu
            network.set_rate(self.places, name, member.name, rate, levels=levels, mtu=mtu)
        uplink = known.spec.racks.uplink if known.spec.racks else None
        racks.set_rate(self.places, name, known.spec, uplink if on else None)

    def link(self, name: str, node: str, up: bool) -> None:
        network.set_link(self.places, name, self._member(name, node).name, up)

    def check_link(self, name: str, node: str, *, packets: bool) -> None:
        netns = self.places.netns(name, self._member(name, node).name)
        queues = network.queueing(netns).get("eth0", [])
        if any(each.get("root") and each["handle"] in settings.ENFORCERS for each in queues):
            raise UserError(
                f"the store's enforcer shapes the packets of node {node}",
                where=f"testbed {name}",
                allowed="--cut",
            )
        if packets and not network.has_netem(self.places.switch(name)):
            raise UserError(
                "this machine's kernel has no netem, which delays and loses packets",
                where=f"testbed {name}",
                allowed="--cut or --rate",
            )

    def shape_link(
        self,
        name: str,
        node: str,
        *,
        bits_per_s: float | None = None,
        delay_s: float = 0.0,
        loss: float = 0.0,
    ) -> None:
        spec, group = self._known(name).spec, self._member(name, node).group
        rate = bits_per_s or group.network
        if delay_s or loss:
            network.impair(self.places, name, node, rate=rate, delay=delay_s, loss=loss)
        else:
            levels, mtu = spec.priority_levels, spec.mtu
            network.set_rate(self.places, name, node, rate, levels=levels, mtu=mtu)

    def power(self, name: str, node: str, on: bool) -> None:
        member, root = self._member(name, node), self._root(name)
        with self._locked(name):
            known, nodes = self._known(name), self._nodes(name)
            if not on:
                nodes.clear(node)
                return
            if nodes.gone(member, network.ports(self.places, name)):
                nodes.start(known, member, root)
            _wait_for_ssh(self._describe(known), member, nodes, Event())

    def disk_fault(self, name: str, node: str, *, slow: float = 1.0, error: bool = False) -> None:
        for disk in self._disks_of(name, node):
            disk.command({"op": "fault", "slow": slow, "error": error})

    def disks_stats(self, name: str, node: str) -> list[Mapping[str, object]]:
        """Return the counters of each of the node's queue disks, in order."""
        return [disk.command({"op": "stats"}) for disk in self._disks_of(name, node)]

    def set_disks(self, name: str, node: str, settings: Sequence[tuple[float, float]]) -> None:
        """Set the mean positioning time (seconds) and bandwidth (bytes/s) of each of the node's
        queue disks, in order, until the disk restarts. UserError: the number of settings is not the
        number of disks."""
        disks = self._disks_of(name, node)
        if len(settings) != len(disks):
            raise UserError(
                f"node {node} has {len(disks)} disks, not {len(settings)}", where=f"testbed {name}"
            )
        for disk, setting in zip(disks, settings, strict=True):
            disk.set(*setting)

    def settings(
        self, name: str, disks: settings.Disks = MappingProxyType({})
    ) -> list[EnforcedSetting]:
        return settings.read_back(self._nodes(name), self._known(name), disks)

    def processors(self) -> int:
        return len(os.sched_getaffinity(0))

    def scale_cpus(self, name: str, factor: float) -> None:
        nodes = self._nodes(name)
        for member in self._known(name).members():
            nodes.cgroups.limit_cpus(nodes.group(member.name), member.group.cpus * factor)

    def usage_counters(self, name: str) -> Mapping[str, float]:
        return counters(self._cgroups(), name, self._awake_cgroups())

    usage_between = staticmethod(between)

    def kept_awake(self) -> AbstractContextManager[bool]:
        """See `AwakeSite.kept_awake`. UserError: HOTBED_AWAKE has an invalid value."""
        return kept_awake(self._awake_cgroups()) if wanted() else nullcontext(False)

    def awake_s(self) -> float:
        return self._awake_cgroups().usage_s()

    # -- inside ---------------------------------------------------------------------------------

    def _cgroups(self) -> Cgroups:
        return Cgroups(detect(), self.places.cgroup)

    def _awake_cgroups(self) -> Cgroups:
        return Cgroups(detect(), self.places.awake_cgroup)

    def _nodes(self, name: str) -> LocalNodes:
        return LocalNodes(self.places, self._cgroups(), name)

    def _disks(self, known: LocalRecord) -> list[LocalDisk]:
        nodes = self._nodes(known.spec.name)
        return [disk for member in known.members() for disk in nodes.disks(member)]

    def _disks_of(self, name: str, node: str) -> list[LocalDisk]:
        disks = self._nodes(name).disks(self._member(name, node))
        if not disks:
            raise UserError(f"node {node} has no disk of its own", where=f"testbed {name}")
        return disks

    def _known(self, name: str) -> LocalRecord:
        known = record.load(self.places.testbed(name))
        if known is None:
            raise UserError(
                f"there is no testbed {name!r}", do="`hotbed status` lists those there are"
            )
        return known

    def _with_snapshot(self, name: str, label: str) -> LocalRecord:
        known = self._known(name)
        if label not in known.snapshots:
            raise unknown("snapshot", label, known.snapshots, where=f"testbed {name}")
        return known

    def _drop_layers(self, known: LocalRecord) -> None:
        nodes, used = self._nodes(known.spec.name), known.used_layers()
        at_once(lambda member: nodes.drop_layers(member.name, used), known.members())

    def _member(self, name: str, node: str) -> PlannedNode:
        members = {member.name: member for member in self._known(name).members()}
        if node not in members:
            raise unknown("node", node, members, where=f"testbed {name}")
        return members[node]

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        busy = f"another hotbed command is working on testbed {name!r}; try again when it ended"
        with locked(self.places.lock(name), timeout_s=15.0, busy=busy):
            yield

    def _root(
        self,
        name: str,
        options: Mapping[str, object] = MappingProxyType({}),
        progress: Progress = silent,
    ) -> Path:
        """Return the root image of a testbed's suite."""
        return image.ensure(self.places.cache, self._suite(name, options), progress)

    def _suite(self, name: str, options: Mapping[str, object]) -> str:
        """Return the suite of a testbed; a new testbed's suite is in `options`."""
        known = record.load(self.places.testbed(name))
        return image.suite_of(options) if known is None else known.suite

    def _begin(self, spec: TestbedSpec) -> LocalRecord:
        """Reserve a network and write the record, before anything else is made."""
        busy = "another hotbed command is choosing a network; try again"
        with locked(machine_lock(network.CHOOSING), timeout_s=15.0, busy=busy):
            subnet = network.choose_subnet(record.subnets(self.places.testbeds))
            suite = image.suite_of(spec.site.options)
            begun = LocalRecord(spec=spec, subnet=subnet, suite=suite)
            record.save(self.places.testbed(spec.name), begun)
            network.make_switch(self.places, spec.name, subnet, mtu=spec.mtu)
        return begun

    def _bring_up(self, known: LocalRecord, root: Path, progress: Progress) -> Testbed:
        name = known.spec.name
        folder, nodes = self.places.testbed(name), self._nodes(name)
        members = list(known.members())
        progress("network", 0.0)
        record.save(folder, known.model_copy(update={"ready": False}))
        share_unmounts(folder)
        quota_slice.shorten(self.places)
        keys.make(folder / keys.LOGIN, f"hotbed-{name}")
        network.make_switch(self.places, name, known.subnet, mtu=known.spec.mtu)
        racks.make(self.places, name, known.spec)
        started, ports = 0, network.ports(self.places, name)

        def start(member: PlannedNode) -> None:
            nonlocal started
            nodes.of(member.name).mkdir(parents=True, exist_ok=True)
            if nodes.gone(member, ports):
                nodes.start(known, member, root)
            else:
                network.raise_link(self.places, name, member.name, member.address)
            started += 1
            progress("starting nodes", 0.6 * started / len(members))

        at_once(start, members)
        shown = {m.name: keys.public(nodes.of(m.name) / "host_key") for m in members}
        pinned: dict[keys.Place, list[str]] = {
            (f"{m.address},{m.name}", 22): [shown[m.name]] for m in members
        }
        keys.pin(folder / "known_hosts", pinned)
        for setting in self.settings(name):  # somebody may have changed those of a running node
            if setting.differs:
                setting.set_back()
        testbed = self._describe(known)
        answering, interrupted = 0, Event()

        def answer(member: PlannedNode) -> None:
            nonlocal answering
            _wait_for_ssh(testbed, member, nodes, interrupted)
            answering += 1
            progress("waiting for ssh", 0.6 + 0.4 * answering / len(members))

        at_once(answer, members, interrupted)
        record.save(folder, known.model_copy(update={"ready": True}))
        progress("ready", 1.0)
        return testbed

    def _describe(self, known: LocalRecord) -> Testbed:
        name = known.spec.name
        folder, nodes = self.places.testbed(name), self._nodes(name)
        return Testbed(
            name=name,
            site=self.kind,
            nodes=tuple(nodes.describe(member) for member in known.members()),
            ssh_key=folder / keys.LOGIN,
            known_hosts=folder / "known_hosts",
            directory=folder,
            spec_hash=known.spec.digest(),
        )


def _wait_for_ssh(
    testbed: Testbed, member: PlannedNode, nodes: LocalNodes, interrupted: Event
) -> None:
    # Without the shared connection: a killed `up` must not leave one behind.
    target = replace(reach.target_of(testbed, testbed.node(member.name)), control_dir=None)
    end = time.monotonic() + _SSH_TIMEOUT_S
    while True:
        try:
            SshShell(target).run(["true"], timeout_s=15.0)
            return
        except RemoteError as error:
            if not nodes.container(member.name).running():
                reason = nodes.container(member.name).reason()
                raise SiteError(f"node {member.name} stopped while it booted: {reason}") from error
            if time.monotonic() > end:
                raise SiteError(
                    f"node {member.name} did not answer ssh within {_SSH_TIMEOUT_S:g} s: {error}",
                    retry_after_s=5.0,
                ) from error
        if interrupted.wait(0.2):
            raise SiteError("interrupted")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise UserError("the local site makes containers and disks", do="run this as root (sudo)")
