"""Setup of a fresh machine as a node: its name, firewall and disks.

It runs as root like `testbed.sites.inventory.hostside`, with a request of `servers._request` and an
answer of devices and facts. Repeating it changes nothing. Standard library only, Python 3.10 or
newer: nothing of Hotbed is on the machine yet.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Disk = dict[str, Any]  # of lsblk

MIB = 2**20
IMAGES = Path("/var/lib/hotbed-site")
UNITS = Path("/etc/systemd/system")
BY = Path("/dev/disk/by-partlabel")
SPARE_BYTES = 3 * 2**30  # left to the system when a file stands for a disk
UNIT = """[Unit]
Description=Disk {number} of this node, a file
DefaultDependencies=no
After=local-fs-pre.target -.mount
Before=ceph.target umount.target
Conflicts=umount.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={losetup} --find --partscan --direct-io=on {image}

[Install]
WantedBy=multi-user.target
"""


class Trouble(Exception):
    """An obstacle; the text completes a sentence that begins with the machine."""


def run(*argv: str, stdin: str = "") -> str:
    """Return the standard output of a command; raise Trouble if it fails."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Trouble(f"lacks the program {argv[0]!r} on its image") from error
    if done.returncode != 0:
        words = " ".join(done.stderr.split())[-300:] or "no message"
        raise Trouble(f"failed at {' '.join(argv)}: {words}")
    return done.stdout


# -- name and neighbours --------------------------------------------------------------------------


def name_machine(own: str) -> None:
    """Set the node's host name."""
    if platform.node() != own:
        run("hostnamectl", "set-hostname", own)


def open_firewall(peers: list[str]) -> None:
    """Let only the other nodes through the image's own firewall."""
    active = ["systemctl", "--quiet", "is-active", "firewalld"]
    if shutil.which("firewall-cmd") and subprocess.run(active, check=False).returncode == 0:
        for address in peers:
            zone = ("--quiet", "--permanent", "--zone=trusted")
            run("firewall-cmd", *zone, f"--add-source={address}")
        run("firewall-cmd", "--quiet", "--reload")
    if shutil.which("ufw") and "Status: active" in run("ufw", "status"):
        for address in peers:
            run("ufw", "allow", "from", address)


# -- disks --------------------------------------------------------------------------------------


def block_devices() -> list[Disk]:
    """Return lsblk's whole disks, with their parts as ``children``."""
    columns = "NAME,PATH,TYPE,SIZE,ROTA,RO,MODEL,MOUNTPOINTS,PARTLABEL,PARTUUID"
    listed = json.loads(run("lsblk", "--json", "--bytes", "--output", columns))
    return [each for each in listed["blockdevices"] if each["type"] in ("disk", "loop")]


def tree(device: Disk) -> list[Disk]:
    """Return a device and everything on it."""
    return [device, *(each for child in device.get("children", ()) for each in tree(child))]


def in_use(device: Disk) -> bool:
    """Return True if any part is mounted, swap, or part of a volume. Volumes on a disk that Hotbed
    divided for an earlier server do not count: the kernel finds them at every boot."""
    parts = tree(device)
    mounted = any(point for part in parts for point in part.get("mountpoints") or ())
    others = {part["type"] for part in parts} - {"disk", "part", "loop"}
    return mounted or bool(others and not (others == {"lvm"} and is_divided(device)))


def is_divided(device: Disk) -> bool:
    """Return True if Hotbed divided this disk, for any server."""
    return any((part.get("partlabel") or "").startswith("hotbed-") for part in tree(device))


def label(use: str, number: int, mark: str) -> str:
    """Return the name of a part in its partition table, at most 36 characters. `mark` is the
    server's: data on a disk survives a lease, and parts of an earlier server are not ours."""
    return f"hotbed-{use}{number or ''}-{mark}"


def parts_of(device: Disk, number: int, mark: str) -> dict[str, Disk]:
    """Return our existing parts of the disk `number` by their uses."""
    named = {part.get("partlabel"): part for part in device.get("children", ())}
    uses = {f"osd{number or ''}": "osd", "scratch": "scratch"}
    labels = {use: label(kind, number, mark) for use, kind in uses.items()}
    return {use: named[text] for use, text in labels.items() if text in named}


