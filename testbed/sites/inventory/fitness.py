"""Checks of machines against a spec, from their surveys.

`hotbed doctor --site` reports every result; a remark (`CheckResult.needed` False) stops nobody.
`hotbed up` refuses machines that fail one of the checks of `require`.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import RemoteError, UserError
from testbed.agent.contract import IOWAIT_CPUS
from testbed.checks import GIB, CheckResult
from testbed.deploy import ports
from testbed.deploy.inventory import fsid_of
from testbed.sites.clock import Clock
from testbed.sites.contract import Doomed, HostFindings
from testbed.sites.inventory.assign import Member
from testbed.sites.inventory.contact import (
    OLDEST_PYTHON,
    Contact,
    FirstLook,
    address_of,
    ask,
    everywhere,
    first_target,
)
from testbed.sites.inventory.hostside import REFUSED
from testbed.spec import SIZE_SLACK, CephSpec, DiskSpec, NfsSpec, SwiftSpec, TestbedSpec
from testbed.spec.quantities import format_bytes
from testbed.ssh import Shell

KIND = "inventory"
PSI_FILE = "/proc/pressure/io"
ROOM_BYTES = 3 * GIB
"""Space for packages, logs and the control plane on a machine's system disk."""
TESTED = {"debian": ("12",)}
DRIFT_S = 0.05
"""Offset in seconds above which Ceph's monitors complain (mon_clock_drift_allowed)."""
STRANGE_S, WRONG_S = 1.0, 60.0
"""Offsets of a clock for a remark and for a refusal: keys, logs and files have times."""
CLOCK_LOOKS = 3
_CALLED = {"dm_mod": "device mapper (dm_mod)"}
_NAME_ANOTHER = "name another in site.options.devices"

Surveys = Mapping[str, Mapping[str, Any]]


# -- devices and consent ---------------------------------------------------------------------------


def _needed_bytes(use: str, disk: DiskSpec) -> int:
    part = disk.scratch if use == "scratch" else disk.size - disk.scratch
    return int(part * SIZE_SLACK)


def device_problem(
    node: str, use: str, found: Mapping[str, Any], disk: DiskSpec | None
) -> str | None:
    """Return why a device can never be taken, as one sentence; None if it can."""
    path = found["path"]
    where = f"device {path} of node {node}"
    if found["is"] != "a device":
        return f"The {where} is {found['is']}, no block device: name another in devices."
    if found["uses"]:
        return (
            f"The {where} {' and '.join(found['uses'])}: it is never wiped while it is in use; "
            "free it or name another."
        )
    if found.get("read_only"):
        return f"The {where} is read-only: name another."
    if disk is not None and found["bytes"] < _needed_bytes(use, disk):
        return (
            f"The {where} holds {format_bytes(found['bytes'])}, and the spec wants "
            f"{format_bytes(_needed_bytes(use, disk))} of it at least: name a larger one, or lower "
            "the disk's size in the spec."
        )
    return None


def _overlaps(member: Member, seen: Surveys) -> Iterator[str]:
    """Yield devices with two names, and a disk named together with its partition: writing to one
    would destroy the other.
    """
    for (_, one), (_, other) in itertools.permutations(member.devices.items(), 2):
        first, second = seen[one], seen[other]
        where = f"The devices {one} and {other} of node {member.node}"
        if one < other and first.get("real") == second.get("real") is not None:
            yield f"{where} are the same device: give each use one of its own."
        if second.get("real") in first.get("parts", ()):
            yield (
                f"{where} overlap: the second is a partition of the first; name two partitions, or "
                "two disks."
            )


