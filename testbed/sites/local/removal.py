"""Removal of a testbed from any state that a crash left. It uses the names on the machine; records
only help. Safe to repeat.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from testbed import reach
from testbed.deploy.playbook import end_ansible
from testbed.sites.contract import Progress, SiteError
from testbed.sites.local import awake, network, quota_slice
from testbed.sites.local.cgroups import Cgroups
from testbed.sites.local.disk import LocalDisk, detach_loop, folders, loops_on, unmount
from testbed.sites.local.names import LocalNames
from testbed.sites.local.nodes import ANY_DISK, DISKS, at_once
from testbed.sites.local.process import mounts_under

_ATTEMPTS = 3


def names(places: LocalNames, cgroups: Cgroups) -> list[str]:
    """Return the testbeds with any trace: a folder, a control group or a network namespace."""
    found = {path.name for path in places.testbeds.glob("*") if path.is_dir()}
    found |= cgroups.children()
    prefix = places.netns_prefix()
    for netns in network.namespaces(places):
        found.add(netns.removeprefix(prefix).partition(".")[0])
    return sorted(found)


def remove(places: LocalNames, cgroups: Cgroups, name: str, progress: Progress) -> None:
    """Remove everything made for the testbed `name`. SiteError: something cannot be removed; the
    message names it."""
    folder = places.testbed(name)
    left: list[str] = []
    for _ in range(_ATTEMPTS):
        end_ansible(folder)
        reach.hang_up(name, folder, folder / "known_hosts")
        _stop(places, cgroups, name, progress)
        left = leftovers(places, cgroups, name)
        if not left:
            break
    else:
        raise SiteError(f"of testbed {name!r} these cannot be removed: {', '.join(left)}")
    progress("files", 0.9)
    if folder.exists():
        shutil.rmtree(folder)
    _tidy(places, cgroups)
    progress("removed", 1.0)


def _stop(places: LocalNames, cgroups: Cgroups, name: str, progress: Progress) -> None:
    folder = places.testbed(name)
    disks = [LocalDisk(path, ANY_DISK) for node in folder.glob("nodes/*") for path in folders(node)]
    progress("nodes", 0.0)
    # Dying nodes unmount their file systems and so write them back; this must be fast.
    at_once(_unshape, disks)
    groups = cgroups.children(name) - {DISKS}
    at_once(lambda node: cgroups.kill(f"{name}/{node}", 3.0), sorted(groups))
    progress("disks", 0.4)
    at_once(lambda disk: disk.stop(), disks)
    cgroups.kill(name, 2.0)
    loops = loops_on(folder)  # below a removed mount, their files would have another path
    unmount(folder)
    for device in loops:
        detach_loop(device)
    progress("network", 0.7)
    network.remove(places, name)
    cgroups.remove(name)
    machines = Path("/run/systemd/nspawn/propagate")
    for leftover in machines.glob(places.machine(name, "*")):
        shutil.rmtree(leftover, ignore_errors=True)


def leftovers(places: LocalNames, cgroups: Cgroups, name: str) -> list[str]:
    """Return what is on the machine for the testbed `name`, without its folder."""
    folder = places.testbed(name)
    found = [f"process {pid}" for pid in sorted(cgroups.pids(name))]
    found += [f"loop device {device}" for device in loops_on(folder)]
    found += [f"mount {point}" for point in mounts_under(folder)]
    found += [f"network namespace {netns}" for netns in network.namespaces(places, name)]
    found += [f"link {link}" for link in network.uplinks(places) if link == places.uplink(name)]
    if name in cgroups.children():
        found.append(f"control group {cgroups.top}/{name}")
    return found


def _tidy(places: LocalNames, cgroups: Cgroups) -> None:
    """Remove the shared parts after the last testbed."""
    if names(places, cgroups):
        return
    for link in network.uplinks(places):
        network.remove_uplink(link)
    cgroups.remove()
    quota_slice.put_back(places)
    awake.tidy(Cgroups(cgroups.hierarchies, places.awake_cgroup))
    for folder in (Path("/run/hotbed"), Path("/run/systemd/nspawn/propagate")):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _unshape(disk: LocalDisk) -> None:
    with contextlib.suppress(SiteError):
        disk.command({"op": "shape", "on": False}, timeout_s=1.0)
