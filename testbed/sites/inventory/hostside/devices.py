"""Block devices: what they are, what uses them, what is on them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from typing import Any

from testbed.sites.inventory.hostside.base import Machine

HEAD = 1 << 20
UNKNOWN = "data of a kind that is not known"


def device(machine: Machine, name: str) -> dict[str, Any]:
    """A block device: whether it is one, its size, what uses it and what is on it.

    ``uses`` are sentences' ends on why it may never be wiped; ``holds`` what wiping destroys, and
    ``uuids`` of what of it has one; ``identity`` tells it from another of its size, whatever its
    name; ``osd`` is the folder of the OSD whose store it is, if any; ``real`` and ``parts`` are the
    path behind links and those of its partitions.
    """
    found: dict[str, Any] = {"path": name, "is": "nothing", "bytes": 0, "uses": [], "holds": []}
    found.update(uuids=[], identity={}, model=None, osd=None)
    path = machine.path(name)
    try:
        status = path.stat()
    except OSError:
        return found
    if not is_block(status):
        found["is"] = "a folder" if stat.S_ISDIR(status.st_mode) else "a file"
        return found
    found["is"] = "a device"
    parts = partitions(machine, number_of(status))
    found["real"] = str(path.resolve())
    found["osd"] = _osd(machine, found["real"])
    found["parts"] = [str(machine.path("dev/" + part).resolve()) for _, part in parts]
    members = [number_of(status)] + [number for number, _ in parts]
    found["uses"] = _uses(machine, name, members)
    probed = _pairs(machine.run(["blkid", "-p", "-o", "export", str(path)]))
    signatures, found["uuids"] = _signatures(machine, name)
    if "PTUUID" in probed:
        found["uuids"].append("partition table " + probed["PTUUID"])
    found["identity"] = _identity(machine, number_of(status), probed)
    if not signatures and not machine.run(["wipefs", "--version"]):
        found["uses"].append("cannot be judged (wipefs is missing)")
    found["holds"] = [f"a partition {part}" for _, part in parts] + signatures
    try:
        handle = os.open(str(path), os.O_RDONLY)
        try:
            found["bytes"] = os.lseek(handle, 0, os.SEEK_END)
            head = os.pread(handle, HEAD, 0)
        finally:
            os.close(handle)
    except OSError as error:
        found["uses"].append(f"cannot be read ({error.strerror})")
        return found
    if not found["holds"] and head.count(0) != len(head):
        found["holds"].append(UNKNOWN)
    found["read_only"] = _sys(machine, number_of(status), "ro").strip() == "1"
    found["model"] = _first(machine, number_of(status), "device/model")
    return found


def is_block(status: os.stat_result) -> bool:
    """Whether it is a block device."""
    return stat.S_ISBLK(status.st_mode)


def number_of(status: os.stat_result) -> str:
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _sys(machine: Machine, number: str, name: str) -> str:
    return machine.text(f"sys/dev/block/{number}/{name}")


def _first(machine: Machine, number: str, *names: str) -> str | None:
    """The first of these files of sysfs that says something of a disk, or of a partition's disk."""
    disk = number + "/.." if _sys(machine, number, "partition") else number
    found = (_sys(machine, disk, name).strip() for name in names)
    return next((text for text in found if text), None)


def _identity(machine: Machine, number: str, probed: dict[str, str]) -> dict[str, str | None]:
    """What a device keeps over a boot, when names move on; None where nothing tells."""
    udev = _pairs(machine.text("run/udev/data/b" + number).replace("E:", ""))
    return {
        "wwn": _first(machine, number, "wwid", "device/wwid"),
        "serial": _first(machine, number, "serial", "device/serial", "device/cid"),
        "udev": udev.get("ID_SERIAL"),
        "volume": _first(machine, number, "dm/uuid", "md/uuid"),
        "partition": probed.get("PART_ENTRY_UUID"),
    }


def _osd(machine: Machine, real: str) -> str | None:
    """Folder of the OSD that has its store on the device at the path `real`, running or not."""
    links = sorted(machine.path("var/lib/ceph/osd").glob("*/block"))
    found = (str(link.parent) for link in links if os.path.realpath(link) == real)
    return next(found, None)


def _pairs(text: str) -> dict[str, str]:
    """Lines ``NAME=value``."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, equals, value in pairs if equals}


def partitions(machine: Machine, number: str) -> list[tuple[str, str]]:
    """Number and kernel's name of each partition of a disk."""
    folder = machine.path("sys/dev/block/" + number)
    found = sorted(entry.parent for entry in folder.glob("*/partition"))
    return [((part / "dev").read_text().strip(), part.name) for part in found]


def _uses(machine: Machine, name: str, members: Sequence[str]) -> list[str]:
    """What uses any of the devices with these numbers now."""
    found = []
    for line in machine.text("proc/self/mountinfo").splitlines():
        fields = line.split()
        if len(fields) > 4 and fields[2] in members:
            found.append(f"is mounted at {fields[4]}")
    swaps = [line.split()[0] for line in machine.text("proc/swaps").splitlines()[1:]]
    for swap in swaps:
        try:
            status = machine.path(swap).stat()
        except OSError:
            continue
        if is_block(status) and number_of(status) in members:
            found.append("is swap space in use")
    for number in members:
        holders = machine.path(f"sys/dev/block/{number}/holders")
        found += [f"is part of {entry.name}" for entry in sorted(holders.glob("*"))]
    if not found:
        try:
            # O_EXCL without O_CREAT: fails when the kernel itself (md, LVM, a mount) holds it.
            os.close(os.open(str(machine.path(name)), os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            found.append(f"is in use ({error.strerror})")
    return found


def _signatures(machine: Machine, name: str) -> tuple[list[str], list[str]]:
    """What libblkid recognises on it, such as ``ext4 'data'``, and the UUIDs, ``ext4 0f8f...``."""
    printed = machine.run(["wipefs", "--json", str(machine.path(name))])
    try:
        rows = json.loads(printed)["signatures"] if printed.strip() else []
    except (ValueError, KeyError):
        rows = []
    found, uuids = {}, {}  # each once, in their order
    for row in rows:
        what = str(row.get("type"))
        if row.get("uuid"):
            uuids["{} {}".format(what, row["uuid"])] = True
        if row.get("label"):
            what += " '{}'".format(row["label"])
        found[what] = True
    return list(found), list(uuids)
