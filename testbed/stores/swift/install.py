"""Installation of a node's daemon: the unit ``hotbed-swift-node``, and the program that starts
servers inside their groups. The role swift runs it; prints {"changed": [...]}."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from testbed.agent.contract import AGENT_ROOT
from testbed.stores.swift.confs import RUN
from testbed.stores.swift.services import UNITS, put
from testbed.stores.swift.shares import JOIN

NAME = "hotbed-swift-node.service"
MARK = Path("/run/hotbed/swift-node.bundle")
UNIT = f"""# Written by Hotbed.
[Unit]
Description=Hotbed's daemon on a Swift node: shares, rings, counters
After=network.target

[Service]
Type=notify
NotifyAccess=main
WorkingDirectory={AGENT_ROOT}
Environment=PYTHONPATH={AGENT_ROOT} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ExecStart=/usr/bin/python3 -m testbed.stores.swift.node
Restart=always
RestartSec=1
TimeoutStopSec=10

[Install]
WantedBy=multi-user.target
"""


def install() -> list[str]:
    """Write missing files; start the daemon, or restart a changed program; return the changes."""
    changed = [RUN] if put(Path(RUN), JOIN.encode(), 0o755) else []
    if put(UNITS / NAME, UNIT.encode(), 0o644):
        changed.append(NAME)
        _systemctl("daemon-reload")
        _systemctl("enable", NAME)
    # A running daemon still runs the bundle of its start.
    bundle = Path(AGENT_ROOT, "BUNDLE").read_text()
    ran = MARK.read_text() if MARK.exists() else ""
    if changed or ran != bundle or not _active():
        _systemctl("restart", NAME)
        MARK.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        MARK.write_text(bundle)
        changed.append(f"{NAME} started")
    return changed


def _active() -> bool:
    done = subprocess.run(["systemctl", "is-active", "--quiet", NAME], check=False)
    return done.returncode == 0


def _systemctl(*arguments: str) -> None:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"systemctl {arguments[0]} {NAME} failed: {done.stderr.strip()[-300:]}")


def main() -> None:
    """Install and print the changes; see the module's docstring."""
    json.dump({"changed": install()}, sys.stdout)
