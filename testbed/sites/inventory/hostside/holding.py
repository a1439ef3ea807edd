"""Holding a machine for a testbed, wiping its devices, letting it go."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from testbed.sites.inventory.hostside.base import MARK, Machine, Refused, read_mark, replace
from testbed.sites.inventory.hostside.devices import HEAD, device, number_of, partitions

KEYS = "root/.ssh/authorized_keys"
HOSTS = "etc/hosts"
BEGIN, END = "# BEGIN hotbed-site", "# END hotbed-site"
ZEROED_HEAD, ZEROED_TAIL = 8 << 20, 1 << 20


def mark(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Who holds the machine."""
    return {"mark": read_mark(machine)}


def hold(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Mark the machine as ``mark`` says, let ``key`` in as root, know ``names`` (name: address).

    Refused when another testbed holds it; safe to repeat for the same one.
    """
    folder, keys = machine.path(KEYS).parent, machine.path(KEYS)
    wanted = dict(request["mark"], made_keys=not keys.exists(), made_folder=not folder.exists())
    made = _mark(machine, wanted)
    _let_in(machine, request["key"])
    _name(machine, request["names"])
    return {"made": made, "mark": read_mark(machine)}


def _mark(machine: Machine, wanted: dict[str, Any]) -> bool:
    path, new = machine.path(MARK), _beside(machine, wanted["id"])
    replace(new, json.dumps(wanted) + "\n", 0o644)
    try:
        os.link(new, path)  # whole or not at all, and the first of two who come at once
        return True
    except FileExistsError:
        pass
    finally:
        new.unlink()
    found = read_mark(machine) or {}
    if found.get("id") != wanted["id"]:
        raise Refused(
            f"is held by the testbed {found.get('testbed')!r} ({found.get('since', '?')}): take "
            f"that one down first; if nobody has it any more, delete /{MARK} there"
        )
    if found.get("node") != wanted["node"]:
        raise Refused(f"is the same machine as that of node {found.get('node')}")
    return False


def _beside(machine: Machine, identity: str) -> Path:
    path = machine.path(MARK)
    return path.with_name(f".{path.name}.{identity}")


def _let_in(machine: Machine, key: str) -> None:
    path = machine.path(KEYS)
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700)
    lines = machine.text(KEYS).splitlines()
    if key not in lines:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        replace(path, "\n".join([*lines, key]) + "\n", mode)


def _name(machine: Machine, names: dict[str, str]) -> None:
    left = _without_names(machine.text(HOSTS))
    block = [BEGIN] + [f"{address} {name}" for name, address in names.items()] + [END]
    _write_hosts(machine, left + "\n".join(block) + "\n")


def _without_names(text: str) -> str:
    pattern = re.escape(BEGIN) + r"\n.*?" + re.escape(END) + r"\n?"
    left = re.sub(pattern, "", text, flags=re.DOTALL)
    return left if not left or left.endswith("\n") else left + "\n"


def _write_hosts(machine: Machine, text: str) -> None:
    path = machine.path(HOSTS)
    if path.exists() and path.read_text() == text:
        return
    path.write_text(text)  # in place: in a container it may be a mount of its own


def let_go(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Undo `hold` for the testbed with this ``id``; another's mark, and all else, is left alone.

    The key goes last: until then a repeated call can still come in.
    """
    found = read_mark(machine)
    found = found or {}
    ours = found.get("id") == request["id"]
    if not found or ours:
        text = machine.text(HOSTS)
        if BEGIN in text:
            _write_hosts(machine, _without_names(text))
    if ours:
        machine.path(MARK).unlink()
    for cut_off in (_beside(machine, request["id"]), Path(f"{machine.path(KEYS)}.hotbed-new")):
        cut_off.unlink(missing_ok=True)
    lines = machine.text(KEYS).splitlines()
    left = [line for line in lines if line != request["key"]]
    if left != lines:
        path = machine.path(KEYS)
        if left or not (ours and found.get("made_keys")):
            mode = stat.S_IMODE(path.stat().st_mode)
            replace(path, "".join(line + "\n" for line in left), mode)
        else:
            path.unlink()
    if ours and found.get("made_folder") and not any(machine.path(KEYS).parent.iterdir()):
        machine.path(KEYS).parent.rmdir()
    return {"was_ours": ours}


def wipe(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Forget what is on the device ``device``: signatures, partitions, first and last megabytes.

    Only while the testbed with ``id`` holds the machine, and never what is in use.
    """
    name = request["device"]
    holder = read_mark(machine)
    if holder is None or holder.get("id") != request["id"]:
        raise Refused("is not held by this testbed, and nothing on it is wiped")
    found = device(machine, name)
    if found["is"] != "a device":
        raise Refused(f"has no block device {name}")
    if found["uses"]:
        raise Refused("has the device {}, which {}".format(name, " and ".join(found["uses"])))
    path = machine.path(name)
    number = number_of(path.stat())
    for _, part in partitions(machine, number):
        _zero(machine.path("dev/" + part))
    machine.run(["wipefs", "--all", "--force", str(path)])
    _zero(path)
    if partitions(machine, number):
        machine.run(["blockdev", "--rereadpt", str(path)])
        machine.run(["udevadm", "settle", "--timeout=10"])
    after = device(machine, name)
    if after["holds"]:
        raise Refused("still has {} on {} after wiping".format(", ".join(after["holds"]), name))
    return {"held": found["holds"]}


def _zero(path: Path) -> None:
    handle = os.open(str(path), os.O_RDWR)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        for start in range(0, min(ZEROED_HEAD, size), HEAD):
            os.pwrite(handle, bytes(min(HEAD, size - start)), start)
        tail = max(size - ZEROED_TAIL, 0)
        os.pwrite(handle, bytes(size - tail), tail)
        os.fsync(handle)
    finally:
        os.close(handle)
