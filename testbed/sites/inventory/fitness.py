"""Checks of machines against a spec, from their surveys.

`hotbed doctor --site` reports every result; a remark (`CheckResult.needed` False) stops nobody.
`hotbed up` refuses machines that fail a check in `_UP_REFUSES` or a needed check of a device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from schemas.errors import RemoteError, UserError, unknown
from testbed.agent.contract import IOWAIT_CPUS
from testbed.checks import GIB, CheckResult
from testbed.deploy import ports
from testbed.deploy.inventory import fsid_of
from testbed.sites.clock import Clock
from testbed.sites.contract import Doomed, HostFindings
from testbed.sites.inventory.assign import Member, some
from testbed.sites.inventory.contact import (
    Contact,
    FirstLook,
    addresses_of,
    ask,
    everywhere,
    first_target,
)
from testbed.sites.inventory.hostside import REFUSED
from testbed.spec import SIZE_SLACK, CephSpec, NfsSpec, SwiftSpec, TestbedSpec
from testbed.spec.quantities import format_bytes
from testbed.ssh import Shell

KIND = "inventory"
PSI_FILE = "/proc/pressure/io"
ROOM_BYTES = 3 * GIB
"""Space for packages, logs and the control plane on a machine's system disk."""
DRIFT_S = 0.05
"""Offset in seconds above which Ceph's monitors complain (mon_clock_drift_allowed)."""
STRANGE_S, WRONG_S = 1.0, 60.0
"""Offsets of a clock for a remark and for a refusal: keys, logs and files have times."""
_UP_REFUSES = ("root login", "free", "machine", "ceph")

Surveys = Mapping[str, Mapping[str, Any]]
Offset = tuple[float, float]
"""A machine's clock against the engine's: the best guess and its largest error, in seconds."""


# -- devices and consent ---------------------------------------------------------------------------


def device_problem(found: Mapping[str, Any], least_bytes: int = 0) -> str | None:
    """Return why a device (see `hostside.device`) can never be taken; None if it can."""
    if found["is"] != "a device":
        return f"{found['path']} is {found['is']}, no block device"
    if found["uses"]:
        return f"{found['path']} {' and '.join(found['uses'])}, and is never wiped while in use"
    if found.get("read_only"):
        return f"{found['path']} is read-only"
    if found["bytes"] < least_bytes:
        held, least = format_bytes(found["bytes"]), format_bytes(least_bytes)
        return f"{found['path']} holds {held}, and the spec needs at least {least}"
    return None


def device_findings(
    spec: TestbedSpec, member: Member, seen: Mapping[str, Any], *, ours: bool = False
) -> Iterator[CheckResult]:
    """Check a node's devices, `seen` by path (`hostside.device`). If they are `ours`, because the
    testbed has the machine already, their data is no obstacle."""
    disk = spec.disks().get(member.node)
    for use, path in member.devices.items():
        found, least = seen[path], 0
        if disk is not None:
            part = disk.scratch if use == "scratch" else disk.size - disk.scratch
            least = int(part * SIZE_SLACK)
        wanted, held = f"{path}, {format_bytes(least)}", format_bytes(found["bytes"])
        problem = device_problem(found, least)
        # Writing to one of two names of a device, or to a disk, would destroy the other.
        for other in member.devices.values():
            its = seen[other].get("real")
            if other != path and its and its in (found.get("real"), *found.get("parts", ())):
                problem = f"{path} and {other} overlap: they are one device, or disk and partition"
        if ours and found["is"] == "a device":
            yield CheckResult(use, wanted, True, f"ours, {held}", "")
        elif problem is not None:
            how = "name another in site.options.devices"
            yield CheckResult(use, wanted, False, problem, how)
        elif found["holds"]:
            how = f"if it may go: hotbed up --yes-wipe {path}@{member.node}"
            holds = f"{held} that hold {', '.join(found['holds'])}"
            yield CheckResult(use, wanted, False, holds, how, needed=False)
        else:
            yield CheckResult(use, wanted, True, f"{held}, empty", "")


