"""Start a node's Ceph daemons of one kind by Debian's own units, now and at every boot.

Run on the daemons' node as ``python3 - PARAMETERS`` with a JSON object: kind (mon, mgr, osd,
radosgw), instances, dropin (text of the units' drop-in). A daemon older than ceph.conf is
restarted. One call replaces half a dozen tasks on every node. Prints {"changed": [what, ...]}.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path

CONFIGURATION = Path("/etc/ceph/ceph.conf")
MODULES = Path("/usr/share/ceph/mgr")
STUB = """# Written by Hotbed's role ceph: the manager finds it before Debian's module.
def _refuse(*words):
    raise NotImplementedError("this manager makes no dashboard passwords")
gensalt = hashpw = checkpw = _refuse
"""
SETTLE_S = 20  # a daemon that fails on its configuration ends within this time


def systemctl(*arguments: str) -> str:
    """Return the output of systemctl; a failure ends the script with its message."""
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0 and arguments[0] not in ("is-enabled", "is-active"):
        sys.exit(f"systemctl {' '.join(arguments)}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def why(unit: str) -> str:
    """Return the last error of a unit that did not start."""
    journal = subprocess.run(
        ["journalctl", "--unit", unit, "--output", "cat", "--lines", "30", "--no-pager"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    useful = [line for line in journal if " -1 " in line or "rror" in line or "ailed" in line]
    return (useful or journal or ["nothing in its journal"])[-1].strip()


def write_dropin(kind: str, text: str) -> bool:
    """Write the drop-in for all units of a kind; return True if it changed."""
    path = Path(f"/etc/systemd/system/ceph-{kind}@.service.d/hotbed.conf")
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(mode=0o755, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    systemctl("daemon-reload")
    return True


def enable(units: list[str]) -> list[str]:
    """Enable the disabled units among `units`; return a sentence for each."""
    states = systemctl("is-enabled", *units).split()
    if len(states) != len(units):  # a unit without a file has no line
        sys.exit(f"the units {', '.join(units)} are not all there: is the package installed?")
    off = [unit for unit, state in zip(units, states, strict=True) if state != "enabled"]
    if off:
        systemctl("enable", *off)
    return [f"{unit} enabled" for unit in off]


def lacks_bcrypt() -> bool:
    """Return True if the manager's modules import a bcrypt that only the first of them can load:
    each module has an interpreter of its own, and PyO3's extensions take no second one. Health then
    stays at a warning. Reef's modules need bcrypt for passwords of the dashboard alone.
    """
    common, found = MODULES / "mgr_util.py", importlib.util.find_spec("bcrypt")
    if found is None or found.origin is None or not common.exists():
        return False
    if not re.search("^import bcrypt", common.read_text(), re.MULTILINE):
        return False
    extensions = Path(found.origin).parent.glob("*.so")
    return any(b"PyO3 modules" in extension.read_bytes() for extension in extensions)


def write_stub() -> bool:
    """Write a stand-in for bcrypt where it is needed; return True if it changed."""
    path = MODULES / "bcrypt.py"
    if not lacks_bcrypt() or (path.exists() and path.read_text() == STUB):
        return False
    path.write_text(STUB)
    path.chmod(0o644)
    return True


def outdated(unit: str) -> bool:
    """Return True if the configuration file is newer than the running daemon."""
    pid = systemctl("show", "--property", "MainPID", "--value", unit).strip()
    try:
        started = Path(f"/proc/{pid}").stat().st_mtime
    except OSError:
        return True
    return CONFIGURATION.stat().st_mtime > started


def main() -> None:
    """Run the script; see the module."""
    parameters = json.loads(sys.argv[1])
    kind = parameters["kind"]
    units = [f"ceph-{kind}@{instance}.service" for instance in parameters["instances"]]
    changed = []
    if write_dropin(kind, parameters["dropin"]):
        changed.append("drop-in")
    stub = kind == "mgr" and write_stub()
    if stub:
        changed.append("bcrypt's stand-in")
    changed += enable(["ceph.target", f"ceph-{kind}.target", *units])
    running = {unit for unit in units if systemctl("is-active", unit).strip() == "active"}
    again = [unit for unit in units if unit not in running or stub or outdated(unit)]
    if again:
        # `failed` stays until it is reset, and would hide a successful start.
        systemctl("reset-failed")
        systemctl("restart", *again)
        changed += [f"{unit} {'restarted' if unit in running else 'started'}" for unit in again]
        for unit in again:
            wait(unit)
    json.dump({"changed": changed}, sys.stdout)


def wait(unit: str) -> None:
    """Wait until a unit has opened its socket; a simple service counts as started at once."""
    kind, _, instance = unit.removeprefix("ceph-").removesuffix(".service").partition("@")
    name = f"client.{instance}" if kind == "radosgw" else f"{kind}.{instance}"
    sockets = Path("/run/ceph")
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        if systemctl("is-active", unit).strip() in ("failed", "activating"):
            sys.exit(f"{unit} does not start: {why(unit)}")
        if any(sockets.glob(f"ceph-{name}.*asok")):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