def device_findings(
    spec: TestbedSpec, member: Member, seen: Surveys, *, ours: bool = False
) -> Iterator[CheckResult]:
    """Check a node's devices.

    Args:
        seen: the devices by path, as `hostside.device` describes them.
        ours: True if the testbed has the machine already: its data is no obstacle.
    """
    disk = spec.disks().get(member.node)
    for use, path in member.devices.items():
        found = seen[path]
        size = f"{path}, {format_bytes(_needed_bytes(use, disk))}" if disk else path
        held = format_bytes(found["bytes"])
        problem = device_problem(member.node, use, found, disk)
        if ours and found["is"] == "a device":
            yield CheckResult(use, size, True, f"ours, {held}", "")
        elif problem is not None:
            yield CheckResult(use, size, False, problem, _NAME_ANOTHER)
        elif found["holds"]:
            how = f"if it may go: hotbed up --yes-wipe {path}@{member.node}"
            holds = f"{held} that hold {', '.join(found['holds'])}"
            yield CheckResult(use, size, False, holds, how, needed=False)
        else:
            yield CheckResult(use, size, True, f"{held}, empty", "")
    for problem in _overlaps(member, seen):
        yield CheckResult("devices", "devices apart from each other", False, problem, _NAME_ANOTHER)


def doomed_of(members: Sequence[Member], surveys: Surveys) -> tuple[Doomed, ...]:
    """Return the devices on which something would be destroyed."""
    return tuple(
        Doomed(
            node=member.node,
            device=path,
            bytes=seen["bytes"],
            holds=tuple(seen["holds"]),
            model=seen.get("model"),
        )
        for member in members
        for path in dict.fromkeys(member.devices.values())
        for seen in (surveys[member.node]["devices"][path],)
        if seen["holds"]
    )


def require_consent(
    doomed: Sequence[Doomed], allowed: Collection[str], members: Sequence[Member]
) -> None:
    """Raise UserError if something would be destroyed on a device that `allowed` does not name, or
    if `allowed` names (`Doomed.name`) an unknown device.
    """
    require_known(allowed, members)
    unasked = [one for one in doomed if one.name not in allowed]
    if not unasked:
        return
    listed = "; ".join(one.sentence() for one in unasked[:8])
    more = f"; and {len(unasked) - 8} more" if len(unasked) > 8 else ""
    names = ",".join(one.name for one in unasked)
    raise UserError(
        f"these devices hold something that would be lost: {listed}{more}",
        do=f"if it may go, say `hotbed up ... --yes-wipe {names}`",
    )


def require_known(names: Collection[str], members: Sequence[Member]) -> None:
    """Raise UserError if a name (`Doomed.name`) is of no device of the testbed."""
    there = {f"{path}@{m.node}" for m in members for path in m.devices.values()}
    for name in names:
        if name not in there:
            listed = ", ".join(sorted(there)) or "none"
            raise UserError(f"{name} is no device of this testbed; its devices are: {listed}")


# -- what keeps a testbed off a machine ------------------------------------------------------------


def _holder(own: str | None, survey: Mapping[str, Any]) -> CheckResult:
    mark = survey["mark"]
    found = "nobody"
    if mark is not None:
        found = f"held by the testbed {mark.get('testbed')!r} since {mark.get('since', '?')}"
    how = (
        "take that testbed down first, or name another machine; if nobody has that testbed any "
        "more, delete /etc/hotbed-site.json there"
    )
    ok = mark is None or _is_ours(own, survey)
    return CheckResult("free", "held by no other testbed", ok, found, how)


def _single(node: str, surveys: Surveys) -> CheckResult:
    """Compare identity and boot: a copy of a machine has the identity, but boots by itself."""
    identities = {each: (s["machine_id"], s["boot_id"]) for each, s in surveys.items()}
    mine = identities[node]
    same = [each for each in identities if each != node and all(mine) and identities[each] == mine]
    found = surveys[node]["host_name"]
    if same:
        found = f"the same machine as that of {', '.join(same)}, {found}"
    how = "name one machine for each node"
    return CheckResult("machine", "a machine of its own", not same, found, how)