def doomed_of(members: Sequence[Member], surveys: Surveys) -> tuple[Doomed, ...]:
    """Return the devices on which something would be destroyed."""
    return tuple(
        Doomed(member.node, path, seen["bytes"], tuple(seen["holds"]), seen.get("model"))
        for member in members
        for path in dict.fromkeys(member.devices.values())
        for seen in (surveys[member.node]["devices"][path],)
        if seen["holds"]
    )


def require_known(names: Collection[str], members: Sequence[Member]) -> None:
    """Raise UserError if a name (`Doomed.name`) is of no device of the testbed."""
    there = {f"{path}@{m.node}" for m in members for path in m.devices.values()}
    for name in names:
        if name not in there:
            raise unknown("device of this testbed", name, sorted(there))


def require_consent(
    doomed: Sequence[Doomed], allowed: Collection[str], members: Sequence[Member]
) -> None:
    """Raise UserError if something would be destroyed on a device that `allowed` does not name, or
    if `allowed` names (`Doomed.name`) an unknown device.
    """
    require_known(allowed, members)
    unasked = [one for one in doomed if one.name not in allowed]
    if unasked:
        names = ",".join(one.name for one in unasked)
        raise UserError(
            "these devices hold something that would be lost: "
            f"{some((one.sentence() for one in unasked), 8, '; ')}",
            do=f"if it may go, say `hotbed up ... --yes-wipe {names}`",
        )


# -- one machine, from its survey ------------------------------------------------------------------


def require(spec: TestbedSpec, members: Sequence[Member], surveys: Surveys) -> None:
    """Raise UserError if a machine is held by another testbed, is two nodes', closed to root's
    login or part of another Ceph, or if a device can never be taken."""
    for member in members:
        refusing = (*_UP_REFUSES, *member.devices)
        for finding in survey_findings(spec, member, surveys, None):
            if finding.name in refusing and finding.needed and not finding.ok:
                raise UserError(finding.found, where=f"node {member.node}", do=finding.how)


def survey_findings(
    spec: TestbedSpec, member: Member, surveys: Surveys, own: str | None
) -> Iterator[CheckResult]:
    """Check one machine. `own`: identity of the testbed's own mark, if the testbed is up."""
    survey = surveys[member.node]
    ours = own is not None and (survey["mark"] or {}).get("id") == own
    answer = survey["root_login"]
    yield CheckResult(
        "root login",
        "root may log in by key",
        answer not in ("no", "forced-commands-only"),
        f"PermitRootLogin {answer or 'unknown: sshd -T is silent'}",
        "set PermitRootLogin prohibit-password in /etc/ssh/sshd_config and reload sshd",
    )
    mark = survey["mark"]
    yield CheckResult(
        "free",
        "held by no other testbed",
        mark is None or ours,
        "nobody"
        if mark is None
        else f"held by the testbed {mark.get('testbed')!r} since {mark.get('since', '?')}",
        "take that testbed down first, or name another machine; if nobody has that testbed any "
        "more, delete /etc/hotbed-site.json there",
    )
    # A copy of a machine has its identity, but boots by itself.
    identities = {node: (each["machine_id"], each["boot_id"]) for node, each in surveys.items()}
    mine = identities.pop(member.node)
    same = [node for node, other in identities.items() if all(mine) and other == mine]
    found = survey["host_name"]
    found = f"the same machine as that of {', '.join(same)}, {found}" if same else found
    how = "name one machine for each node"
    yield CheckResult("machine", "a machine of its own", not same, found, how)
    yield _ceph(spec, survey)

    families = f"{survey['distribution']} {survey['distribution_like']}".split()
    installs = survey["apt"] and survey["systemd"] and {"debian", "ubuntu"} & set(families)
    yield CheckResult(
        "system",
        "Debian or Ubuntu with systemd (tested on Debian 12 and 13)",
        bool(installs) and survey["distribution"] == "debian" and survey["version"] in ("12", "13"),
        survey["distribution_name"] or "unknown",
        "should work, but the tests run on Debian 12 and 13"
        if installs
        else "install Debian 13, or Ubuntu 22.04 or newer",
        needed=not installs,
    )
    has = "io.pressure" if survey["pressure"] else "no io.pressure"
    found = f"{survey['kernel']}, {has}, {' + '.join(survey['cgroups']) or 'no control groups'}"
    how = "mount the control groups (/sys/fs/cgroup), as systemd does"
    yield CheckResult("kernel", "control groups", bool(survey["cgroups"]), found, how)

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
    room = f"{format_bytes(ROOM_BYTES)} free on /"
    yield CheckResult("room", room, free >= ROOM_BYTES, format_bytes(free), how, needed=False)
    yield _ports(spec, member.node, survey, ours)
    yield from _kernel_findings(spec, member.roles, survey)
    yield from device_findings(spec, member, survey["devices"], ours=ours)


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


