"""Changes that a node's daemon makes to the node: files, units, rings, clients' endpoint files.

Every file is written atomically: next to its place, synced to disk, then renamed.
"""

from __future__ import annotations

import base64
import grp
import gzip
import hashlib
import json
import os
import signal
import subprocess
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from schemas.durable import make_folder, write_file
from schemas.errors import StoreError, UserError
from testbed.stores.swift import confs
from testbed.stores.swift.confs import ETC, SECRETS, Wanted, files_of, groups_of, rings_folder

UNITS = Path("/etc/systemd/system")
TARGET = "hotbed-swift.target"
PROXY = "hotbed-swift-proxy.service"
_START_S = 90.0
_RELOAD_S = 50.0  # a process takes 1 to 2 s of CPU, which is half a minute at 0.05 core
_RING_MAGIC = b"R1NG"
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def secrets() -> Mapping[str, Any]:
    """Return the hash prefix and suffix, and the tenants' keys. StoreError: the role has not
    written them."""
    try:
        found: Mapping[str, Any] = json.loads(Path(SECRETS).read_text())
    except (OSError, ValueError) as error:
        raise StoreError(f"{SECRETS} cannot be read: deploy the testbed again.") from error
    return found


def put(path: Path, data: bytes, mode: int = 0o600, group: int | None = None) -> bool:
    """Write a file atomically, even through a power cut; return True if it changed. `group` is the
    number of the file's group."""
    if path.exists() and path.read_bytes() == data:
        return False
    make_folder(path.parent)
    write_file(path, data, mode, group=group)
    return True


# -- files and units -------------------------------------------------------------------------------


def _made(wanted: Wanted) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files and units of a node; a node without servers needs no secrets."""
    if not (groups_of(wanted) or wanted.get("memcached")):
        return {}, {}
    return files_of(wanted, secrets())


def write(wanted: Wanted) -> list[str]:
    """Write the files and units of `wanted`, remove our other ones; return the changes. Servers
    with changed files are not restarted here (see `start`)."""
    files, units = _made(wanted)
    changed = []
    # Servers read the files again after they have become their own user.
    group = grp.getgrnam(confs.USER).gr_gid if files else None
    for name, text in files.items():
        if put(Path(name), text.encode(), 0o640, group):
            changed.append(name)
    if units:
        units[TARGET] = confs.TARGET
    for name, text in units.items():
        if put(UNITS / name, text.encode(), 0o644):
            changed.append(name)
    gone = _leftover(set(units))
    if gone:
        _systemctl("disable", "--now", *gone)
        for name in gone:
            (UNITS / name).unlink(missing_ok=True)
            conf = name.removeprefix("hotbed-swift-").removesuffix(".service")
            Path(ETC, f"{conf}.conf").unlink(missing_ok=True)
        changed += gone
    if any(name.endswith((".service", ".target")) for name in changed):
        _systemctl("daemon-reload")
    return changed


def settings_of(wanted: Wanted) -> dict[str, str]:
    """Return, by unit, a digest of what its server reads at its start: unit and configuration.
    Servers reread rings by themselves; rsync reads its configuration at every connection."""
    files, units = _made(wanted)
    found = {}
    for unit, text in units.items():
        name = unit.removeprefix("hotbed-swift-").removesuffix(".service")
        both = json.dumps([text, files.get(f"{ETC}/{name}.conf", "")])
        found[unit] = hashlib.sha256(both.encode()).hexdigest()
    return found


def _leftover(units: set[str]) -> list[str]:
    """Return units of servers that we wrote earlier and that are no longer wanted."""
    kinds = (*confs.KINDS, "proxy", "memcached", "rsync")
    found = [path.name for kind in kinds for path in UNITS.glob(f"hotbed-swift-{kind}*.service")]
    return sorted(set(found) - units)


def start(wanted: Wanted, restart: Sequence[str] = ()) -> list[str]:
    """Start all units, restart those in `restart`, and enable them; return the started ones.
    StoreError: a unit does not start; the message has its last log lines."""
    names = list(_made(wanted)[1])
    if not names:
        return []
    _systemctl("enable", TARGET, *names)
    anew = [name for name in names if name in restart]
    down = [name for name in names if name not in restart and not _active(name)]
    if anew or down:
        _systemctl("reset-failed", *anew, *down)
    for verb, which in (("start", down), ("restart", anew)):
        if not which:
            continue
        done = _systemctl(verb, *which, timeout_s=_START_S)
        if done.returncode != 0:
            raise StoreError(_reason([*down, *anew]))
    _systemctl("start", TARGET)
    return [*down, *anew]


def states(wanted: Wanted) -> dict[str, str]:
    """Return systemd's state of each unit."""
    names = list(_made(wanted)[1])
    if not names:
        return {}
    words = _systemctl("is-active", *names).stdout.decode().split()
    return dict(zip(names, words, strict=False))


