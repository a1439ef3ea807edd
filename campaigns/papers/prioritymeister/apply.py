"""Work on a testbed's nodes: apply a plan (`hotbed pm apply`), and measure a device's profile
(`hotbed pm profile`). The topology's hosts are the testbed's nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from campaigns.papers.prioritymeister.measure import fio
from campaigns.papers.prioritymeister.plan import (
    EnforcedPolicy,
    EnforcerParameters,
    Tell,
    device_queue,
    network_parameters,
    parameters_of,
    plan_of,
)
from campaigns.papers.prioritymeister.topology import Links, Topology, htb_links, load_topology
from campaigns.papers.prioritymeister.traces import check_new
from controllers.prioritymeister.estimators import parse_profile
from schemas.cells.prioritymeister import PLANNED
from schemas.durable import write_file
from schemas.errors import StoreError, UserError, not_allowed
from testbed.deploy.enforcement import PLAIN, NfsEnforcement
from testbed.sites.contract import Testbed
from testbed.spec import NfsSpec, TestbedSpec
from testbed.ssh import LocalShell, Shell
from testbed.stores.nfs.wire import frame_of
from workloads.traces.device_profile import ProfilePlan, build

_FILE = "pm-applied.json"


@dataclass(frozen=True)
class Applied:
    """Applied parameters: each server's workloads, and the number of flows of each host.

    `met`: None without a plan. `restarted`: servers with another profile than before. `differences`
    by node is empty if all is applied.
    """

    testbed: str
    policy: str
    met: bool | None
    servers: Mapping[str, tuple[str, ...]]
    hosts: Mapping[str, int]
    restarted: tuple[str, ...] = ()
    differences: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def sentence(self) -> str:
        """Return the result as a sentence."""
        if self.differences:
            where, problems = next(iter(self.differences.items()))
            return f"{self.testbed}: {where}: {problems[0]}"
        workloads = sum(len(names) for names in self.servers.values())
        met = {True: ", which meets all SLOs", False: ", which misses an SLO", None: ""}[self.met]
        network = f"{sum(self.hosts.values())} flows at {len(self.hosts)} hosts"
        return (
            f"{self.testbed}: {self.policy}{met}: {workloads} workloads at {len(self.servers)} "
            f"servers, {network if self.hosts else 'no network enforcement'}; checked"
        )


def apply(
    testbed: Testbed,
    spec: TestbedSpec,
    file: Path,
    *,
    policy: str = "pm",
    mode: str = "hold",
    depth: int | None = None,
    network: bool = True,
    tell: Tell = lambda _: None,
) -> Applied:
    """Plan a topology, apply the plan to a deployed testbed of this spec, and check it. `depth` is
    by default the spec's; without `network` only the devices enforce.

    Raises:
        UserError: topology and testbed do not fit.
        StoreError: a node refuses, with the node's sentence.
    """
    store = spec.store
    if not isinstance(store, NfsSpec):
        do = "bring up a testbed such as testbed/specs/pm.yaml"
        raise UserError("has no NFS servers", where=f"testbed {spec.name}", do=do)
    topology = load_topology(file)
    check_fits(topology, spec, file)
    enforced = EnforcedPolicy(policy, mode, store.depth if depth is None else depth)
    plan = None
    if policy in PLANNED:
        plan = plan_of(topology, file, tell, links=links_on(topology, spec, file, tell))
    enforcement = NfsEnforcement(testbed)
    addresses = enforcement.addresses()
    made = parameters_of(topology, plan, enforced, addresses)
    if not network:
        plain = network_parameters(topology, plan, policy=policy, mode="fifo", addresses=addresses)
        made = made.model_copy(update={"network": plain})
    _check_levels(made, spec, file)
    restarted = _profiles(enforcement, topology, file)
    wanted = made.model_dump(mode="json")
    enforcement.apply(wanted, unknown=store.unknown)
    write_file(testbed.directory / _FILE, json.dumps(wanted, indent=1))
    found = _applied(testbed, wanted, None if plan is None else plan.met, restarted)
    wrong = check(testbed).differences
    if wrong:
        where, problems = next(iter(wrong.items()))
        raise StoreError(f"node {where}: after it was applied, {problems[0]}.")
    return found


def check(testbed: Testbed) -> Applied:
    """Return the last applied parameters, and the testbed's differences from them; raise UserError
    if nothing was applied."""
    wanted = _kept(testbed)
    differences = differences_of(NfsEnforcement(testbed), wanted)
    return replace(_applied(testbed, wanted, None, ()), differences=differences)


def differences_of(
    enforcement: NfsEnforcement, wanted: Mapping[str, Any]
) -> dict[str, Sequence[str]]:
    """Return sentences on what differs from the wanted `EnforcerParameters`, by node."""
    found: dict[str, Sequence[str]] = {**enforcement.network_check(wanted["network"])}
    for device, parameters in wanted["storage"].items():
        server = device.partition(":")[0]
        problems = storage_differences(parameters, enforcement.parameters(server))
        found[server] = [*found.get(server, ()), *problems]
    return {node: problems for node, problems in found.items() if problems}


def remove(testbed: Testbed) -> None:
    """Set default parameters everywhere and a network without enforcement; raise StoreError if any
    remains."""
    enforcement = NfsEnforcement(testbed)
    enforcement.remove()
    left = enforcement.network_check()
    if left:
        where, problems = next(iter(left.items()))
        raise StoreError(f"node {where}: after it was removed, {problems[0]}.")
    (testbed.directory / _FILE).unlink(missing_ok=True)


def storage_differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return sentences on a proxy's parameters that differ from the wanted ones. A value missing in
    the proxy's answer is 0, empty or the default."""
    problems = []
    for key in ("policy", "depth"):
        if wanted[key] != found.get(key):
            problems.append(f"{key} is {found.get(key)}, not {wanted[key]}")
    if wanted.get("mode", "hold") != (found.get("mode") or "hold"):
        problems.append(f"mode is {found.get('mode')}, not {wanted['mode']}")
    have = {one["name"]: one for one in found.get("workloads", ())}
    for one in wanted["workloads"]:
        other = have.pop(one["name"], None)
        if other is None:
            problems.append(f"workload {one['name']} is missing")
            continue
        for key, empty in _EMPTY.items():
            if not _same(one.get(key, empty), other.get(key, empty)):
                problems.append(
                    f"workload {one['name']}: {key} is {other.get(key)}, not {one.get(key)}"
                )
    return problems + [f"workload {name} is not the plan's" for name in have]