def _ports(spec: TestbedSpec, node: str, survey: Mapping[str, Any], ours: bool) -> CheckResult:
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
        "stop the program that listens there (`ss -tlnp`)",
        needed=blocked,
    )


def modules_of(spec: TestbedSpec, roles: Collection[str]) -> dict[str, str]:
    """Return the kernel modules that a node with these roles needs, with the reason."""
    store = spec.store
    if isinstance(store, CephSpec) and store.on_lvm and "osd" in roles:
        return {"dm_mod": f"{store.deployer.kind} makes OSDs only on LVM, by the device mapper"}
    if isinstance(store, NfsSpec):
        reason = "traffic of clients and servers is enforced"
        return dict.fromkeys(("nf_tables", "sch_htb", "cls_u32"), reason)
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
        wanted = "no container itself, because cephadm runs daemons in containers"
        yield CheckResult("container", wanted, not inside, inside or "none", how)
    needs, modules = modules_of(spec, roles), survey["modules"]
    if not needs:
        return
    lacking = [name for name in needs if modules[name] is False]
    found = [f"no {name}: {needs[name]}" for name in lacking]
    found += [f"unknown: {name}" for name in needs if modules[name] is None]
    how = "boot a kernel with it (Debian's has all), or install its modules"
    how += "; or choose deployer own" if lacking == ["dm_mod"] else ""
    answer = "; ".join(found) or "there, or can be loaded"
    wanted = f"kernel: {', '.join(needs)}"
    yield CheckResult("features", wanted, not found, answer, how, needed=bool(lacking))


# -- machines together -----------------------------------------------------------------------------


def signal_of(wanted: str | None, surveys: Surveys) -> str:
    """Choose how pressure on disks is sensed, the same way on every machine: %iowait as in the DLR
    paper (section 3) if every machine has few CPUs, else io.pressure. UserError: a machine cannot
    give the wanted signal, or any."""
    many = [f"{node} ({s['cpus']})" for node, s in surveys.items() if s["cpus"] > IOWAIT_CPUS]
    without = [node for node, survey in surveys.items() if not survey["pressure"]]
    chosen = wanted or ("io_pressure" if many else "iowait")
    if chosen == "iowait" and many:
        raise UserError(
            f"the signal iowait means little on more than {IOWAIT_CPUS} CPUs: {', '.join(many)}",
            do="choose io_pressure (site.options.signal)",
        )
    if chosen == "io_pressure" and without:
        raise UserError(
            f"the signal io_pressure needs {PSI_FILE}, and {', '.join(without)} has none",
            do=f"boot with psi=1, or choose iowait on machines with at most {IOWAIT_CPUS} CPUs",
        )
    return chosen


def offset_of(shell: Shell, clock: Clock) -> Offset:
    """Measure a machine's clock, which is read between question and answer. RemoteError: the
    machine does not answer, or not with a time."""
    before, began = clock.now(), clock.monotonic()
    text = shell.run(["sh", "-c", "date +%s.%N"], timeout_s=30.0).text.strip()
    half = (clock.monotonic() - began) / 2
    try:
        return float(text) - before - half, half
    except ValueError:
        raise RemoteError(
            f"the time of machine {shell.node} is unknown: `date +%s.%N` prints {text[:80]!r}."
        ) from None


