"""Whether machines are fit to be a testbed's nodes, judged from what was seen on them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import IOWAIT_CPUS
from testbed.inventory import fsid_of
from testbed.quantities import format_bytes
from testbed.sites.contract import Doomed
from testbed.sites.inventory.assign import Member
from testbed.spec import SIZE_SLACK, DiskSpec, TestbedSpec

KIND = "inventory"
PSI_FILE = "/proc/pressure/io"

Surveys = Mapping[str, Mapping[str, Any]]


def needed_bytes(use: str, disk: DiskSpec) -> int:
    """The least size of a device for this use."""
    part = disk.scratch if use == "scratch" else disk.size - disk.scratch
    return int(part * SIZE_SLACK)


def device_problem(
    node: str, use: str, found: Mapping[str, Any], disk: DiskSpec | None
) -> str | None:
    """Why a device can never be taken, as one sentence; None when it can."""
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
    if disk is not None and found["bytes"] < needed_bytes(use, disk):
        return (
            f"The {where} holds {format_bytes(found['bytes'])}, and the spec wants "
            f"{format_bytes(needed_bytes(use, disk))} of it at least: name a larger one, or lower "
            "the disk's size in the spec."
        )
    return None


def device_problems(spec: TestbedSpec, members: Sequence[Member], surveys: Surveys) -> list[str]:
    """Why devices can never be taken."""
    disks = spec.disks()
    found = []
    for member in members:
        for use, path in member.devices.items():
            seen = surveys[member.node]["devices"][path]
            problem = device_problem(member.node, use, seen, disks.get(member.node))
            if problem is not None:
                found.append(problem)
        found += overlaps(member, surveys[member.node]["devices"])
    return found


def overlaps(member: Member, seen: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Devices with two names, and a disk named beside one of its partitions: what is written to the
    one would destroy the other.
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


def doomed_of(members: Sequence[Member], surveys: Surveys) -> tuple[Doomed, ...]:
    """The devices on which something would be destroyed."""
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
    """Raise a sentence unless everything that would be destroyed was named.

    Raises:
        UserError: something was not, or a name is of no device of the testbed.
    """
    require_known(allowed, members)
    unasked = [one for one in doomed if one.name not in allowed]
    if not unasked:
        return
    told = "; ".join(one.sentence() for one in unasked[:8])
    more = f"; and {len(unasked) - 8} more" if len(unasked) > 8 else ""
    names = ",".join(one.name for one in unasked)
    raise UserError(
        f"these devices hold something that would be lost: {told}{more}. If it may go, say "
        f"`hotbed up ... --yes-wipe {names}`."
    )


def require_known(names: Collection[str], members: Sequence[Member]) -> None:
    """Raise a sentence when a name (`Doomed.name`) is of no device of the testbed.

    Raises:
        UserError: one is not.
    """
    there = {f"{path}@{m.node}" for m in members for path in m.devices.values()}
    for name in names:
        if name not in there:
            listed = ", ".join(sorted(there)) or "none"
            raise UserError(f"{name} is no device of this testbed; its devices are: {listed}.")


def require_unheld(testbed: str, identity: str, surveys: Surveys) -> None:
    """Raise a sentence when another testbed holds a machine.

    Raises:
        UserError: one does.
    """
    for node, survey in surveys.items():
        mark = survey["mark"]
        if mark is not None and mark.get("id") != identity:
            raise UserError(
                f"the machine of node {node} is held by the testbed {mark.get('testbed')!r} since "
                f"{mark.get('since', '?')}: take that one down first, or give {testbed} another "
                "machine; if nobody has that testbed any more, delete /etc/hotbed-site.json there."
            )


def strange_ceph(testbed: str, survey: Mapping[str, Any]) -> tuple[str, ...]:
    """What a machine has of another Ceph than this testbed's own: a deployment would refuse it, and
    a removal must not touch it.
    """
    ours, ceph = fsid_of(KIND, testbed), survey["ceph"]
    found = [
        f"fsid {fsid or 'not named'} in {path}"
        for path, fsid in ceph["fsids"].items()
        if fsid != ours
    ]
    if ours not in ceph["fsids"].values():
        found += [f"{unit} runs" for unit in ceph["units"] if ours not in unit]
    return tuple(found)


def require_no_strange_ceph(spec: TestbedSpec, surveys: Surveys) -> None:
    """Raise a sentence when a machine that is to get a store belongs to another Ceph.

    Raises:
        UserError: one does.
    """
    for node, survey in surveys.items():
        found = strange_ceph(spec.name, survey)
        if found and spec.store is not None:
            raise UserError(
                f"the machine of node {node} belongs to another Ceph ({', '.join(found[:4])}): "
                "remove that one first, or name another machine."
            )


def require_login(surveys: Surveys) -> None:
    """Raise a sentence when root's login by key is switched off somewhere.

    Raises:
        UserError: it is.
    """
    for node, survey in surveys.items():
        if survey["root_login"] in ("no", "forced-commands-only"):
            raise UserError(
                f"the machine of node {node} does not let root in by ssh (PermitRootLogin "
                f"{survey['root_login']}): set it to prohibit-password in /etc/ssh/sshd_config and "
                "reload sshd."
            )


def signal_of(wanted: str | None, surveys: Surveys) -> str:
    """How pressure on disks is sensed, the same way on every machine.

    %iowait as in the DLR paper (section 3) where every machine has few CPUs, else io.pressure.

    Raises:
        UserError: a machine cannot give the signal that is wanted, or any.
    """
    many = [f"{node} ({s['cpus']})" for node, s in surveys.items() if s["cpus"] > IOWAIT_CPUS]
    without = [node for node, survey in surveys.items() if not survey["pressure"]]
    if wanted == "iowait" and many:
        raise UserError(
            f"site.options.signal is iowait, which says little on more than {IOWAIT_CPUS} CPUs, "
            f"and there are: {', '.join(many)}: choose io_pressure."
        )
    if wanted == "io_pressure" and without:
        raise UserError(
            f"site.options.signal is io_pressure, and {', '.join(without)} has no {PSI_FILE}: boot "
            "with psi=1, or choose iowait on machines with few CPUs."
        )
    if wanted is not None:
        return wanted
    if not many:
        return "iowait"
    if not without:
        return "io_pressure"
    raise UserError(
        f"pressure on disks cannot be sensed: {', '.join(many)} has too many CPUs for %iowait, "
        f"and {', '.join(without)} has no {PSI_FILE}; boot with psi=1."
    )


def identity_of(survey: Mapping[str, Any]) -> tuple[str, str]:
    """What tells a machine from a copy of it and from itself under another address."""
    return survey["machine_id"], survey["boot_id"]


def require_spread(surveys: Surveys) -> None:
    """Raise a sentence when two nodes are one machine.

    Raises:
        UserError: they are, as far as the machines' boots and identities tell.
    """
    seen: dict[tuple[str, str], str] = {}
    for node, survey in surveys.items():
        identity = identity_of(survey)
        if all(identity) and identity in seen:
            raise UserError(
                f"nodes {seen[identity]} and {node} are the same machine, {survey['host_name']}: "
                "give each a machine of its own."
            )
        seen[identity] = node