_EMPTY: Mapping[str, Any] = {
    "clients": [],
    "priority": 0,
    "pairs": [],
    "slo": 0,
    "reservation": 0,
}


def _same(a: object, b: object) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-9 * max(1.0, abs(a))  # times are kept as whole nanoseconds
    return bool(a == b)


def check_fits(topology: Topology, spec: TestbedSpec, file: Path) -> None:
    """Raise UserError at the first reason why a testbed of this spec does not fit the topology."""
    groups = {name: group for group in spec.groups for name in group.node_names()}
    for name, host in topology.hosts.items():
        if name not in groups:
            raise not_allowed(f"{file}: hosts", name, f"nodes of {spec.name}: {', '.join(groups)}")
        for what, rate in (("egress", host.egress), ("ingress", host.ingress)):
            link = rate or host.link
            if link > groups[name].network * (1 + 1e-9):
                raise UserError(
                    f"its {what} is {link:g} bit/s, more than the node's",
                    where=f"{file}: host {name}",
                    do=f"write link: {groups[name].network:g}",
                )
    seen: dict[tuple[str, str], str] = {}
    for workload in topology.workloads:
        where = f"{file}: workload {workload.name}"
        if workload.server is None:
            raise UserError("has no server", where=where, do="name one")
        for what, node, role in (
            ("client", workload.client, "client"),
            ("server", workload.server, "nfs"),
        ):
            if role not in groups[node].roles:
                raise UserError(
                    f"{what} {node} has not the role {role} on testbed {spec.name}",
                    where=where,
                    allowed=", ".join(n for n, g in groups.items() if role in g.roles),
                )
        pair = (workload.client, workload.server)
        if pair in seen:
            raise UserError(
                f"goes from {pair[0]} to {pair[1]}, as {seen[pair]} does",
                where=where,
                do="give each workload its own client",
            )
        seen[pair] = workload.name
        if topology.device_of(workload).speed != 1:
            raise UserError(
                f"device {device_queue(topology, workload)} has a speed",
                where=file,
                do="write a profile of the testbed's device",
            )


def links_on(
    topology: Topology, spec: TestbedSpec, file: Path, tell: Tell = lambda _: None
) -> Links:
    """Return the links for a plan on a testbed of this spec: the topology's `links`, or else the
    testbed's. Raise UserError if the topology assumes more than the testbed can keep."""
    keeps = htb_links(frame_of(spec.mtu))
    written = f"links: {{share: {keeps.share:.4g}, mtu: {spec.mtu}, enforcer: htb}}"
    if topology.links is None:
        tell(f"planned with what the network of testbed {spec.name} keeps, {written}")
        return keeps
    links = topology.kept
    enough = (
        topology.links.enforcer == "htb"
        and links.share <= keeps.share * (1 + 1e-9)
        and links.frame >= keeps.frame
        and links.overshoot >= keeps.overshoot
    )
    if not enough:
        raise UserError(
            f"the network of testbed {spec.name} keeps less of a plan",
            where=f"{file}: links",
            do=f"write {written}, or less share, a larger mtu, more overshoot, or leave it out",
        )
    return links


