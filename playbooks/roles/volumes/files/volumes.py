"""Check, make or remove logical volumes for OSDs on one machine.

Run on the node as ``python3 - WANTED``, a JSON object: `action` (check, make or remove), `node`,
`deployer`, `volumes` ([{vg, lv, device}]), `min_bytes`, `wipe` (take devices with content),
`engine` (which must run containers, or none), and for remove `fsid`, the cluster's. Prints
{"problems": [sentence], "changed": [what]}. Standard library only. A deployer that uses ceph-volume
gets volumes, not devices: ceph-volume takes no partition in a batch. After a purge it refuses
leftovers (a physical volume, a volume group, a mapping), which this script removes.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

# Signatures that a purge leaves on a device without its group; others are foreign. (An OSD of ours
# is on a volume: one on the device itself is another cluster's.)
LEFT = frozenset({"LVM2_member"})
ROOT = Path("/")


def run(*argv: str) -> subprocess.CompletedProcess:
    """Run a command and return its result, whatever its exit code."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))


def must(*argv: str) -> str:
    """Return a command's output; end the program with a sentence if it fails."""
    done = run(*argv)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["no reason given"]
        sys.exit(f"{' '.join(argv)}: {words[-1]}")
    return done.stdout


def mapper_name(volume: dict) -> str:
    """Return a volume's device mapper name: dashes doubled, group and volume joined by one."""
    return "-".join(volume[part].replace("-", "--") for part in ("vg", "lv"))


def signatures(listing: str) -> list[str]:
    """Return the types of signatures in the JSON of `wipefs --json`, which is empty for none.

    Such as an LVM2_member or a file system; a partition table counts too.
    """
    if not listing.strip():
        return []
    return [row["type"] for row in json.loads(listing).get("signatures", [])]


def tree(listing: str) -> dict:
    """Return the device itself in the JSON of `lsblk`; {} if it is missing there."""
    devices = json.loads(listing).get("blockdevices", []) if listing.strip() else []
    return devices[0] if devices else {}


def in_use(device: dict, volume: dict) -> str | None:
    """Return the use of a device, other than the wanted volume and ceph-volume; None: free."""
    points = [point for point in device.get("mountpoints") or [] if point]
    if points:
        return f"mounted at {points[0]}"
    wanted = mapper_name(volume)
    others = [
        child["name"]
        for child in device.get("children", [])
        if child["name"] != wanted and not child["name"].startswith("ceph--")
    ]
    return f"in use by {', '.join(others)}" if others else None


def is_made(device: dict, volume: dict) -> bool:
    """Return True if the wanted volume is on the device already."""
    return any(child["name"] == mapper_name(volume) for child in device.get("children", []))


def group_of(path: str) -> str:
    """Return the volume group of a device; empty for none."""
    return run("pvs", "--noheadings", "--options", "vg_name", path).stdout.strip()


def elsewhere(group: str, wanted: dict) -> list[str]:
    """Return a group's devices outside `wanted`: its removal would destroy their content."""
    members = run("vgs", "--noheadings", "--options", "pv_name", group).stdout.split()
    named = {os.path.realpath(volume["device"]) for volume in wanted["volumes"]}
    return sorted(member for member in members if os.path.realpath(member) not in named)


def look(volume: dict) -> tuple[dict, list[str]]:
    """Return lsblk's description of the device, and its signatures."""
    columns = "NAME,TYPE,FSTYPE,SIZE,MOUNTPOINTS"
    listing = run("lsblk", "--json", "--bytes", "--output", columns, volume["device"]).stdout
    return tree(listing), signatures(run("wipefs", "--json", volume["device"]).stdout)


def no_device(path: str) -> str | None:
    """Return why a path is no block device; None if it is one."""
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        return f"cannot be found ({error.strerror}): name one that exists"
    if not stat.S_ISBLK(mode):
        return "is no block device: name a whole disk or a partition"
    return None


def problem_of(volume: dict, wanted: dict) -> str | None:
    """Return why a device cannot be taken, in a sentence."""
    path, node = volume["device"], wanted["node"]
    where = f"OSD device {path} of node {node}"
    reason = no_device(path)
    if reason is not None:
        return f"The {where} {reason}."
    device, found = look(volume)
    if is_made(device, volume):
        return None
    used = in_use(device, volume)
    if used is not None:
        return f"The {where} is {used}: free it or name another one."
    group = group_of(path)
    if group == volume["vg"]:  # interrupted before the volume was made
        return None
    size = int(device.get("size") or 0)
    if size < wanted["min_bytes"]:
        return (
            f"The {where} holds {size / 2**30:.1f} GiB; at least "
            f"{wanted['min_bytes'] / 2**30:.1f} GiB are needed."
        )
    if found and not wanted["wipe"]:
        return (
            f"The {where} holds {', '.join(sorted(set(found)))}: if it may go, deploy with --wipe."
        )
    others = elsewhere(group, wanted) if group else []
    if others:
        return (
            f"The {where} is part of the volume group {group}, which is on {', '.join(others)} "
            "too: free it or name another one."
        )
    return None