def _root_login(survey: Mapping[str, Any]) -> CheckResult:
    answer = survey["root_login"]
    ok = answer not in ("no", "forced-commands-only")
    found = answer or "sshd -T is silent"
    found = found if ok else f"closed to root by ssh (PermitRootLogin {answer})"
    how = "set PermitRootLogin prohibit-password in /etc/ssh/sshd_config and reload sshd"
    return CheckResult("root login", "root may log in by key", ok, found, how)


def _ceph(spec: TestbedSpec, survey: Mapping[str, Any]) -> CheckResult:
    """Look for another Ceph: a deployment would refuse it, and a removal must not touch it."""
    own, ceph = fsid_of(KIND, spec.name), survey["ceph"]
    strange = [
        f"fsid {fsid or 'not named'} in {path}"
        for path, fsid in ceph["fsids"].items()
        if fsid != own
    ]
    if own not in ceph["fsids"].values():
        strange += [f"{unit} runs" for unit in ceph["units"] if own not in unit]
    found = "ours" if ceph["fsids"] else "none"
    found = f"part of another Ceph ({', '.join(strange[:4])})" if strange else found
    how = "remove that Ceph first, or name another machine"
    needed = spec.store is not None
    return CheckResult("ceph", "no Ceph of another cluster", not strange, found, how, needed)


def require(
    spec: TestbedSpec, members: Sequence[Member], surveys: Surveys, own: str | None = None
) -> None:
    """Raise UserError if a machine is held by another testbed, is two nodes', closed to root's
    login or part of another Ceph, or if a device can never be taken.

    Args:
        own: identity of the testbed's own mark.
    """
    checks: tuple[Callable[[str], CheckResult], ...] = (
        lambda node: _holder(own, surveys[node]),
        lambda node: _single(node, surveys),
        lambda node: _root_login(surveys[node]),
        lambda node: _ceph(spec, surveys[node]),
    )
    for check in checks:
        for node in surveys:
            finding = check(node)
            if finding.needed and not finding.ok:
                raise UserError(f"the machine of node {node} is {finding.found}: {finding.how}")
    problems = [
        finding.found
        for member in members
        for finding in device_findings(spec, member, surveys[member.node]["devices"])
        if finding.needed and not finding.ok
    ]
    if problems:
        raise UserError(" ".join(problems))


def signal_of(wanted: str | None, surveys: Surveys) -> str:
    """Choose how pressure on disks is sensed, the same way on every machine.

    %iowait as in the DLR paper (section 3) if every machine has few CPUs, else io.pressure.

    Raises:
        UserError: a machine cannot give the signal that is wanted, or any.
    """
    many = [f"{node} ({s['cpus']})" for node, s in surveys.items() if s["cpus"] > IOWAIT_CPUS]
    without = [node for node, survey in surveys.items() if not survey["pressure"]]
    if wanted == "iowait" and many:
        raise UserError(
            f"site.options.signal is iowait, which says little on more than {IOWAIT_CPUS} "
            f"CPUs, and there are: {', '.join(many)}",
            do="choose io_pressure",
        )
    if wanted == "io_pressure" and without:
        raise UserError(
            f"site.options.signal is io_pressure, and {', '.join(without)} has no {PSI_FILE}: "
            "boot with psi=1, or choose iowait on machines with few CPUs"
        )
    if wanted is None and many and without:
        raise UserError(
            f"pressure on disks cannot be sensed: {', '.join(many)} has too many CPUs for "
            f"%iowait, and {', '.join(without)} has no {PSI_FILE}; boot with psi=1"
        )
    return wanted or ("io_pressure" if many else "iowait")


# -- the kernel ------------------------------------------------------------------------------------


def modules_of(spec: TestbedSpec, roles: Collection[str]) -> dict[str, str]:
    """Return the kernel modules that a node with these roles needs, with the reason."""
    store = spec.store
    if isinstance(store, CephSpec) and store.deployer.kind != "own" and "osd" in roles:
        return {"dm_mod": f"{store.deployer.kind} makes OSDs on LVM alone"}
    if isinstance(store, NfsSpec):
        why = "what clients and servers send is enforced"
        return dict.fromkeys(("nf_tables", "sch_htb", "cls_u32"), why)
    if isinstance(store, SwiftSpec):
        found = {"xfs": "Swift's disks are formatted with it"} if "storage" in roles else {}
        found |= {"sch_tbf": "a proxy's share is enforced"} if "proxy" in roles else {}
        return found | ({"nf_tables": "its back ends are closed to others"} if found else {})
    return {}