def _check_levels(made: EnforcerParameters, spec: TestbedSpec, file: Path) -> None:
    if made.network.mode == PLAIN:
        return
    used = max((f.level for host in made.network.hosts.values() for f in host.flows), default=0)
    have = spec.priority_levels
    if used > have:
        raise UserError(
            f"the plan uses {used} network levels, and the switch of {spec.name} has {have}",
            where=file,
            do="write network_levels in the topology, network.priority_levels in the spec, or "
            "leave the network alone (--no-network)",
        )


def _profiles(enforcement: NfsEnforcement, topology: Topology, file: Path) -> tuple[str, ...]:
    """Give every server the profile that its workloads were planned with."""
    profiles = {}
    for workload in topology.workloads:
        path = file.resolve().parent / topology.device_of(workload).profile
        profiles[str(workload.server)] = json.loads(path.read_text())
    return tuple(
        server for server, profile in profiles.items() if enforcement.put_profile(server, profile)
    )


def _applied(
    testbed: Testbed, wanted: Mapping[str, Any], met: bool | None, restarted: tuple[str, ...]
) -> Applied:
    servers = {
        device.partition(":")[0]: tuple(one["name"] for one in given["workloads"])
        for device, given in wanted["storage"].items()
    }
    plain = wanted["network"]["mode"] == PLAIN
    hosts = {} if plain else wanted["network"]["hosts"]
    flows = {name: len(host["flows"]) for name, host in hosts.items() if host["flows"]}
    return Applied(testbed.name, wanted["policy"], met, servers, flows, restarted)


def _kept(testbed: Testbed) -> dict[str, Any]:
    path = testbed.directory / _FILE
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError as error:
        where = f"testbed {testbed.name}"
        do = "apply one by hotbed pm apply TOPOLOGY.yaml"
        raise UserError("no plan was applied", where=where, do=do) from error
    return found


_LOOK = """
import errno, json, os, stat, sys
path, writes = sys.argv[1], sys.argv[2] == "writes"
found = {"size": 0, "error": None, "used": False}
try:
    mode = os.stat(path).st_mode
    if stat.S_ISBLK(mode) or stat.S_ISREG(mode):
        opened = os.open(path, os.O_RDONLY)
        found["size"] = os.lseek(opened, 0, os.SEEK_END)
        os.close(opened)
    else:
        found["error"] = "neither a block device nor a file"
    if writes and stat.S_ISBLK(mode):
        # The kernel gives a device that is mounted, swapped to or otherwise held to nobody else.
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL))
except OSError as error:
    found["used"] = error.errno == errno.EBUSY
    found["error"] = None if found["used"] else f"cannot be opened ({error.strerror})"
print(json.dumps(found))
"""
"""Script that examines a device; it runs on the device's machine."""


def profile_device(
    device: PurePath | str,
    out: Path,
    *,
    kind: str,
    depth: int,
    seconds: float,
    writes: bool,
    tell: Callable[[str], None],
    shell: Shell | None = None,
) -> dict[str, Any]:
    """Measure a block device or a large file, and write its profile into a new file on this
    machine; see `ProfilePlan`. `shell` is of the machine with the device, None for this machine.

    Raises:
        UserError: the device, an option or `out` is unsuitable; nothing has been measured.
        WorkloadError: fio failed.
        RemoteError: the node cannot be reached.
    """
    check_new(out)
    place = shell or LocalShell("this machine")
    name = str(device) if shell is None else f"{device} of node {place.node}"
    size = capacity(place, str(device), name, writes=writes)
    try:
        plan = ProfilePlan(kind, size, depth=depth, writes=writes, seconds=seconds)
    except UserError as error:
        raise error.at(name) from error
    if place.run(["sh", "-c", "command -v fio"], check=False).returncode != 0:
        raise UserError(f"fio is not installed on {place.node}", do="apt-get install fio")
    tell(f"measuring {name} for about {plan.total_s:.0f} s")
    document = build(plan, fio(place, plan.job_file(str(device)), plan.total_s, name))
    parse_profile(document, f"the profile of {name}")
    with out.open("x") as file:
        file.write(json.dumps(document, indent=1) + "\n")
    return document


def capacity(shell: Shell, device: str, name: str, *, writes: bool) -> int:
    """Return the bytes of a block device or file. Raise UserError if the path is neither, cannot be
    opened, or would be written while in use."""
    how = "writes" if writes else "reads"
    found = json.loads(shell.run(["python3", "-c", _LOOK, device, how]).text)
    if found["error"]:
        raise UserError(found["error"], where=name)
    if found["used"]:
        raise UserError("is in use; --overwrite would destroy its contents", where=name)
    return int(found["size"])
