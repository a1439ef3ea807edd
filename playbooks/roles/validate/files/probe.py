"""Check one machine and report the obstacles to a deployment in sentences.

Run on the node as ``python3 - WANTED`` with a JSON object (see the role's `validate_wanted`);
prints a JSON report. Changes nothing. Standard library only, Python 3.10 or newer.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

HEAD = 1 << 20
BLUESTORE, EXT4 = b"bluestore block device", b"\x53\xef"
UNKNOWN = "data of a kind that is not known"
NAMES = {  # people's names for libblkid's types
    "ceph_bluestore": "a BlueStore",
    **dict.fromkeys(("ext2", "ext3", "ext4"), "an ext2/3/4 file system"),
    "xfs": "an XFS file system",
    "btrfs": "a btrfs file system",
    "LVM2_member": "an LVM physical volume",
    "crypto_LUKS": "a LUKS volume",
    "linux_raid_member": "a member of a RAID array",
    "zfs_member": "a member of a ZFS pool",
    "swap": "swap space",
    **dict.fromkeys(("gpt", "dos", "PMBR"), "a partition table"),
}
CEPH_PACKAGES = ("ceph-osd", "ceph-mon", "ceph-mgr", "ceph-common", "radosgw")


def output(*argv: str) -> str:
    """Return a command's output, empty if it fails or is missing."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    try:
        return subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            env=dict(os.environ, LC_ALL="C", PATH=path),
        ).stdout
    except OSError:
        return ""


def gib(count: int) -> str:
    """Return bytes as text for people."""
    return f"{count / 2**30:.1f} GiB"


def content(path: str, head: bytes) -> str | None:
    """Return a device's content in words, None if empty: everything that libblkid recognises on it
    (superblocks may be at the end), or else any non-zero byte in its first megabyte, `head`.
    """
    listing = output("wipefs", "--json", path)
    if not listing.strip() and not output("wipefs", "--version"):
        return "unknown contents (wipefs of util-linux is missing)"
    rows = json.loads(listing)["signatures"] if listing.strip() else []
    found = dict.fromkeys(NAMES.get(row["type"], row["type"]) for row in rows)
    if found:
        return " and ".join(found)
    return UNKNOWN if head.count(0) != len(head) else None


def made_by_us(number: str) -> bool:
    """Return True if Hotbed made this partition for a store: its raw bytes are leftovers of an
    earlier use of the whole disk, without an owner.
    """
    try:
        lines = (Path("/sys/dev/block") / number / "uevent").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("PARTNAME=hotbed-") for line in lines)


def ext4_label(head: bytes) -> str:
    """Return the volume label of an ext2/3/4 superblock."""
    return head[1144:1160].rstrip(b"\0").decode(errors="replace")


def bluestore_uuid(head: bytes) -> str:
    """Return the OSD's UUID in a BlueStore label."""
    lines = head[:128].split(b"\n")
    return lines[1][:36].decode(errors="replace") if len(lines) > 1 else ""


def mounts(mountinfo: str) -> dict[str, str]:
    """Return the mount point by ``major:minor``, from the text of /proc/self/mountinfo."""
    found: dict[str, str] = {}
    for line in mountinfo.splitlines():
        fields = line.split()
        # A bind mount of a device node mounts the node's own file system, not the device.
        found.setdefault(fields[2], fields[4])
    return found


def children(number: str) -> list[str]:
    """Return the partitions of a disk and the devices stacked on it."""
    folder = Path("/sys/dev/block") / number
    if not folder.is_dir():
        return []
    stacked = [entry.name for entry in folder.glob("holders/*")]
    return sorted([entry.parent.name for entry in folder.glob("*/partition")] + stacked)


class BlockDevice:
    """A block device as the probe sees it; `problem` is a sentence or None."""

    def __init__(
        self, node: str, use: str, path: str, allowed_mount: str | None, ours: bool = False
    ) -> None:
        self.ours = ours  # in use by our own deployment
        self.bytes = 0
        self.head = b""
        self.mounted_at: str | None = None
        self.made_by_us = False
        self.problem = self._look(node, use, path, allowed_mount)

    def _look(self, node: str, use: str, path: str, allowed_mount: str | None) -> str | None:
        where = f"{use} device {path} of node {node}"
        try:
            status = Path(path).stat()
        except OSError as error:
            return f"The {where} cannot be found ({error.strerror}): name one that exists."
        if not stat.S_ISBLK(status.st_mode):
            return f"The {where} is no block device: name a whole disk or a partition."
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        self.made_by_us = made_by_us(number)
        self.mounted_at = mounts(Path("/proc/self/mountinfo").read_text()).get(number)
        if self.mounted_at is not None and self.mounted_at != allowed_mount:
            return f"The {where} is mounted at {self.mounted_at}: unmount it or name another one."
        above = children(number)
        if above:
            return (
                f"The {where} is in use by {', '.join(above)} (partitions or stacked devices): "
                "remove them or name another one."
            )
        return self._open(where, path, number)

    def _open(self, where: str, path: str, number: str) -> str | None:
        try:
            # O_EXCL without O_CREAT fails if the kernel itself (a mount, md, LVM) holds the device.
            exclusive = 0 if self.mounted_at or self.ours else os.O_EXCL
            handle = os.open(path, os.O_RDONLY | exclusive)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return f"The {where} ({number}) is in use by something else: free it first."
            return f"The {where} cannot be opened ({error.strerror})."
        try:
            self.bytes = os.lseek(handle, 0, os.SEEK_END)
            self.head = os.pread(handle, HEAD, 0)
        except OSError as error:
            return f"The {where} cannot be read ({error.strerror}): is the disk broken?"
        finally:
            os.close(handle)
        return None

    def stranger(self, where: str, path: str) -> str | None:
        """Return a sentence if the device has foreign content."""
        found = content(path, self.head)
        if found is None or (found == UNKNOWN and self.made_by_us):
            return None
        return f"The {where} holds {found}: {wipe_hint(path)}."


