"""Give a machine its name from the inventory, or its old name again.

Run on the node as ``python3 - WANTED`` with a JSON object: `name`, `undo`. ceph-ansible and cephadm
name daemons and CRUSH hosts by the machine's own name, and controllers know nodes by the spec's.
Prints {"changed": [what]}. Standard library only.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

BEFORE = Path("/var/lib/hotbed/hostname.before")
# Otherwise cloud-init restores the old name at the next boot.
CLOUD = Path("/etc/cloud/cloud.cfg.d/99-hotbed-hostname.cfg")


def call(name: str) -> None:
    """Set the machine's name, now and for later boots."""
    done = subprocess.run(
        ["hostnamectl", "set-hostname", name], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"the machine cannot be named {name}: {done.stderr.strip() or 'no reason given'}")


def name_it(name: str) -> list[str]:
    """Set the inventory's name; return the changes."""
    changed = []
    if CLOUD.parent.is_dir() and not CLOUD.exists():
        CLOUD.write_text("preserve_hostname: true\n")
        changed.append(f"{CLOUD} written")
    have = socket.gethostname()
    if have != name:
        if not BEFORE.exists():
            BEFORE.write_text(have + "\n")
        call(name)
        changed.append(f"{have} named {name}")
    return changed


def undo() -> list[str]:
    """Restore the machine's previous name; return the changes."""
    changed = []
    if CLOUD.exists():
        CLOUD.unlink()
        changed.append(f"{CLOUD} removed")
    if BEFORE.exists():
        name = BEFORE.read_text().strip()
        call(name)
        BEFORE.unlink()
        changed.append(f"named {name} again")
    return changed


def main() -> None:
    """Run the script; see the module."""
    wanted = json.loads(sys.argv[1])
    changed = undo() if wanted["undo"] else name_it(wanted["name"])
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