def _kernel_findings(
    spec: TestbedSpec, roles: Collection[str], survey: Mapping[str, Any]
) -> Iterator[CheckResult]:
    if isinstance(spec.store, CephSpec) and spec.store.deployer.kind == "cephadm":
        inside = survey["container"]
        how = "take virtual machines or bare metal, or deployer own"
        what = "no container itself, for cephadm runs daemons in containers"
        yield CheckResult("container", what, not inside, inside or "none", how)
    needs, modules = modules_of(spec, roles), survey["modules"]
    if not needs:
        return
    lacking = [name for name in needs if modules[name] is False]
    found = [f"no {_CALLED.get(name, name)}: {needs[name]}" for name in lacking]
    found += [f"unknown: {_CALLED.get(name, name)}" for name in needs if modules[name] is None]
    how = "boot a kernel with it (Debian's has all), or install its modules"
    how += "; or choose deployer own" if lacking == ["dm_mod"] else ""
    what = "kernel: " + ", ".join(_CALLED.get(name, name) for name in needs)
    answer = "; ".join(found) or "there, or can be loaded"
    yield CheckResult("features", what, not found, answer, how, needed=bool(lacking))


# -- clocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offset:
    """A machine's clock against the engine's: the best guess and its largest error, in seconds."""

    middle_s: float
    half_s: float

    def certainly_off(self, other: Offset) -> float:
        """Return the least possible difference of two machines' clocks."""
        return max(abs(self.middle_s - other.middle_s) - self.half_s - other.half_s, 0.0)


def offset_of(shell: Shell, clock: Clock) -> Offset:
    """Measure a machine's clock, by the quickest of a few looks: it is read between question and
    answer.

    Raises:
        RemoteError: the machine does not answer, or not with a time.
    """
    looks = []
    for _ in range(CLOCK_LOOKS):
        before, began = clock.now(), clock.monotonic()
        text = shell.run(["sh", "-c", "date +%s.%N"], timeout_s=30.0).text.strip()
        try:
            there = float(text)
        except ValueError:
            raise RemoteError(
                f"the time of machine {shell.node} is unknown: `date +%s.%N` prints {text[:80]!r}."
            ) from None
        took = clock.monotonic() - began
        looks.append(Offset(there - before - took / 2, took / 2))
    return min(looks, key=lambda offset: offset.half_s)


def clock_finding(
    node: str, offsets: Mapping[str, Offset], kept: Mapping[str, bool], monitors: Collection[str]
) -> CheckResult:
    """Check a machine's clock against the engine's and, for a monitor, the other monitors'.

    Only certain differences count: a measurement may be off by half its round trip, a difference
    of two by both. A deployment brings chrony to a machine that does not keep its clock.
    """
    mine = offsets[node]
    away_s = abs(mine.middle_s) - mine.half_s
    found = f"{mine.middle_s:+.3f} s to us, ± {mine.half_s:.3f} s; "
    found += "kept" if kept[node] else "not kept"
    how = "let chrony keep its clock and this machine's, from the same source (`date` on both)"
    how += "" if kept[node] else "; hotbed deploy brings chrony to machines without"
    apart = []
    if node in monitors and kept[node]:
        for other in monitors:
            if other in offsets and kept[other] and mine.certainly_off(offsets[other]) > DRIFT_S:
                apart.append(f"{mine.middle_s - offsets[other].middle_s:+.3f} s to {other}")
    if apart:
        found += f"; {', '.join(apart)}, and monitors bear {DRIFT_S:g} s"
    ok = away_s <= STRANGE_S and not apart
    return CheckResult("clock", "a clock like ours", ok, found, how, needed=away_s > WRONG_S)


