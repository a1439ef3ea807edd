"""Prepare the environment, user and disks of a Swift node: run there as ``python3 - look|make
WANTED`` with a JSON object (see the role's `swift_wanted`).

`look` changes nothing and prints {problems: [sentence], needs_packages}; `make` prints {changed}.
Standard library only. Safe to repeat; a run resumes an interrupted one.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

UNIT = Path("/etc/systemd/system/hotbed-swift-disks.service")
LINK = Path("/etc/swift")


def run(*argv: str, check: bool = True) -> str:
    """Return a command's output; with `check`, a failure ends the script with the last message."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(argv[:3])} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def has_packages(wanted: dict) -> bool:
    """Return True if the environment has the archive's content."""
    return Path(wanted["venv"], f".packages-{wanted['digest']}").exists()


def problems(wanted: dict) -> list[str]:
    """Return the obstacles, as sentences."""
    found = []
    mine = "{}.{}-{}".format(*sys.version_info[:2], platform.machine())
    if wanted["packages"] and mine != wanted["platform"]:
        found.append(
            f"Node {platform.node()} has Python {mine}, and Swift's packages are for "
            f"{wanted['platform']}, as on the admin node: use machines with one distribution."
        )
    ours = LINK.is_symlink() and os.readlink(LINK) == wanted["etc"]  # noqa: PTH115 - of Python 3.9
    if os.path.lexists(LINK) and not ours:
        found.append(
            f"Node {platform.node()} has a Swift of its own ({LINK}): remove it or use another."
        )
    for disk in wanted["disks"]:
        found += look_at(disk["device"], wanted)
    return found


def look_at(device: str, wanted: dict) -> list[str]:
    """Return a sentence if a disk cannot be taken."""
    where = f"disk {device} of node {platform.node()}"
    if not Path(device).exists():
        return [f"The {where} cannot be found: name one that exists."]
    size = int(run("blockdev", "--getsize64", device))
    if size < wanted["min_bytes"]:
        return [f"The {where} holds {size} bytes; at least {wanted['min_bytes']} are needed."]
    label, kind = signature(device)
    if kind and label != wanted["label"] and not wanted["wipe"]:
        return [
            f"The {where} holds something else ({kind}): if it may go, run `wipefs -a {device}` "
            "there or deploy with wiping allowed."
        ]
    return []


def signature(device: str) -> tuple[str, str]:
    """Return label and type of a device's content."""
    text = run("blkid", "-p", "-o", "export", device, check=False)
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return pairs.get("LABEL", ""), pairs.get("TYPE", pairs.get("PTTYPE", ""))


def make_environment(wanted: dict) -> list[str]:
    """Make a virtual environment with the archive's content, atomically; none on a node without
    servers of Swift."""
    if not wanted["packages"]:
        return []
    archive = Path(wanted["archive"])
    if has_packages(wanted):
        archive.unlink(missing_ok=True)
        return []
    venv = Path(wanted["venv"])
    new = venv.with_name(f".{venv.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(new))
    site = next(new.glob("lib/python*/site-packages"))
    run("tar", "-xf", str(archive), "-C", str(site))
    for program in (site / "bin").glob("swift-*"):
        text = program.read_text().split("\n", 1)[1]
        target = new / "bin" / program.name
        target.write_text(f"#!{venv}/bin/python\n{text}")
        target.chmod(0o755)
    shutil.rmtree(site / "bin")
    (new / f".packages-{wanted['digest']}").touch()
    shutil.rmtree(venv, ignore_errors=True)
    new.rename(venv)
    archive.unlink(missing_ok=True)
    return [f"{venv} made"]


def make_user(wanted: dict) -> list[str]:
    """Make the folder of settings, the servers' user, and /etc/swift, because several of Swift's
    programs look there."""
    changed = []
    etc = Path(wanted["etc"])
    if not etc.is_dir():
        etc.mkdir(parents=True)
        etc.chmod(0o755)
        changed.append(f"{etc} made")
    try:
        pwd.getpwnam(wanted["user"])
    except KeyError:
        run("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
            "--shell", "/usr/sbin/nologin", wanted["user"])  # fmt: skip
        changed.append(f"user {wanted['user']} made")
    if not LINK.is_symlink():
        LINK.symlink_to(etc)
        changed.append(f"{LINK} made")
    return changed


def make_disks(wanted: dict) -> list[str]:
    """Make XFS on each disk; one unit mounts all, now and at every boot."""
    changed = []
    for disk in wanted["disks"]:
        label, _ = signature(disk["device"])
        if label != wanted["label"]:
            run("mkfs.xfs", "-q", "-f", "-K", "-L", wanted["label"], disk["device"])
            changed.append(f"{disk['device']} made")
    text = unit(wanted)
    if not UNIT.exists() or UNIT.read_text() != text:
        UNIT.write_text(text)
        run("systemctl", "daemon-reload")
        changed.append(f"{UNIT.name} written")
    for disk in wanted["disks"]:
        path = Path(wanted["devices"], disk["name"])
        if not os.path.ismount(path):
            run("systemctl", "enable", UNIT.name)
            run("systemctl", "restart", UNIT.name)
            changed.append(f"{path} mounted")
    return changed


def unit(wanted: dict) -> str:
    """Return the text of one unit for all disks."""
    lines = []
    for disk in wanted["disks"]:
        path = f"{wanted['devices']}/{disk['name']}"
        mount = f"/bin/mount -t xfs -o noatime,nodiratime {disk['device']} {path}"
        lines += [
            f"ExecStart=/bin/mkdir -p {path}",
            f"ExecStart=/bin/sh -c 'mountpoint -q {path} || exec {mount}'",
            f"ExecStart=/bin/chown {wanted['user']}: {path}",
            f"ExecStop=-/bin/umount {path}",
        ]
    steps = "\n".join(lines)
    return f"""# Written by Hotbed's role swift.
[Unit]
Description=The disks of Swift's servers
DefaultDependencies=no
After=systemd-remount-fs.service
Before=local-fs.target
Conflicts=umount.target

[Service]
Type=oneshot
RemainAfterExit=yes
{steps}

[Install]
WantedBy=local-fs.target
"""


def main() -> None:
    """Run the script; see the module."""
    verb, wanted = sys.argv[1], json.loads(sys.argv[2])
    if verb == "look":
        needs = wanted["packages"] and not has_packages(wanted)
        answer = {"problems": problems(wanted), "needs_packages": needs}
        json.dump(answer, sys.stdout)
        return
    changed = make_environment(wanted) + make_user(wanted)
    if wanted["disks"]:
        changed += make_disks(wanted)
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
