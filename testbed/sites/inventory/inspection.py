"""`hotbed doctor --site`: what each machine has of what a spec needs, as one finding a check.

A remark (`Finding.needed` False) keeps nobody from going on; what is needed does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import HotbedError, UserError
from testbed import ports
from testbed.checks import GIB, Finding
from testbed.quantities import format_bytes
from testbed.sites.clock import Clock
from testbed.sites.contract import HostFindings
from testbed.sites.inventory import features, fitness
from testbed.sites.inventory.assign import Member
from testbed.sites.inventory.clocks import Offset, clock_finding, monitors_of, offset_of
from testbed.sites.inventory.contact import OLDEST_PYTHON, Contact, ask, everywhere
from testbed.sites.inventory.hostside.seeing import REFUSED
from testbed.sites.inventory.look import Look, address_of, first_target
from testbed.spec import SIZE_SLACK, GroupSpec, TestbedSpec

ROOM_BYTES = 3 * GIB
"""For packages, logs and the control plane on a machine's system disk."""
TESTED = {"debian": ("12",)}


def inspect(
    spec: TestbedSpec,
    members: Sequence[Member],
    look: Look,
    contact: Contact,
    *,
    own: str | None,
    signal: str | None,
    clock: Clock,
) -> tuple[HostFindings, ...]:
    """Findings on every machine, in the spec's order.

    Args:
        look: what was seen of them; machines with a problem get one finding.
        own: identity of the testbed's own mark, where it is up already.
        signal: the one that is asked for; None: the best.
    """
    addresses = _addresses(members, look)

    def more(node: str) -> tuple[Offset, list[str]]:
        member = next(each for each in members if each.node == node)
        shell = contact.shell(first_target(member.host, look.known_hosts))
        others = [e for e in members if e.node != node and e.node in addresses]
        offset = offset_of(shell, clock)
        targets = targets_of(spec, others, addresses)
        found = ask(shell, "connect", root=look.logins[node].root, targets=targets)
        return offset, unreached(found, others)

    seen = everywhere(look.surveys, more)
    for node, error in seen.lost.items():
        look.problems[node] = error
    offsets = {node: offset for node, (offset, _) in seen.found.items()}
    try:
        chosen, why = fitness.signal_of(signal, look.surveys), ""
    except UserError as error:
        chosen, why = "none", str(error)
    found = []
    for member in members:
        if member.node in look.problems:
            findings = [_lost(look.problems[member.node])]
        else:
            bad = seen.found[member.node][1]
            host = _Host(spec, member, look, own, offsets, bad, addresses, (chosen, why))
            findings = list(host.findings())
        found.append(HostFindings(member.node, member.host.name, tuple(findings)))
    return tuple(found)


def _addresses(members: Sequence[Member], look: Look) -> dict[str, str]:
    found = {}
    for member in members:
        if member.node in look.logins:
            try:
                found[member.node] = address_of(member, look.logins[member.node])
            except UserError as error:
                look.problems[member.node] = error
    return found


def _lost(error: HotbedError) -> Finding:
    how = "see docs/sites.md, What a machine must have"
    return Finding("ssh", "reached by ssh as root, or with sudo", False, str(error), how)


def targets_of(
    spec: TestbedSpec, others: Sequence[Member], addresses: Mapping[str, str]
) -> dict[str, tuple[str, int]]:
    """Address and port by ``node:port``, of all that a node has to reach at the others."""
    return {
        f"{other.node}:{number}": (addresses[other.node], number)
        for other in others
        for number in (other.host.port, *ports.to_be_reached(spec, other.node))
    }


def unreached(found: Mapping[str, str | None], others: Sequence[Member]) -> list[str]:
    """Nodes, ports and why, of what was tried in vain. Nobody need listen yet, but for sshd."""
    sshds = {f"{other.node}:{other.host.port}" for other in others}
    bad: dict[tuple[str, str], list[str]] = {}
    for name, why in found.items():
        if why is not None and (why != REFUSED or name in sshds):
            node, port = name.rsplit(":", 1)
            bad.setdefault((node, why), []).append(port)
    return [f"{node} at port {', '.join(many)}: {why}" for (node, why), many in bad.items()]


