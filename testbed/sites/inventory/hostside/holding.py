"""Holding a machine for a testbed, wiping its devices, letting it go."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from testbed.sites.inventory.hostside.base import (
    MARK,
    Machine,
    Refused,
    beside,
    read_mark,
    read_whole,
    real,
    replace,
)
from testbed.sites.inventory.hostside.devices import HEAD, UNKNOWN, device, number_of, partitions

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
    # What was made before a `let_go` that was cut off is still ours to take away.
    before = read_mark(machine, _aside(request["mark"]["id"])) or {}
    wanted = dict(
        request["mark"],
        made_keys=bool(before.get("made_keys")) or not keys.exists(),
        made_folder=bool(before.get("made_folder")) or not folder.exists(),
    )
    made = _mark(machine, wanted)
    _let_in(machine, request["key"])
    _name(machine, request["names"])
    return {"made": made, "mark": read_mark(machine)}


def _mark(machine: Machine, wanted: dict[str, Any]) -> bool:
    path, new = machine.path(MARK), machine.path(_aside(wanted["id"]))
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


def _aside(identity: str) -> str:
    """The mark before it counts, and while what it stands for is undone."""
    return f"etc/.hotbed-site.json.{identity}"


def _let_in(machine: Machine, key: str) -> None:
    path = machine.path(KEYS)
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700)
    text = read_whole(path)
    if key not in text.split("\n"):
        replace(path, _ended(text) + key + "\n", 0o600)


def _let_out(machine: Machine, key: str, *, made: bool) -> None:
    """Take ``key`` away again, and the file with it if we `made` it and nothing else is in it."""
    path = machine.path(KEYS)
    text = read_whole(path)
    left = "\n".join(line for line in text.split("\n") if line != key)
    if key and left != text:
        replace(path, left, 0o600)
    if made and not left:
        real(path).unlink(missing_ok=True)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _name(machine: Machine, names: dict[str, str]) -> None:
    left = _ended(_without_names(read_whole(machine.path(HOSTS))))
    block = [BEGIN] + [f"{address} {name}" for name, address in names.items()] + [END]
    _write_hosts(machine, left + "\n".join(block) + "\n")


def _without_names(text: str) -> str:
    pattern = re.escape(BEGIN) + r"\n.*?" + re.escape(END) + r"\n?"
    return re.sub(pattern, "", text, flags=re.DOTALL)


def _write_hosts(machine: Machine, text: str) -> None:
    path = machine.path(HOSTS)
    if read_whole(path) != text:
        replace(path, text, 0o644)


def let_go(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Undo `hold` for the testbed with this ``id``; another's mark, and all else, is left alone.

    The key goes late: until then a repeated call can still come in by it. The mark, which tells
    what `hold` made, is put aside first and goes last.
    """
    found, aside = read_mark(machine) or {}, _aside(request["id"])
    ours = found.get("id") == request["id"]
    if not found or ours:
        _write_hosts(machine, _without_names(read_whole(machine.path(HOSTS))))
    if ours:
        # A `hold` that was cut off leaves one file under both names, and to rename one of them to
        # the other would do nothing.
        machine.path(aside).unlink(missing_ok=True)
        machine.path(MARK).replace(machine.path(aside))
    made = read_mark(machine, aside) or {}
    for changed in (aside, HOSTS, KEYS):
        beside(real(machine.path(changed))).unlink(missing_ok=True)
    _let_out(machine, request["key"], made=bool(made.get("made_keys")))
    folder = machine.path(KEYS).parent
    if made.get("made_folder") and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    machine.path(aside).unlink(missing_ok=True)
    return {"was_ours": ours}


def wipe(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Forget what is on the device ``device``: signatures, partitions, first and last megabytes.

    Only while the testbed with ``id`` holds the machine, never what is in use, and only if it is
    what was ``seen`` (see `device`; and the machine's ``boot_id``) when it was allowed: a name may
    be another device's after a reboot, and somebody may have put something there since.
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
    boot = machine.text("proc/sys/kernel/random/boot_id").strip()
    other = _other(found, request["seen"], boot)
    if other is not None:
        raise Refused(
            f"has the device {name}, which {other}: nothing on it is wiped; take the testbed down "
            "and bring it up again, to be asked anew"
        )
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


def _other(found: dict[str, Any], seen: dict[str, Any], boot: str) -> str | None:
    """Why a device is not what was seen; None when it is, or what a wipe cut off left of it.

    A record of before has no identity, no UUIDs and no boot: what it has is compared.
    """
    identity = seen.get("identity", found["identity"])
    if (
        found["bytes"] != seen["bytes"]
        or seen["model"] not in (None, found["model"])
        or found["identity"] != identity
    ):
        return "is another device now than the one that was allowed to be wiped"
    if not any(identity.values()) and seen.get("boot_id", boot) != boot:
        return (
            "may be another one than was allowed to be wiped, for it has no serial number and the "
            "machine was started anew since"
        )
    new = [what for what in found["holds"] if what not in (*seen["holds"], UNKNOWN)]
    new += [what for what in found["uuids"] if what not in seen.get("uuids", found["uuids"])]
    return f"holds {', '.join(new)} now, which nobody allowed to be wiped" if new else None


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
