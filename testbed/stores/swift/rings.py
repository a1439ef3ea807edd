"""Builder of rings in process, with Swift's own builder and Swift's interpreter.

    VENV/bin/python -m testbed.stores.swift.rings < REQUEST

The request is JSON: {builder, part_power, replicas, seed, devices: [{node, address, disk, zone,
weight}], microstores: {name: first port}}. A device of weight 0 is being emptied. The builder's
file is kept: a changed list of devices then moves as few partitions as possible. Output: {changed,
parts, moved, balance, rings: {microstore: {kind: base64}}}. Rings of microstores on the same disks
differ only in ports, so these microstores see the same objects.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KINDS = {"object": 0, "container": 1, "account": 2}  # offsets of the servers' ports
_MIN_PART_HOURS = 0  # a testbed may change at any time


def build(request: Mapping[str, Any]) -> dict[str, Any]:
    """Build the rings of a request; see the module's docstring."""
    path = Path(request["builder"])
    builder, before = _load(path, request), None
    if builder._replica2part2dev:
        before = [list(row) for row in builder._replica2part2dev]
    if _fit(builder, request["devices"]) or before is None:
        builder.pretend_min_part_hours_passed()
        builder.rebalance(seed=request["seed"])
        builder.validate()
        _save(builder, path)
        changed = True
    else:
        changed = False
    after = builder._replica2part2dev
    moved = 0
    if before is not None and changed:
        rows = zip(before, after, strict=False)
        moved = sum(old != new for was, now in rows for old, new in zip(was, now, strict=False))
    return {
        "changed": changed,
        "parts": builder.parts,
        "moved": moved,
        "balance": builder.get_balance(),
        "rings": {
            name: {kind: _ring(builder, int(port) + offset) for kind, offset in KINDS.items()}
            for name, port in request["microstores"].items()
        },
    }


def _load(path: Path, request: Mapping[str, Any]) -> Any:
    from swift.common.ring import RingBuilder  # type: ignore[import-not-found]

    if path.exists():
        builder = RingBuilder.load(str(path))
        same = (builder.part_power, builder.replicas)
        if same == (request["part_power"], request["replicas"]):
            return builder
    return RingBuilder(request["part_power"], request["replicas"], _MIN_PART_HOURS)


def _fit(builder: Any, devices: Sequence[Mapping[str, Any]]) -> bool:
    """Adapt the builder's devices; return True if any changed."""
    wanted = {(device["address"], device["disk"]): device for device in devices}
    leaving = {device["id"] for device in builder._remove_devs}
    have = {
        (device["ip"], device["device"]): device
        for device in builder.devs
        if device is not None and device["id"] not in leaving
    }
    changed = False
    for place, device in have.items():
        if place not in wanted:
            builder.remove_dev(device["id"])
            changed = True
        elif device["weight"] != wanted[place]["weight"]:
            builder.set_dev_weight(device["id"], wanted[place]["weight"])
            changed = True
    for place, device in wanted.items():
        if place not in have:
            builder.add_dev(
                {
                    "region": 1,
                    "zone": int(device["zone"]),
                    "ip": device["address"],
                    "port": 6200,
                    "replication_ip": device["address"],
                    "replication_port": 6200,
                    "device": device["disk"],
                    "weight": float(device["weight"]),
                    "meta": device["node"],
                }
            )
            changed = True
    return changed


def _ring(builder: Any, port: int) -> str:
    """Return a ring's file with every server at `port`, in base64."""
    ring = copy.deepcopy(builder.get_ring())
    for device in ring.devs:
        if device is not None:
            device["port"] = device["replication_port"] = port
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ring.gz")
        ring.save(str(path))
        return base64.b64encode(path.read_bytes()).decode()


def _save(builder: Any, path: Path) -> None:
    """Save atomically: without its builder a ring can never be changed again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    builder.save(str(new))
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(path)


if __name__ == "__main__":
    json.dump(build(json.load(sys.stdin)), sys.stdout)