def check_size(where: str, have: int, need: int) -> str | None:
    """Return a sentence if a device is too small."""
    if have >= need:
        return None
    return f"The {where} holds {gib(have)}; at least {gib(need)} are needed."


def wipe_hint(path: str) -> str:
    """Return advice on how a user allows the loss of the data."""
    return (
        f"if it may go, run `wipefs -a {path} && dd if=/dev/zero of={path} bs=1M count=1` there or "
        "deploy with --wipe"
    )


def check_osd(wanted: dict, osd: dict) -> tuple[int, str | None]:
    """Return the size of an OSD's device, and a sentence if it cannot be taken."""
    node, path = wanted["node"], osd.get("device", "")
    if not path:
        number = osd["id"]
        return 0, f"Node {node} has no device for osd.{number}: give it one in hotbed_osds."
    block = Path(f"/var/lib/ceph/osd/ceph-{osd['id']}/block")
    ours = os.path.realpath(block) == os.path.realpath(path)
    device = BlockDevice(node, "OSD", path, None, ours)
    where = f"OSD device {path} of node {node}"
    problem = device.problem or check_size(where, device.bytes, wanted["osd_min_bytes"])
    # The label is written first: also an interrupted deployment of ours has it.
    ours = device.head.startswith(BLUESTORE) and bluestore_uuid(device.head) == osd["uuid"]
    if problem is None and not ours and not wanted["wipe"]:
        problem = device.stranger(where, path)
    return device.bytes, problem


def check_osds(wanted: dict) -> tuple[list[int], list[str]]:
    """Return the sizes of all OSDs' devices, and sentences on those that cannot be taken."""
    node, osds = wanted["node"], wanted["osds"]
    if wanted["objectstore"] == "filestore" and len(osds) > 1:
        return [0], [f"Node {node} has {len(osds)} OSDs; with FileStore it can have one."]
    found = [check_osd(wanted, osd) for osd in osds]
    return [size for size, _ in found], [problem for _, problem in found if problem]


def check_scratch(wanted: dict) -> tuple[dict, str | None]:
    """Return size and state of the scratch device, and a sentence if it cannot be taken."""
    path = wanted["scratch_device"]
    state = {"bytes": 0, "made": False, "mounted": False}
    if not path:
        return state, None
    device = BlockDevice(wanted["node"], "scratch", path, wanted["scratch_path"])
    where = f"scratch device {path} of node {wanted['node']}"
    problem = device.problem or check_size(where, device.bytes, wanted["scratch_min_bytes"])
    made = device.head[1080:1082] == EXT4 and ext4_label(device.head) == wanted["scratch_label"]
    if problem is None and not made and not wanted["wipe"]:
        problem = device.stranger(where, path)
    state = {"bytes": device.bytes, "made": made, "mounted": device.mounted_at is not None}
    return state, problem


def installed(packages: list[str]) -> dict[str, str]:
    """Return the versions of the installed packages among `packages` (Debian and Ubuntu)."""
    form = "${Package} ${Version} ${db:Status-Abbrev}\n"
    listing = output("dpkg-query", "-W", "-f", form, *packages)
    rows = (line.split() for line in listing.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2].startswith("ii")}


def candidates(packages: list[str]) -> dict[str, str]:
    """Return the version that apt would install, by package; empty while apt has no lists."""
    found, name = {}, ""
    for line in output("apt-cache", "policy", *packages).splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif line.strip().startswith("Candidate:"):
            found[name] = line.split()[-1]
    return found


def major(version: str) -> int | None:
    """Return the major version: 16 for ``16.2.15+ds-0+deb12u2`` or ``1:16.2``."""
    digits = version.split(":")[-1].split(".")[0]
    return int(digits) if digits.isdigit() else None


