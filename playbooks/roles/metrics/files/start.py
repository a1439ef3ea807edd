"""Start the units of metrics on a node, now and at every boot, and wait until they listen.

Run on the node as ``python3 - WANTED`` with a JSON object: packages (with services of the same
names, which would listen everywhere), units (text by name), again (True: restart them), listen
([host, port] of each), timeout_s. Prints {"changed": [what]}. Standard library only.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS, MASKS = Path("/etc/systemd/system"), Path("/run/systemd/system")


def systemctl(*words: str) -> str:
    """Return the output of systemctl; a failure ends the script with its message."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0 and words[0] not in ("is-enabled", "is-active"):
        sys.exit(f"systemctl {' '.join(words)}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def release(package: str) -> None:
    """Leave a package's own service disabled, if it was kept from starting at the installation."""
    service = f"{package}.service"
    if (MASKS / service).is_symlink():
        systemctl("unmask", "--quiet", "--runtime", service)
        systemctl("disable", "--quiet", service)


def write(name: str, text: str) -> list[str]:
    """Write a unit; return its name if it changed."""
    path = UNITS / name
    if path.exists() and path.read_text() == text:
        return []
    path.write_text(text)
    path.chmod(0o644)
    return [f"{name} written"]


def start(names: list[str], *, again: bool) -> list[str]:
    """Enable and start units; restart the running ones too with `again`."""
    changed = []
    for name in names:
        if systemctl("is-enabled", name).strip() != "enabled":
            systemctl("enable", "--quiet", name)
            changed.append(f"{name} enabled")
        if again or systemctl("is-active", name).strip() != "active":
            systemctl("restart", name)
            changed.append(f"{name} started")
    return changed


def wait(host: str, port: int, end: float) -> None:
    """Wait until something listens on a port."""
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"nothing listens on {host}:{port}: {error}")
        time.sleep(0.2)


def main() -> None:
    """Run the script; see the module."""
    wanted = json.loads(sys.argv[1])
    for package in wanted["packages"]:
        release(package)
    changed = [each for name, text in wanted["units"].items() for each in write(name, text)]
    if "yes" in systemctl("show", "--property", "NeedDaemonReload", "--value", *wanted["units"]):
        systemctl("daemon-reload")  # also after a run that was cut off
    changed += start(list(wanted["units"]), again=wanted["again"] or bool(changed))
    end = time.monotonic() + wanted["timeout_s"]
    for host, port in wanted["listen"]:
        wait(host, port, end)
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
