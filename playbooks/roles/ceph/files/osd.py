"""Make stores of a node's OSDs on raw devices (BlueStore) or in a folder (FileStore), without LVM.

Run on the OSDs' node as ``python3 - PARAMETERS``. PARAMETERS is a JSON object: osds (each
with id, uuid and, for BlueStore, device), objectstore, and directory (FileStore). Standard input
has keys by entity (``osd.3``) as JSON. Prints {"changed": bool}.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HEAD_BYTES = 8 * 2**20  # labels and old superblocks are here


def fail(message: str) -> None:
    """End the script with a sentence."""
    sys.exit(message)


def write_keyring(folder: Path, number: int, key: str) -> bool:
    """Write the OSD's keyring; return True if it changed."""
    path, text = folder / "keyring", f"[osd.{number}]\n\tkey = {key}\n"
    if path.exists() and path.read_text() == text:
        return False
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    shutil.chown(f"{path}.new", "ceph", "ceph")
    Path(f"{path}.new").replace(path)
    return True


def clear(device: str) -> None:
    """Zero the head of a device, so that no earlier label is found there."""
    handle = os.open(device, os.O_WRONLY)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        os.pwrite(handle, bytes(min(HEAD_BYTES, size)), 0)
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(parameters: dict) -> Path:
    """Make the OSD's empty folder, for BlueStore with a link to the device; return it."""
    folder = Path(f"/var/lib/ceph/osd/ceph-{parameters['id']}")
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    if parameters["objectstore"] == "filestore":
        target = Path(parameters["directory"])
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        shutil.chown(target, "ceph", "ceph")
        folder.symlink_to(target)
        return folder
    folder.mkdir(mode=0o750, parents=True)
    shutil.chown(folder, "ceph", "ceph")
    clear(parameters["device"])
    shutil.chown(os.path.realpath(parameters["device"]), "ceph", "ceph")
    (folder / "block").symlink_to(parameters["device"])
    return folder


def make_store(parameters: dict, key: str) -> None:
    """Run ceph-osd --mkfs for one OSD into an empty folder."""
    number = str(parameters["id"])
    folder = make_folder(parameters)
    write_keyring(folder, parameters["id"], key)
    done = subprocess.run(
        [
            *("ceph-osd", "--mkfs", "--id", number, "--osd-uuid", parameters["uuid"]),
            *("--osd-objectstore", parameters["objectstore"], "--no-mon-config"),
            *("--setuser", "ceph", "--setgroup", "ceph"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if " -1 " in line or "rror" in line]
        fail(f"ceph-osd --mkfs failed: {(words or done.stderr.splitlines() or ['no message'])[-1]}")
    (folder / "hotbed-made").write_text(parameters["uuid"])


def make(parameters: dict, key: str) -> bool:
    """Make one OSD's store unless it exists; return True if anything changed."""
    folder = Path(f"/var/lib/ceph/osd/ceph-{parameters['id']}")
    made = folder / "hotbed-made"
    # The mark is written last, so an incomplete store is made again.
    if made.exists() and made.read_text() == parameters["uuid"]:
        return write_keyring(folder, parameters["id"], key)
    make_store(parameters, key)
    return True


def main() -> None:
    """Run the script; see the module."""
    parameters = json.loads(sys.argv[1])
    keys = json.loads(sys.stdin.read() or "{}")
    common = {name: parameters[name] for name in ("objectstore", "directory")}
    changed = []
    for osd in parameters["osds"]:
        key = keys.get(f"osd.{osd['id']}")
        if not key:
            fail(f"the key of osd.{osd['id']} did not arrive")
        changed.append(make({**common, **osd}, key))
    json.dump({"changed": any(changed)}, sys.stdout)


if __name__ == "__main__":
    main()