@dataclass(frozen=True)
class _Host:
    spec: TestbedSpec
    member: Member
    look: Look
    own: str | None
    offsets: Mapping[str, Offset]
    unreached: Sequence[str]
    addresses: Mapping[str, str]
    signal_of_all: tuple[str, str]

    @property
    def survey(self) -> Mapping[str, Any]:
        return self.look.surveys[self.member.node]

    @property
    def ours(self) -> bool:
        """Whether our own testbed is on it already: its daemons and data are no obstacle."""
        mark = self.survey["mark"]
        return mark is not None and mark.get("id") == self.own

    def findings(self) -> Iterator[Finding]:
        checks: tuple[Callable[[], Finding], ...] = (
            *(self.ssh, self.python, self.root_login, self.holder, self.machine),
            *(
                self.distribution,
                self.kernel,
                self.signal,
                self.cpus,
                self.memory,
                self.room,
                self.ports,
                self.clock,
            ),
            *(self.network, self.ceph),
        )
        for check in checks:
            yield check()
        yield from features.findings(self.spec, self.member.roles, self.survey["features"])
        yield from self.devices()

    def ssh(self) -> Finding:
        login = self.look.logins[self.member.node]
        found = "root" if login.root else "sudo without a password"
        return Finding("ssh", "ssh, and root by login or sudo", True, found, "")

    def python(self) -> Finding:
        version = ".".join(str(part) for part in self.survey["python"])
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("python", f"Python {oldest} or newer", True, version, "")

    def root_login(self) -> Finding:
        told = self.survey["root_login"]
        ok = told not in ("no", "forced-commands-only")
        how = "set PermitRootLogin prohibit-password in /etc/ssh/sshd_config and reload sshd"
        return Finding("root login", "root may log in by key", ok, told or "sshd -T is silent", how)

    def holder(self) -> Finding:
        mark = self.survey["mark"]
        ok = mark is None or self.ours
        found = "nobody" if mark is None else f"testbed {mark.get('testbed')}"
        how = "take that testbed down, or delete /etc/hotbed-site.json there if nobody has it"
        return Finding("free", "held by no other testbed", ok, found, how)

    def machine(self) -> Finding:
        mine = fitness.identity_of(self.survey)
        same = [
            node
            for node, survey in self.look.surveys.items()
            if node != self.member.node and all(mine) and fitness.identity_of(survey) == mine
        ]
        found = f"{', '.join(same)} is the same machine" if same else self.survey["host_name"]
        return Finding(
            "machine", "a machine of its own", not same, found, "name one machine for each node"
        )

    def distribution(self) -> Finding:
        survey = self.survey
        name = f"{survey['distribution']} {survey['distribution_like']}".split()
        installs = survey["apt"] and survey["systemd"] and {"debian", "ubuntu"} & set(name)
        tested = survey["version"] in TESTED.get(survey["distribution"], ())
        what = "Debian or Ubuntu with systemd (tested on Debian 12)"
        how = "install Debian 12, or Ubuntu 22.04 or newer"
        return Finding(
            "system",
            what,
            bool(installs) and tested,
            survey["distribution_name"] or "unknown",
            "should work, is not what the tests run on" if installs else how,
            needed=not installs,
        )

    def kernel(self) -> Finding:
        survey = self.survey
        has = "io.pressure" if survey["pressure"] else "no io.pressure"
        found = f"{survey['kernel']}, {has}, cgroup {survey['cgroups'] or 'none'}"
        how = "mount the control groups (/sys/fs/cgroup), as systemd does"
        return Finding("kernel", "control groups", bool(survey["cgroups"]), found, how)

    def signal(self) -> Finding:
        chosen, why = self.signal_of_all
        return Finding("signal", "pressure on disks, the same everywhere", not why, chosen, why)

    def cpus(self) -> Finding:
        have, wanted = self.survey["cpus"], self._group().cpus
        how = f"the spec says {wanted:g}: results will differ from those of larger machines"
        return Finding("cpus", f"{wanted:g} CPUs", have >= wanted, str(have), how, needed=False)

    def memory(self) -> Finding:
        have, wanted = self.survey["memory_bytes"], self.member.memory_bytes
        # A machine sold with 4 GiB shows a little less.
        ok = have >= SIZE_SLACK * wanted
        return Finding(
            "memory",
            f"{format_bytes(wanted)} of memory",
            ok,
            format_bytes(have),
            "take a larger machine, or lower the group's memory in the spec",
            needed=have < wanted / 2,
        )

    def room(self) -> Finding:
        have = self.survey["free_bytes"]
        how = "make room for packages and logs on its system disk"
        what = f"{format_bytes(ROOM_BYTES)} free on /"
        return Finding("room", what, have >= ROOM_BYTES, format_bytes(have), how, needed=False)

    def ports(self) -> Finding:
        wanted = ports.ports_of(self.spec, self.member.node)
        told = [str(port.number) for port in wanted]
        taken = [port.number for port in wanted if port.taken(self.survey)]
        blocked = bool(taken) and not self.ours
        if ports.chosen_by_daemons(self.spec, self.member.node):
            # Daemons take the next free one in the range: a few that are taken are no obstacle.
            told.append(f"{ports.DAEMONS[0]}-{ports.DAEMONS[-1]}")
            taken += sorted(set(ports.DAEMONS) & set(self.survey["listening"]) - set(taken))
        return Finding(
            "ports",
            f"ports {', '.join(told)}" if told else "no ports",
            not taken or self.ours,
            f"taken: {', '.join(map(str, taken))}" if taken else "free",
            "stop what listens there (`ss -tlnp`)",
            needed=blocked,
        )

    def clock(self) -> Finding:
        kept = {node: bool(survey["time_kept"]) for node, survey in self.look.surveys.items()}
        mons = monitors_of(self.spec)
        return clock_finding(self.member.node, self.offsets, kept, mons)

    def network(self) -> Finding:
        bad = self.unreached
        mine = self.addresses[self.member.node]
        same = [n for n, other in self.addresses.items() if other == mine and n != self.member.node]
        loop = ipaddress.ip_address(mine).is_loopback and len(self.addresses) > 1
        how = "open the firewall between the machines, or give each its private_address"
        found = f"{mine}, which is {', '.join(same)}'s too" if same else mine
        found += f"; cannot reach {'; '.join(bad)}" if bad else ""
        ok = not (bad or loop or same)
        return Finding("network", "reaches the other nodes", ok, found, how)

    def ceph(self) -> Finding:
        strange = fitness.strange_ceph(self.spec.name, self.survey)
        how = "remove that Ceph, or name another machine"
        found = ", ".join(strange) or ("ours" if self.survey["ceph"]["fsids"] else "none")
        needed = self.spec.store is not None
        return Finding("ceph", "no Ceph of another cluster", not strange, found, how, needed)

    def devices(self) -> Iterator[Finding]:
        disk = self.spec.disks().get(self.member.node)
        for use, path in self.member.devices.items():
            seen = self.survey["devices"][path]
            size = f"{path}, {format_bytes(fitness.needed_bytes(use, disk))}" if disk else path
            problem = fitness.device_problem(self.member.node, use, seen, disk)
            holds = ", ".join(seen["holds"])
            if self.ours and seen["is"] == "a device":
                yield Finding(use, size, True, f"ours, {format_bytes(seen['bytes'])}", "")
            elif problem is not None:
                yield Finding(use, size, False, problem, "name another in site.options.devices")
            elif holds:
                how = f"if it may go: hotbed up --yes-wipe {path}@{self.member.node}"
                found = f"{format_bytes(seen['bytes'])} that hold {holds}"
                yield Finding(use, size, False, found, how, needed=False)
            else:
                yield Finding(use, size, True, f"{format_bytes(seen['bytes'])}, empty", "")

        for problem in fitness.overlaps(self.member, self.survey["devices"]):
            how = "name another in site.options.devices"
            yield Finding("devices", "devices apart from each other", False, problem, how)

    def _group(self) -> GroupSpec:
        return next(group for group in self.spec.groups if group.name == self.member.group)
