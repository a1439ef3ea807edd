"""Remove everything that a deployment brought to one machine, however far it had come.

Run on the node as ``python3 - WANTED`` with a JSON object (see the role's `remove_wanted`). Safe to
repeat. Devices lose their labels only if these are Hotbed's; a foreign Ceph, NFS server or Swift
stays complete. Prints {"changed": [what, ...], "strange": true if a foreign Ceph is here}.
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
import time
from pathlib import Path

CEPH_UNITS = ("ceph-osd@*", "ceph-mgr@*", "ceph-radosgw@*", "ceph-mon@*")
UNITS = ("hotbed-*",)
TARGETS = ("ceph.target", *(f"ceph-{kind}.target" for kind in ("mon", "mgr", "osd", "radosgw")))
CONF = "etc/ceph/ceph.conf"
DROPINS = "etc/systemd/system/ceph-*@.service.d/hotbed.conf"
# The proof that it is ours goes last, so that an interrupted removal can resume.
CEPH_DATA = (
    "var/lib/ceph/mon/ceph-*",
    "var/lib/ceph/mgr/ceph-*",
    "var/lib/ceph/radosgw/ceph-*",
    "var/lib/ceph/osd/ceph-*",
    "var/lib/ceph/crash/*",
    "var/log/ceph/*",
    "run/ceph/*",
    "etc/ceph/ceph.client.admin.keyring",
    "etc/ceph/ceph.client.admin.keyring.new",
    # Those of ceph-ansible, if its purge failed.
    "etc/ceph/ceph.client.crash.keyring",
    "etc/ceph/monmap",
    "var/lib/ceph/bootstrap-*/*",
    "var/lib/ceph/tmp/*",
    DROPINS,
    CONF,
)
PACKAGES = ("ceph-base", "ceph-common", "ceph-mon", "ceph-mgr", "ceph-osd", "radosgw")
FOLDERS = re.compile("/etc/ceph|/var/(lib|log)/ceph(/.*)?")
MODES = {"/var/lib/ceph": 0o750, "/var/log/ceph": 0o3770}
GANESHA, GANESHA_STATE = "etc/systemd/system/hotbed-ganesha.service", "var/lib/nfs/ganesha"
DATA = (
    "usr/share/ceph/mgr/bcrypt.py",
    "etc/systemd/system/hotbed-*",
    "etc/systemd/system/*.target.wants/hotbed-*",
    "usr/local/bin/hotbed-*",
    "opt/hotbed",
    "opt/hotbed.new",
    "opt/hotbed-cosbench",
    "etc/hotbed",
    "run/hotbed/*",
    "run/hotbed-swift",
)
ROOT = Path("/")
# A node may be the machine that deploys. Root's Hotbed keeps its records of testbeds, its locks and
# its connections to testbeds (folders with a folder ssh) there; these are not the node's.
STATE, RUN = "var/lib/hotbed", "run/hotbed"
REMEMBERED = frozenset({"sites", "testbeds", "locks"})
SWIFT_LINK, SWIFT_USER, COSBENCH_USER = Path("/etc/swift"), "hotbed-swift", "hotbed-cosbench"
SETTINGS = "/etc/hotbed/"
HEAD_BYTES = 8 * 2**20
BLUESTORE = b"bluestore block device"
UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def systemctl(*arguments: str) -> str:
    """Return the output of systemctl; its failures do not stop the removal."""
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    return done.stdout


def fsid_of(conf: Path) -> str:
    """Return the fsid in a ceph.conf; empty if it names none."""
    for line in conf.read_text(errors="replace").splitlines():
        key, _, value = re.split("[#;]", line, maxsplit=1)[0].partition("=")
        if key.strip() == "fsid":
            return value.strip()
    return ""


def ceph_is_ours(wanted: dict) -> bool:
    """Return True if the Ceph on this machine is the testbed's: by ceph.conf, which a deployment
    writes first, or else by traces that only our deployments leave.
    """
    if (ROOT / CONF).exists():
        return fsid_of(ROOT / CONF) == wanted["fsid"]
    marks = ROOT.glob("var/lib/ceph/osd/ceph-*/ceph_fsid")
    found = any(mark.read_text(errors="replace").strip() == wanted["fsid"] for mark in marks)
    return found or any(ROOT.glob(DROPINS))


def is_another_clusters(path: Path, wanted: dict) -> bool:
    """Return True if a file or folder is named by another cluster's fsid, as cephadm's are."""
    return bool(UUID.fullmatch(path.name)) and path.name != wanted["fsid"]


def ceph_is_strange(wanted: dict) -> bool:
    """Return True if there is a foreign Ceph on this machine."""
    if any(is_another_clusters(path, wanted) for path in ROOT.glob("var/lib/ceph/*")):
        return True
    here = (ROOT / CONF).exists() or any(ROOT.glob("var/lib/ceph/*/ceph-*"))
    return here and not ceph_is_ours(wanted)


def stop_units(units: tuple) -> list[str]:
    """Stop every unit of these patterns; return a sentence for each running one."""
    pattern = ["list-units", "--all", "--plain", "--no-legend", "--full", *units]
    loaded = [line.split()[0] for line in systemctl(*pattern).splitlines() if line.split()]
    running = [unit for unit in loaded if systemctl("is-active", unit).strip() == "active"]
    gateways = [unit for unit in running if unit.startswith("ceph-radosgw@")]
    if gateways:
        # Other nodes stop the OSDs meanwhile; without OSDs a gateway waits until it is killed.
        systemctl("stop", "--no-block", *gateways)
        systemctl("kill", "--signal=KILL", *gateways)
    if loaded:
        systemctl("stop", *loaded)
    return [f"{unit} stopped" for unit in running]


def disable_ceph() -> list[str]:
    """Keep Ceph's units and targets from starting at boot."""
    enabled = [path.name for path in Path("/etc/systemd/system").glob("ceph-*.target.wants/*@*")]
    targets = [name for name in TARGETS if systemctl("is-enabled", name).strip() == "enabled"]
    if enabled or targets:
        systemctl("disable", *enabled, *targets)
    return [f"{unit} disabled" for unit in enabled]