def ceph_major(have: dict[str, str], coming: dict[str, str]) -> int | None:
    """Return Ceph's major version, of the installed packages or else of apt's."""
    for versions in (have, coming):
        for package in CEPH_PACKAGES:
            number = major(versions.get(package, ""))
            if number is not None:
                return number
    return None


def check_packages(wanted: dict) -> tuple[list[str], int | None, list[str]]:
    """Return missing packages, Ceph's major version, and sentences."""
    node = wanted["node"]
    packages = sorted(set(wanted["packages"]))
    have = installed(packages)
    missing = [package for package in packages if package not in have]
    coming = candidates(missing) if missing else {}
    problems = []
    if missing and shutil.which("apt-get") is None:
        problems.append(
            f"Node {node} lacks {', '.join(missing)} and has no apt to install them with: "
            "install them, or use Debian 12 or Ubuntu 22.04 or newer."
        )
    unknown = [package for package in missing if coming.get(package) == "(none)"]
    if unknown:
        problems.append(
            f"Node {node} lacks {', '.join(unknown)}, which its distribution does not offer: "
            "add a package source that has them."
        )
    number = ceph_major(have, coming)
    if number is not None and number not in wanted["ceph_majors"]:
        allowed = ", ".join(str(known) for known in wanted["ceph_majors"])
        problems.append(f"Node {node} has Ceph {number}; the releases that work are {allowed}.")
    last = wanted["filestore_last_major"]
    if last is not None and number is not None and number > last:
        problems.append(
            f"Node {node} has Ceph {number}, which has no FileStore any more (the last is {last}): "
            "choose objectstore bluestore."
        )
    return missing, number, problems


def fsid_in(text: str) -> str | None:
    """Return the fsid in a ceph.conf, "" if it names none, None for a file without settings."""
    lines = [re.split("[#;]", line)[0].strip() for line in text.splitlines()]
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "fsid":
            return value.strip()
    return "" if any(lines) else None


def fsids(root: Path) -> dict[str, str]:
    """Return clusters (fsids) by the file or folder that shows them; "": a cluster without fsid."""
    found = {}
    try:
        conf = fsid_in((root / "etc/ceph/ceph.conf").read_text(errors="replace"))
    except OSError:
        conf = None
    if conf is not None:
        found["/etc/ceph/ceph.conf"] = conf
    for folder in sorted((root / "var/lib/ceph").glob("*")):
        if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", folder.name):
            found[f"/var/lib/ceph/{folder.name}"] = folder.name  # cephadm's
    for mark in sorted((root / "var/lib/ceph/osd").glob("*/ceph_fsid")):
        found[f"/var/lib/ceph/osd/{mark.parent.name}"] = mark.read_text(errors="replace").strip()
    return found


def other_cluster(wanted: dict, root: Path = Path("/")) -> str | None:
    """Return a sentence if the machine belongs to another Ceph cluster."""
    ours, found = wanted["fsid"], fsids(root)
    listing = ("list-units", "--plain", "--no-legend", "--type=service", "--state=running")
    running = output("systemctl", *listing, "ceph-*@*").split("\n")
    units = [line.split()[0] for line in running if line.split() and ours not in line]
    others = [
        f"fsid {fsid or 'not named'} in {path}" for path, fsid in found.items() if fsid != ours
    ]
    if ours not in found.values():
        others += [f"{unit} runs" for unit in units]
    if not others:
        return None
    return (
        f"Node {wanted['node']} belongs to another Ceph cluster ({', '.join(others[:4])}): remove "
        "that one first."
    )


def time_kept() -> bool:
    """Return True if a service keeps the clock; a container uses its host's."""
    if output("systemd-detect-virt", "--container").strip() not in ("", "none"):
        return True
    units = ("chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service")
    return "active" in output("systemctl", "is-active", *units).split()


def probe(wanted: dict) -> dict:
    """Return the complete report."""
    problems: list[str | None] = []
    if os.geteuid() != 0:
        problems.append(f"Node {wanted['node']} must be managed as root (or with become).")
    if not Path("/run/systemd/system").is_dir():
        problems.append(f"Node {wanted['node']} does not run systemd.")
    missing, number, sentences = check_packages(wanted)
    problems += sentences
    osd_bytes, sentences = check_osds(wanted)
    problems += sentences
    scratch, problem = check_scratch(wanted)
    problems.append(problem)
    problems.append(other_cluster(wanted))
    return {
        "problems": [sentence for sentence in problems if sentence],
        "missing_packages": missing,
        "ceph_major": number,
        "osd_bytes": osd_bytes,
        "filestore_bytes": [scratch["bytes"]],
        "scratch": scratch,
        "time_kept": time_kept(),
    }


if __name__ == "__main__":
    json.dump(probe(json.loads(sys.argv[1])), sys.stdout)
