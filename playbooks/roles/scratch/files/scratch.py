"""Make the scratch file system of a node and mount it, now and at every boot.

Run on the node as ``python3 - WANTED`` with a JSON object: device, label, made (True if the device
holds the file system), unit (name of the mount unit) and text (its content). Prints {"changed":
[what]}. Standard library only. Safe to repeat.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

UNITS = Path("/etc/systemd/system")
# Inode tables are written lazily: on a slow disk, writing them at once takes a minute. noinit would
# never write them; `init_itable` is bounded and ends before files are laid out.
OPTIONS = ("-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard")


def call(*argv: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv[:3])} failed: {done.stderr.strip()[-300:] or 'no reason given'}")


def shown(unit: str, name: str) -> str:
    """Return a property of a unit."""
    argv = ["systemctl", "show", "--property", name, "--value", unit]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Run the script; see the module."""
    wanted = json.loads(sys.argv[1])
    device, unit, path = wanted["device"], wanted["unit"], UNITS / wanted["unit"]
    changed = []
    if not wanted["made"]:
        call("mkfs.ext4", "-q", "-F", "-L", wanted["label"], *OPTIONS, device)
        changed.append(f"{device} made")
    if not path.exists() or path.read_text() != wanted["text"]:
        path.write_text(wanted["text"])
        path.chmod(0o644)
        changed.append(f"{unit} written")
    if shown(unit, "NeedDaemonReload") == "yes":  # also after a run that was cut off
        call("systemctl", "daemon-reload")
    if shown(unit, "UnitFileState") != "enabled":
        call("systemctl", "enable", unit)
        changed.append(f"{unit} enabled")
    if shown(unit, "ActiveState") != "active":
        call("systemctl", "start", unit)
        changed.append(f"{unit} started")
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