def remove_path(path: Path) -> None:
    """Remove a file, link or folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_empty(folder: Path) -> None:
    """Remove an empty folder."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def remove_state() -> list[str]:
    """Remove the node's state, but nothing of the machine that deploys."""
    doomed = [path for path in sorted(ROOT.glob(f"{STATE}/*")) if path.name not in REMEMBERED]
    for path in doomed:
        remove_path(path)
    remove_empty(ROOT / STATE)
    return [f"{path} removed" for path in doomed]


def remove_all(patterns: tuple, wanted: dict) -> list[str]:
    """Remove everything that matches these patterns."""
    changed = []
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            connections = path.parent == ROOT / RUN and (path / "ssh").is_dir()
            if connections or path == ROOT / RUN / "locks" or is_another_clusters(path, wanted):
                continue
            remove_path(path)
            changed.append(f"{path} removed")
    return changed


def remove_files(wanted: dict) -> list[str]:
    """Remove data, keys, settings and units; of Ceph and NFS only the testbed's."""
    changed = remove_all(CEPH_DATA, wanted) if ceph_is_ours(wanted) else []
    # The distribution's own server keeps its state in the same folder; our server has a unit.
    if (ROOT / GANESHA).exists():
        changed += remove_all((GANESHA_STATE,), wanted)
    changed += remove_all(DATA, wanted)
    remove_empty(ROOT / RUN)
    for folder in ROOT.glob("etc/systemd/system/ceph-*@.service.d"):
        remove_empty(folder)
    return changed


def restore_folders() -> list[str]:
    """Make the folders of installed Ceph packages that ceph-ansible's purge removed; daemons of a
    later deployment need them."""
    command = ["dpkg", "--listfiles", *PACKAGES]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    changed = []
    for line in sorted(set(listing.splitlines())):
        path = ROOT / line[1:]
        if FOLDERS.fullmatch(line) and not path.exists():
            path.mkdir()
            if line != "/etc/ceph":
                shutil.chown(path, "ceph", "ceph")
            path.chmod(MODES.get(line, 0o755))
            changed.append(f"{path} restored")
    return changed