def free_disks(devices: list[Disk], need: int, media: str) -> list[Disk]:
    """Return unused whole disks that are large enough and of the wanted kind."""
    wanted = {"any": (True, False), "rotational": (True,), "solid": (False,)}[media]
    return [
        device
        for device in devices
        if device["type"] == "disk"
        and not device["ro"]
        and not re.match(r"(loop|zram|ram|sr|fd)\d", device["name"])
        and int(device["size"]) >= need
        and bool(device["rota"]) in wanted
        and not in_use(device)
    ]


def clear(device: Disk) -> None:
    """Remove everything from an earlier server's disk, from its volumes down to its table."""
    for part in {part["path"]: part for part in reversed(tree(device))}.values():
        if part["type"] == "lvm":
            run("dmsetup", "remove", "--retry", part["name"])
        else:
            run("wipefs", "--all", "--force", part["path"])
    settle()


def divide(path: str, number: int, mark: str, osd_bytes: int, scratch_bytes: int) -> None:
    """Make one or two parts on a disk and wipe it; the part for files is the first.

    Names are written last: a named part is empty, also after a crash.
    """
    sizes = [size for size in (scratch_bytes, osd_bytes) if size]
    lines = ["label: gpt", *(f"size={size // MIB}MiB" for size in sizes)]
    run("sfdisk", "--wipe", "always", "--wipe-partitions", "always", path, stdin="\n".join(lines))
    settle()
    table = json.loads(run("sfdisk", "--json", path))["partitiontable"]
    sector = int(table.get("sectorsize", 512))
    for part, size in zip(table["partitions"], sizes, strict=True):
        empty(path, int(part["start"]) * sector, size)
    uses = ("scratch", "osd") if scratch_bytes else ("osd",)
    for place, use in enumerate(uses, start=1):
        run("sfdisk", "--part-label", path, str(place), label(use, number, mark))
    settle()


def empty(path: str, start: int, size: int) -> None:
    """Overwrite a part's first and last bytes and BlueStore's copies of the first ones: a part of
    an earlier lease had the same place, and its store must not be found."""
    with Path(path).open("r+b") as disk:
        for place in (0, *(gib * 2**30 for gib in (1, 10, 100, 1000)), size - MIB):
            if 0 <= place <= size - MIB:
                disk.seek(start + place)
                disk.write(bytes(MIB))
        disk.flush()
        os.fsync(disk.fileno())


def settle() -> None:
    """Wait until udev has seen the changes."""
    if shutil.which("udevadm"):
        run("udevadm", "settle", "--timeout=30")


def file_for(number: int, need: int) -> str:
    """Return a loop device on a file of `need` bytes, attached now and at every boot."""
    image, losetup = IMAGES / f"disk{number}.img", shutil.which("losetup") or "/sbin/losetup"
    IMAGES.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not image.exists():
        free = shutil.disk_usage(IMAGES).free
        if free < need + SPARE_BYTES:
            raise Trouble(
                f"has {free // MIB} MiB free on its root disk, too few for a disk of "
                f"{need // MIB} MiB: make the group's disk smaller or take a larger flavor"
            )
        partial = image.with_suffix(".new")
        run("fallocate", "--length", str(need), str(partial))
        partial.rename(image)
    unit = f"hotbed-disk{number}.service"
    (UNITS / unit).write_text(UNIT.format(number=number, losetup=losetup, image=image))
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--quiet", unit)
    look = (losetup, "--noheadings", "--output", "NAME", "--associated", str(image))
    if not run(*look).split():
        run("systemctl", "restart", unit)
    return run(*look).split()[0]


def lasting(parts: dict[str, Disk], wait_s: float = 10.0) -> dict[str, str]:
    """Return each part's path, by its name, which lasts over a boot, if udev makes such a path."""
    end = time.monotonic() + (wait_s if shutil.which("udevadm") else 0.0)
    named = {use: BY / part["partlabel"] for use, part in parts.items()}
    while not all(path.exists() for path in named.values()) and time.monotonic() < end:
        time.sleep(0.2)
    return {use: str(path) if path.exists() else parts[use]["path"] for use, path in named.items()}


