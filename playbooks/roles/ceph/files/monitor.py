"""Make one monitor's store, and on the first monitor the cluster's keys.

Run on a monitor as ``python3 - PARAMETERS``. PARAMETERS is a JSON object: name, fsid,
monitors (address by name). Standard input has the first monitor's keys, a JSON object {"mon": ...,
"admin": ...}, or nothing on the first monitor itself. Prints {"changed": bool, "keys": {...}}. The
role never shows or logs this output, which holds secrets.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ADMIN_KEYRING = Path("/etc/ceph/ceph.client.admin.keyring")
MON_CAPS = 'caps mon = "allow *"'
ADMIN_CAPS = "\n".join(f'\tcaps {daemon} = "allow *"' for daemon in ("mds", "mgr", "mon", "osd"))


def call(*argv: str) -> str:
    """Run a command and return its output; if it fails, its last message ends the script."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        sys.exit(f"{Path(argv[0]).name} failed: {lines[-1]}")
    return done.stdout.strip()


def key_in(keyring: Path, entity: str) -> str:
    """Return the key of `entity` in a keyring file."""
    return call("ceph-authtool", str(keyring), "--name", entity, "--print-key")


def write_private(path: Path, text: str) -> bool:
    """Write a file that only root may read, atomically; return True if it changed."""
    if path.exists() and path.read_text() == text:
        return False
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(f"{path}.new").replace(path)
    return True


def admin_keyring(key: str) -> str:
    """Return the text of the administrator's keyring."""
    return f"[client.admin]\n\tkey = {key}\n{ADMIN_CAPS}\n"


def make_store(store: Path, parameters: dict, keys: dict) -> None:
    """Run ceph-mon --mkfs into `store`; a half-made store is replaced."""
    shutil.rmtree(store, ignore_errors=True)
    shutil.rmtree(store.with_name(f"{store.name}.new"), ignore_errors=True)
    new = store.with_name(f"{store.name}.new")
    with tempfile.TemporaryDirectory(prefix="hotbed-mon-") as folder:
        keyring, monmap = Path(folder) / "keyring", Path(folder) / "monmap"
        text = f"[mon.]\n\tkey = {keys['mon']}\n\t{MON_CAPS}\n" + admin_keyring(keys["admin"])
        write_private(keyring, text)
        options = ["--create", "--fsid", parameters["fsid"]]
        for name, address in parameters["monitors"].items():
            options += ["--addv", name, f"[v2:{address}:3300,v1:{address}:6789]"]
        call("monmaptool", *options, str(monmap))
        new.mkdir(mode=0o750)
        call(
            *("ceph-mon", "--mkfs", "--id", parameters["name"], "--mon-data", str(new)),
            *("--monmap", str(monmap), "--keyring", str(keyring)),
        )
    for path in [new, *new.rglob("*")]:
        shutil.chown(path, "ceph", "ceph")
    new.rename(store)  # a store under its final name is complete


def main() -> None:
    """Run the script; see the module."""
    parameters = json.loads(sys.argv[1])
    given = sys.stdin.read().strip()
    store = Path(f"/var/lib/ceph/mon/ceph-{parameters['name']}")
    whole = (store / "keyring").exists()
    if given:
        keys = json.loads(given)
    elif whole:
        keys = {
            "mon": key_in(store / "keyring", "mon."),
            "admin": key_in(ADMIN_KEYRING, "client.admin"),
        }
    else:
        keys = {name: call("ceph-authtool", "--gen-print-key") for name in ("mon", "admin")}
    changed = write_private(ADMIN_KEYRING, admin_keyring(keys["admin"]))
    if not whole:
        make_store(store, parameters, keys)
        changed = True
    json.dump({"changed": changed, "keys": keys}, sys.stdout)


if __name__ == "__main__":
    main()