def unmount(wanted: dict) -> list[str]:
    """Unmount the scratch file system and forget its unit."""
    path = Path(wanted["scratch_path"])
    name = subprocess.run(
        ["systemd-escape", "--path", "--suffix=mount", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    unit = Path("/etc/systemd/system") / name
    changed = []
    if os.path.ismount(path):
        systemctl("stop", name)
        for _ in range(50):
            if not os.path.ismount(path):
                break
            subprocess.run(["umount", str(path)], capture_output=True, check=False)
            time.sleep(0.2)
        else:
            sys.exit(f"{path} cannot be unmounted: something still uses it")
        changed.append(f"{path} unmounted")
    if unit.exists():
        systemctl("disable", name)
        unit.unlink()
        changed.append(f"{name} removed")
    return changed


def is_ours(head: bytes, wanted: dict) -> bool:
    """Return True if a device's head has an OSD or a scratch file system of ours."""
    if head.startswith(BLUESTORE):
        uuid = head[:128].split(b"\n")[1][:36].decode(errors="replace")
        return uuid in {osd["uuid"] for osd in wanted["osds"]}
    label = head[1144:1160].rstrip(b"\0").decode(errors="replace")
    return head[1080:1082] == b"\x53\xef" and label == wanted["scratch_label"]


def wipe(device: str, wanted: dict) -> list[str]:
    """Zero the head of a device of ours, and return the device to root."""
    if not device or not Path(device).exists():
        return []
    handle = os.open(device, os.O_RDWR)
    try:
        if not is_ours(os.pread(handle, 4096, 0), wanted):
            return []
        size = os.lseek(handle, 0, os.SEEK_END)
        os.pwrite(handle, bytes(min(HEAD_BYTES, size)), 0)
        os.fsync(handle)
    finally:
        os.close(handle)
    shutil.chown(os.path.realpath(device), "root", "disk")
    return [f"{device} wiped"]


def remove_swift(wanted: dict) -> list[str]:
    """Remove Swift's disks, user and link; its environment only together with the packages."""
    changed = []
    devices = Path("/srv/hotbed-swift")
    for path in sorted(devices.glob("*")):
        if os.path.ismount(path):
            subprocess.run(["umount", str(path)], capture_output=True, check=False)
        if os.path.ismount(path):
            sys.exit(f"{path} cannot be unmounted: something still uses it")
        path.rmdir()
        changed.append(f"{path} unmounted")
    if devices.is_dir():
        devices.rmdir()
    for device in wanted["swift_disks"]:
        changed += wipe_xfs(device, wanted)
    changed += remove_link()
    changed += remove_user(SWIFT_USER)
    for path in (Path(wanted["swift_venv"]), Path("/var/lib/hotbed/swift-packages.tar")):
        if wanted["packages"] and path.exists():
            remove_path(path)
            changed.append(f"{path} removed")
    return changed


def remove_link() -> list[str]:
    """Remove Swift's link to our settings; a link elsewhere belongs to another Swift."""
    if not SWIFT_LINK.is_symlink():
        return []
    if not os.readlink(SWIFT_LINK).startswith(SETTINGS):  # noqa: PTH115 - of Python 3.9
        return []
    SWIFT_LINK.unlink()
    return [f"{SWIFT_LINK} removed"]


def remove_user(name: str) -> list[str]:
    """Remove an account of ours and its processes: a replicator's pass belongs to no unit."""
    subprocess.run(["pkill", "-KILL", "-u", name], capture_output=True, check=False)
    done = subprocess.run(["userdel", name], capture_output=True, check=False)
    return [f"user {name} removed"] if done.returncode == 0 else []


def wipe_xfs(device: str, wanted: dict) -> list[str]:
    """Zero the head of a disk with a file system of our label."""
    if not Path(device).exists():
        return []
    handle = os.open(device, os.O_RDWR)
    try:
        head = os.pread(handle, 4096, 0)
        label = head[108:120].rstrip(b"\0").decode(errors="replace")
        if not head.startswith(b"XFSB") or label != wanted["swift_label"]:
            return []
        os.pwrite(handle, bytes(HEAD_BYTES), 0)
        os.fsync(handle)
    finally:
        os.close(handle)
    return [f"{device} wiped"]


def forget_names() -> list[str]:
    """Remove our lines from /etc/hosts and root's authorized keys."""
    changed = []
    patterns = (
        ("etc/hosts", rb"# BEGIN hotbed\r?\n.*?# END hotbed\r?(\n|$)"),
        ("root/.ssh/authorized_keys", rb"[^\n]* hotbed-admin\r?(\n|$)"),
    )
    for name, pattern in patterns:
        path = ROOT / name
        if not path.exists():
            continue
        # Bytes, because other programs' lines may have any encoding and line ends.
        text = path.read_bytes()
        left = re.sub(pattern, b"", text, flags=re.DOTALL)
        if left != text:
            rewrite(path.resolve(), left)
            changed.append(f"{path} cleaned")
    return changed


def rewrite(path: Path, content: bytes) -> None:
    """Replace a file's content atomically; owner and mode stay."""
    new, before = path.with_name(f"{path.name}.hotbed-new"), path.stat()
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        os.fchown(handle, before.st_uid, before.st_gid)
        os.fchmod(handle, stat.S_IMODE(before.st_mode))
        file.flush()
        os.fsync(handle)
    try:
        new.replace(path)
    except OSError as error:
        new.unlink()
        if error.errno != errno.EBUSY:
            raise
        path.write_bytes(content)  # in a container it may be a mount of its own


def main() -> None:
    """Run the script; see the module."""
    wanted = json.loads(sys.argv[1])
    ours, strange = ceph_is_ours(wanted), ceph_is_strange(wanted)
    changed = stop_units((*CEPH_UNITS, *UNITS) if ours else UNITS)
    changed += disable_ceph() if ours else []
    changed += remove_files(wanted)
    changed += restore_folders()
    changed += remove_swift(wanted)
    changed += remove_user(COSBENCH_USER)
    changed += unmount(wanted)
    for osd in wanted["osds"]:
        changed += wipe(osd.get("device", ""), wanted)
    changed += wipe(wanted["scratch_device"], wanted)
    changed += remove_state()
    changed += forget_names()
    if changed:
        systemctl("daemon-reload")
        systemctl("reset-failed")
    json.dump({"changed": changed, "strange": strange}, sys.stdout)


if __name__ == "__main__":
    main()