# -- inspection ------------------------------------------------------------------------------------


def inspect(
    spec: TestbedSpec,
    members: Sequence[Member],
    look: FirstLook,
    contact: Contact,
    *,
    own: str | None,
    signal: str | None,
    clock: Clock,
) -> tuple[HostFindings, ...]:
    """Check every machine, in the spec's order.

    Args:
        look: machines with a problem in it get one finding.
        own: identity of the testbed's own mark, if the testbed is up.
        signal: the wanted signal; None: the best.
    """
    by_node = {member.node: member for member in members}
    addresses = {}
    for node, login in look.logins.items():
        try:
            addresses[node] = address_of(by_node[node], login)
        except UserError as error:
            look.problems[node] = error

    def more(node: str) -> tuple[Offset, list[str]]:
        shell = contact.shell(first_target(by_node[node].host, look.known_hosts))
        others = [e for e in members if e.node != node and e.node in addresses]
        offset = offset_of(shell, clock)
        targets = {
            f"{other.node}:{number}": (addresses[other.node], number)
            for other in others
            for number in (other.host.port, *ports.to_be_reached(spec, other.node))
        }
        found = ask(shell, "connect", root=look.logins[node].root, targets=targets)
        return offset, _unreached(found, others)

    seen = everywhere(look.surveys, more)
    look.problems.update(seen.lost)
    offsets = {node: offset for node, (offset, _) in seen.found.items()}
    found = []
    for node, member in by_node.items():
        if node in look.problems:
            how = "see docs/sites.md, What a machine must have"
            what = "reached by ssh as root, or with sudo"
            findings = [CheckResult("ssh", what, False, str(look.problems[node]), how)]
        else:
            findings = [
                *_findings(spec, member, look, own, signal),
                _clock(spec, node, offsets, look.surveys),
                _network(node, addresses, seen.found[node][1]),
                _ceph(spec, look.surveys[node]),
                *_kernel_findings(spec, member.roles, look.surveys[node]),
                *device_findings(
                    spec,
                    member,
                    look.surveys[node]["devices"],
                    ours=_is_ours(own, look.surveys[node]),
                ),
            ]
        found.append(HostFindings(node, member.host.name, tuple(findings)))
    return tuple(found)


def _unreached(found: Mapping[str, str | None], others: Sequence[Member]) -> list[str]:
    """Return nodes, ports and reasons of failed connections. Only sshd must listen already."""
    sshds = {f"{other.node}:{other.host.port}" for other in others}
    bad: dict[tuple[str, str], list[str]] = {}
    for name, why in found.items():
        if why is not None and (why != REFUSED or name in sshds):
            node, port = name.rsplit(":", 1)
            bad.setdefault((node, why), []).append(port)
    return [f"{node} at port {', '.join(many)}: {why}" for (node, why), many in bad.items()]


def _is_ours(own: str | None, survey: Mapping[str, Any]) -> bool:
    mark = survey["mark"]
    return mark is not None and own is not None and mark.get("id") == own