def _active(name: str) -> bool:
    return _systemctl("is-active", "--quiet", name).returncode == 0


def _reason(names: Sequence[str]) -> str:
    for name in names:
        if _active(name):
            continue
        said = subprocess.run(
            ["journalctl", "--no-pager", "-o", "cat", "-n", "20", "-u", name],
            capture_output=True,
            check=False,
        ).stdout.decode(errors="replace")
        lines = [line for line in said.splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if "Error" in line), "")
        words = (last or " | ".join(lines[-2:]) or "no reason given").split("#012")[-1]
        return f"{name} does not start: {words[-300:]}"
    return "a server does not start."


def _systemctl(*arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["systemctl", *arguments], capture_output=True, check=False, timeout=timeout_s
    )


# -- the proxy's processes -------------------------------------------------------------------------


def reload_proxy(workers: int) -> float:
    """Make the proxy adopt its configuration without closing its port; return the seconds until it
    runs `workers` processes. StoreError: the processes do not start in time."""
    began = time.monotonic()
    pid = int(_systemctl("show", "-p", "MainPID", "--value", PROXY).stdout or 0)
    if pid <= 0:
        raise StoreError("the proxy is not running.")
    before = set(_children(pid))
    os.kill(pid, signal.SIGUSR1)
    while time.monotonic() - began < _RELOAD_S:
        time.sleep(0.05)
        fresh = [child for child in _children(pid) if child not in before]
        if len(_serving(fresh)) >= workers:
            return time.monotonic() - began
    raise StoreError(f"the proxy did not start {workers} processes within {_RELOAD_S:g} s.")


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _serving(pids: Sequence[int]) -> list[int]:
    """Return the processes that poll sockets: workers that have loaded their pipeline."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if any(
                "eventpoll" in str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()
            ):
                found.append(pid)
    return found


# -- rings -----------------------------------------------------------------------------------------


def put_rings(microstore: str, rings: Mapping[str, str], digests: Mapping[str, str]) -> list[str]:
    """Install rings: each is checked, written next to its place, then renamed. Servers check the
    file's time and read it again. `rings`: base64 by kind. `digests`: SHA-256 (hex) of the sent
    data, by kind. StoreError: a ring is damaged; no ring was changed."""
    if not set(microstore) <= _SAFE:
        raise UserError(f"{microstore!r} is no microstore's name")
    found: dict[str, bytes] = {}
    for kind in confs.KINDS:
        found[kind] = base64.b64decode(rings[kind])
        problem = ring_problem(found[kind], digests[kind])
        if problem:
            raise StoreError(f"the {kind} ring of microstore {microstore} {problem}.")
    folder = Path(rings_folder(microstore))
    for left in folder.glob(".*.new"):  # of an interrupted write: never read
        left.unlink(missing_ok=True)
    return [
        f"{microstore}/{kind}.ring.gz"
        for kind, data in found.items()
        if put(folder / f"{kind}.ring.gz", data, 0o644)
    ]


def ring_problem(data: bytes, digest: str) -> str:
    """Return what is wrong with a ring's bytes, as a clause; "" if they are as sent."""
    if hashlib.sha256(data).hexdigest() != digest:
        return "is not what was sent"
    try:
        if not gzip.decompress(data).startswith(_RING_MAGIC):
            return "is no ring"
    except (OSError, EOFError, zlib.error):
        return "is cut off or damaged"
    return ""


# -- clients ---------------------------------------------------------------------------------------


def put_endpoints(tenants: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Write a client node's files, one per tenant, with the node's key; return the changed ones.

    A file: {"auth_url", "user", "key", "proxies": ["http://ADDRESS:PORT", ...], "s3": bool}.
    """
    keys = secrets()["keys"]
    changed = []
    for tenant, body in tenants.items():
        data = json.dumps(dict(body) | {"key": keys[tenant]}, sort_keys=True).encode() + b"\n"
        if put(Path(ETC, f"{tenant}.json"), data):
            changed.append(f"{tenant}.json")
    known = {*tenants, "cluster", "node", "secrets"}
    for path in Path(ETC).glob("*.json"):
        if path.stem not in known:
            path.unlink()
            changed.append(path.name)
    return changed