def has_mapper() -> bool:
    """Return True if the kernel has a device mapper; load it if needed."""
    if "device-mapper" not in Path("/proc/misc").read_text():
        run("modprobe", "dm_mod")
    return "device-mapper" in Path("/proc/misc").read_text()


def machine_problems(wanted: dict) -> list[str]:
    """Return what the machine itself lacks for this deployer."""
    node, deployer = wanted["node"], wanted["deployer"]
    problems = []
    inside = run("systemd-detect-virt", "--container").stdout.strip()
    if wanted["engine"] and inside not in ("", "none"):
        problems.append(
            f"Node {node} is itself a container ({inside}), and {deployer} runs every daemon in "
            f"one ({wanted['engine']}): take virtual machines or bare metal, or deployer own."
        )
    if wanted["volumes"] and not has_mapper():
        problems.append(
            f"The kernel of node {node} has no device mapper, and {deployer} makes OSDs on LVM "
            "alone: take machines with dm_mod in the kernel, or deployer own."
        )
    return problems


def free(volume: dict, *, ours: bool) -> list[str]:
    """Remove volumes, groups and signatures from a device; with `ours` only a store's leftovers."""
    path = volume["device"]
    # Without LVM's commands, a physical volume in a foreign group seems to be in no group.
    if no_device(path) is not None or run("pvs", "--version").returncode != 0:
        return []
    group = group_of(path)
    if ours and group and group != volume["vg"]:
        return []
    changed = []
    if group:
        must("vgremove", "--force", "--force", "--yes", group)
        changed.append(f"{path}: volume group {group} removed")
    # A mapping without its group on the disk would keep the device busy for ever.
    for child in look(volume)[0].get("children", []):
        if child.get("type") == "lvm" and child["name"].startswith(("ceph--", "hotbed--")):
            must("dmsetup", "remove", "--retry", child["name"])
            changed.append(f"{path}: mapping {child['name']} removed")
    left = look(volume)[1]
    if left and (not ours or set(left) <= LEFT):
        must("wipefs", "--all", path)
        changed.append(f"{path}: {', '.join(sorted(set(left)))} wiped")
    return changed


def osd_units(fsid: str) -> list[str]:
    """Return systemd's names of the cluster's OSDs on this machine, cephadm's and those of
    packages; the machine may also have other clusters' OSDs."""
    marks = sorted(ROOT.glob("var/lib/ceph/osd/ceph-*/ceph_fsid"))
    ours = [mark.parent.name for mark in marks if mark.read_text().strip() == fsid]
    names = [f"ceph-osd@{name.removeprefix('ceph-')}.service" for name in ours]
    return [f"ceph-{fsid}@osd.*.service", *names]


def make(volume: dict, wanted: dict) -> list[str]:
    """Make a volume over a whole device."""
    device, found = look(volume)
    if is_made(device, volume):
        return []
    path, group = volume["device"], volume["vg"]
    changed = []
    if group_of(path) != group:
        if found:
            problem = problem_of(volume, wanted)
            if problem is not None:
                sys.exit(problem)
            changed += free(volume, ours=False)
        must("vgcreate", "--yes", group, path)  # makes the physical volume too
    must("lvcreate", "--yes", "--wipesignatures", "y", "-l", "100%FREE", "-n", volume["lv"], group)
    return [*changed, f"{group}/{volume['lv']} made on {path}"]


def main() -> None:
    """Run the script; see the module."""
    wanted = json.loads(sys.argv[1])
    os.environ["LC_ALL"] = "C"
    problems: list[str] = []
    changed: list[str] = []
    if wanted["action"] == "check":
        problems = machine_problems(wanted)
        found = [problem_of(volume, wanted) for volume in wanted["volumes"]]
        problems += [sentence for sentence in found if sentence]
    if wanted["action"] == "remove" and wanted["volumes"]:
        # A purge that failed half-way leaves OSDs that hold their devices.
        run("systemctl", "stop", *osd_units(wanted["fsid"]))
    for volume in wanted["volumes"]:
        if wanted["action"] == "make":
            changed += make(volume, wanted)
        elif wanted["action"] == "remove":
            changed += free(volume, ours=True)
    json.dump({"problems": problems, "changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