def clock_finding(
    node: str, offsets: Mapping[str, Offset], kept: Mapping[str, bool], monitors: Collection[str]
) -> CheckResult:
    """Check a machine's clock against the engine's and, for a monitor, the other monitors'.

    Only certain differences count: a measurement may be off by half its round trip, a difference
    of two by both. A deployment brings chrony to a machine that does not keep its clock.
    """
    mine, half = offsets[node]
    away_s = abs(mine) - half
    found = f"{mine:+.3f} s to us, ± {half:.3f} s; {'kept' if kept[node] else 'not kept'}"
    how = "let chrony keep its clock and this machine's, from the same source (`date` on both)"
    how += "" if kept[node] else "; hotbed deploy brings chrony to machines without"
    apart = []
    for other in monitors if node in monitors and kept[node] else ():
        if other in offsets and kept[other]:
            its, its_half = offsets[other]
            if abs(mine - its) - half - its_half > DRIFT_S:
                apart.append(f"{mine - its:+.3f} s to {other}")
    if apart:
        found += f"; {', '.join(apart)}, and monitors bear {DRIFT_S:g} s"
    ok = away_s <= STRANGE_S and not apart
    return CheckResult("clock", "a clock like ours", ok, found, how, needed=away_s > WRONG_S)


def _unreached(found: Mapping[str, str | None], others: Sequence[Member]) -> list[str]:
    """Return nodes, ports and reasons of failed connections. Only sshd must listen already."""
    sshds = {f"{other.node}:{other.host.port}" for other in others}
    bad: dict[tuple[str, str], list[str]] = {}
    for name, why in found.items():
        if why is not None and (why != REFUSED or name in sshds):
            node, port = name.rsplit(":", 1)
            bad.setdefault((node, why), []).append(port)
    return [f"{node} at port {', '.join(many)}: {why}" for (node, why), many in bad.items()]


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
    """Check every machine, in the spec's order. A machine with a problem in `look` gets one
    finding. `own` is the identity of the testbed's own mark if it is up, `signal` the wanted
    signal."""
    by_node = {member.node: member for member in members}
    addresses, misplaced = addresses_of(members, look.logins)

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

    seen, lost = everywhere(look.surveys, more)
    look.problems.update(lost)
    offsets = {node: offset for node, (offset, _) in seen.items()}
    kept = {node: bool(survey["time_kept"]) for node, survey in look.surveys.items()}
    groups = spec.groups if isinstance(spec.store, CephSpec) else ()
    monitors = [name for group in groups if "mon" in group.roles for name in group.node_names()]
    try:
        chosen, why = signal_of(signal, look.surveys), ""
    except UserError as error:
        chosen, why = "none", str(error)

    def findings(node: str) -> Iterator[CheckResult]:
        if node in look.problems:
            how = "see docs/your-machines.md, What a machine must have"
            wanted = "reached by ssh as root, or with sudo"
            yield CheckResult("ssh", wanted, False, str(look.problems[node]), how)
            return
        login = "root" if look.logins[node].root else "sudo without a password"
        login += f"; Python {'.'.join(map(str, look.surveys[node]['python']))}"
        yield CheckResult("ssh", "ssh, root by login or sudo, and Python", True, login, "")
        yield from survey_findings(spec, by_node[node], look.surveys, own)
        yield CheckResult("signal", "pressure on disks, the same everywhere", not why, chosen, why)
        yield clock_finding(node, offsets, kept, monitors)
        problem, unreached = misplaced.get(node), "; ".join(seen[node][1])
        found = problem.what if problem else addresses[node]
        yield CheckResult(
            "network",
            "reaches the other nodes",
            problem is None and not unreached,
            f"{found}; cannot reach {unreached}" if unreached else found,
            problem.do if problem else "open the firewall between the machines",
        )

    return tuple(HostFindings(m.node, m.host.name, tuple(findings(m.node))) for m in members)