def make_disks(wanted: dict[str, Any]) -> dict[str, str]:
    """Return the path of every use; choose and divide disks where needed."""
    made: dict[str, str] = {}
    mark = wanted["mark"]
    for number, disk in enumerate(wanted["disks"]):
        osd_bytes, scratch_bytes = int(disk["osd_bytes"]), int(disk["scratch_bytes"])
        need = osd_bytes + scratch_bytes + 4 * MIB  # the tables at both ends
        count = 2 if scratch_bytes else 1
        path = disk["path"] or (file_for(number, need) if wanted["files"] else None)
        devices = block_devices()
        if path is None:
            path = choose(devices, number, mark, need, wanted["media"])
        device = find(devices, path)
        if len(parts_of(device, number, mark)) < count:
            if in_use(device):
                raise Trouble(f"has {path} in use (mounted, or in a volume): name another disk")
            if int(device["size"]) < need:
                raise Trouble(
                    f"has {int(device['size']) // MIB} MiB on {path}, and {need // MIB} are needed"
                )
            clear(device)
            divide(device["path"], number, mark, osd_bytes, scratch_bytes)
            device = find(block_devices(), path)
        parts = parts_of(device, number, mark)
        if len(parts) < count:
            raise Trouble(f"does not show the parts of {path}, which was divided: see lsblk there")
        made.update(lasting(parts))
    return made


def choose(devices: list[Disk], number: int, mark: str, need: int, media: str) -> str:
    """Return the disk that has our parts, else the first free one."""
    for device in devices:
        if parts_of(device, number, mark):
            return str(device["path"])
    ours = re.compile(label(r"(osd|scratch)\d*", 0, mark))
    others = [
        d for d in devices if not any(ours.fullmatch(p.get("partlabel") or "") for p in tree(d))
    ]
    free = free_disks(others, need, media)
    if not free:
        seen = ", ".join(
            f"{d['path']} of {int(d['size']) // 2**30} GiB{' (in use)' if in_use(d) else ''}"
            for d in devices
            if d["type"] == "disk"
        )
        raise Trouble(
            f"has no disk of at least {need // MIB} MiB free for the store ({seen or 'no disks'}): "
            "name one in site.options.devices, or take another node_type"
        )
    return str(min(free, key=lambda d: (len(d["name"]), d["name"]))["path"])


def find(devices: list[Disk], path: str) -> Disk:
    """Return the device at `path`, also by another of its names."""
    real = os.path.realpath(path)
    for device in devices:
        if device["path"] == real:
            return device
    raise Trouble(f"has no whole disk {path}")


def given_parts(parts: dict[str, str]) -> dict[str, str]:
    """Check devices that the spec names one by one."""
    for use, path in parts.items():
        if not Path(path).is_block_device():
            raise Trouble(f"has no block device {path}, which was named for {use}")
    return parts


# -- facts --------------------------------------------------------------------------------------


def facts() -> dict[str, object]:
    """Return facts of the machine for a run's provenance."""
    product = Path("/sys/class/dmi/id/product_name")
    return {
        "cpus": os.cpu_count() or 1,
        "product": product.read_text().strip() if product.exists() else "",
        "pressure": Path("/proc/pressure/io").exists(),
    }


def set_up(wanted: dict[str, Any]) -> dict[str, object]:
    """Do everything, in order."""
    name_machine(wanted["hostname"])
    open_firewall(wanted["peers"])
    devices = given_parts(wanted["parts"]) if wanted["parts"] else make_disks(wanted)
    return {"devices": devices, "facts": facts()}


if __name__ == "__main__":
    try:
        answer = {"ok": True, "result": set_up(json.loads(sys.argv[1]))}
    except Trouble as trouble:
        answer = {"ok": False, "error": str(trouble)}
    print(json.dumps(answer))