def _findings(
    spec: TestbedSpec, member: Member, look: FirstLook, own: str | None, signal: str | None
) -> Iterator[CheckResult]:
    """Check one machine by itself."""
    survey = look.surveys[member.node]
    root = look.logins[member.node].root
    found = "root" if root else "sudo without a password"
    yield CheckResult("ssh", "ssh, and root by login or sudo", True, found, "")
    version = ".".join(map(str, survey["python"]))
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield CheckResult("python", f"Python {oldest} or newer", True, version, "")
    yield _root_login(survey)
    yield _holder(own, survey)
    yield _single(member.node, look.surveys)

    families = f"{survey['distribution']} {survey['distribution_like']}".split()
    installs = survey["apt"] and survey["systemd"] and {"debian", "ubuntu"} & set(families)
    tested = survey["version"] in TESTED.get(survey["distribution"], ())
    yield CheckResult(
        "system",
        "Debian or Ubuntu with systemd (tested on Debian 12)",
        bool(installs) and tested,
        survey["distribution_name"] or "unknown",
        "should work, is not what the tests run on"
        if installs
        else "install Debian 12, or Ubuntu 22.04 or newer",
        needed=not installs,
    )

    has = "io.pressure" if survey["pressure"] else "no io.pressure"
    found = f"{survey['kernel']}, {has}, cgroup {survey['cgroups'] or 'none'}"
    how = "mount the control groups (/sys/fs/cgroup), as systemd does"
    yield CheckResult("kernel", "control groups", bool(survey["cgroups"]), found, how)
    try:
        chosen, why = signal_of(signal, look.surveys), ""
    except UserError as error:
        chosen, why = "none", str(error)
    yield CheckResult("signal", "pressure on disks, the same everywhere", not why, chosen, why)

    group = next(group for group in spec.groups if group.name == member.group)
    how = f"the spec says {group.cpus:g}: results will differ from those of larger machines"
    cpus, enough = survey["cpus"], survey["cpus"] >= group.cpus
    yield CheckResult("cpus", f"{group.cpus:g} CPUs", enough, str(cpus), how, needed=False)
    have, wanted = survey["memory_bytes"], member.memory_bytes
    yield CheckResult(
        "memory",
        f"{format_bytes(wanted)} of memory",
        have >= SIZE_SLACK * wanted,  # a machine sold with 4 GiB shows a little less
        format_bytes(have),
        "take a larger machine, or lower the group's memory in the spec",
        needed=have < wanted / 2,
    )
    free = survey["free_bytes"]
    how = "make room for packages and logs on its system disk"
    what = f"{format_bytes(ROOM_BYTES)} free on /"
    yield CheckResult("room", what, free >= ROOM_BYTES, format_bytes(free), how, needed=False)
    yield _ports(spec, member.node, survey, ours=_is_ours(own, survey))


def _ports(spec: TestbedSpec, node: str, survey: Mapping[str, Any], *, ours: bool) -> CheckResult:
    wanted = ports.ports_of(spec, node)
    listed = [str(port.number) for port in wanted]
    taken = [port.number for port in wanted if port.taken(survey)]
    blocked = bool(taken) and not ours
    if ports.chosen_by_daemons(spec, node):
        # Daemons take the next free one in the range: a few that are taken are no obstacle.
        listed.append(f"{ports.DAEMONS[0]}-{ports.DAEMONS[-1]}")
        taken += sorted(set(ports.DAEMONS) & set(survey["listening"]) - set(taken))
    return CheckResult(
        "ports",
        f"ports {', '.join(listed)}" if listed else "no ports",
        not taken or ours,
        f"taken: {', '.join(map(str, taken))}" if taken else "free",
        "stop what listens there (`ss -tlnp`)",
        needed=blocked,
    )


def _clock(
    spec: TestbedSpec, node: str, offsets: Mapping[str, Offset], surveys: Surveys
) -> CheckResult:
    groups = spec.groups if isinstance(spec.store, CephSpec) else ()
    monitors = [name for group in groups if "mon" in group.roles for name in group.node_names()]
    kept = {each: bool(survey["time_kept"]) for each, survey in surveys.items()}
    return clock_finding(node, offsets, kept, monitors)


def _network(node: str, addresses: Mapping[str, str], unreached: Sequence[str]) -> CheckResult:
    mine = addresses[node]
    same = [each for each, other in addresses.items() if other == mine and each != node]
    loop = ipaddress.ip_address(mine).is_loopback and len(addresses) > 1
    how = "open the firewall between the machines, or give each its private_address"
    found = f"{mine}, which is {', '.join(same)}'s too" if same else mine
    found += f"; cannot reach {'; '.join(unreached)}" if unreached else ""
    ok = not (unreached or loop or same)
    return CheckResult("network", "reaches the other nodes", ok, found, how)
