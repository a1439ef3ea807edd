"""On-disk record of a testbed, consistent at any moment.

It is written before anything is made, so that an interrupted `up` can be resumed and removed. The
names of all parts follow from it (see `names`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.durable import make_folder, write_file
from schemas.errors import UserError
from testbed.sites.local import network
from testbed.spec import GroupSpec, TestbedSpec
from testbed.spec.stores import SpecModel


class LocalRecord(SpecModel):
    """Record of a testbed.

    `suite` is the nodes' Debian suite (bookworm in records of earlier versions, which have none).
    `chain` are the current layers of every node's root and disk, bottom to top; only the last one
    is written. `snapshots` has the chain of each label.
    """

    version: Literal[2] = 2
    spec: TestbedSpec
    subnet: int
    suite: str = "bookworm"
    ready: bool = False
    chain: tuple[int, ...] = (0,)
    next_layer: int = 1
    snapshots: Mapping[str, tuple[int, ...]] = Field(default_factory=dict)

    def members(self) -> Iterator[PlannedNode]:
        """Yield every node, in the spec's order."""
        index, racks = 0, self.spec.rack_of()
        for group in self.spec.groups:
            for name in group.node_names():
                address = network.address(self.subnet, index)
                yield PlannedNode(name, group, address, racks.get(name))
                index += 1

    def frozen(self, label: str) -> LocalRecord:
        """Return the record with the present chain kept as `label` and a new layer on top."""
        return self._on(self.chain, {**self.snapshots, label: self.chain})

    def rewound(self, label: str) -> LocalRecord:
        """Return the record with the chain of `label` and a new layer on top."""
        return self._on(self.snapshots[label], self.snapshots)

    def without(self, label: str) -> LocalRecord:
        """Return the record without the snapshot `label`."""
        rest = {name: chain for name, chain in self.snapshots.items() if name != label}
        return self.model_copy(update={"snapshots": rest})

    def _on(self, chain: tuple[int, ...], snapshots: Mapping[str, tuple[int, ...]]) -> LocalRecord:
        """Return the record with these snapshots, and a new layer on top of `chain`."""
        layers = {"chain": (*chain, self.next_layer), "next_layer": self.next_layer + 1}
        return self.model_copy(update={**layers, "snapshots": snapshots})

    def used_layers(self) -> set[int]:
        """Return the layers that the present chain or a snapshot needs."""
        return {layer for chain in (self.chain, *self.snapshots.values()) for layer in chain}


@dataclass(frozen=True)
class PlannedNode:
    """A planned node: its name, its group in the spec, its address, and its rack if any."""

    name: str
    group: GroupSpec
    address: str
    rack: str | None = None


def load(folder: Path) -> LocalRecord | None:
    """Return the record in a testbed's folder; None if there is none. UserError: the record is of
    another version or was changed by hand."""
    path = folder / "record.json"
    try:
        return LocalRecord.model_validate_json(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(
            "is of another version of hotbed",
            where=path,
            do=f"take the testbed down: `hotbed down {folder.name}`",
        ) from error


def save(folder: Path, record: LocalRecord) -> None:
    make_folder(folder)
    write_file(folder / "record.json", record.model_dump_json(indent=1), 0o644)


def subnets(testbeds: Path) -> set[int]:
    """Return the networks that the recorded testbeds use."""
    found = set()
    for path in testbeds.glob("*/record.json"):
        try:
            found.add(int(json.loads(path.read_text())["subnet"]))
        except (OSError, ValueError, KeyError):
            continue
    return found
