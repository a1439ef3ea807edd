"""On-disk record of a testbed, consistent at any moment.

It is written before anything is made, so that an interrupted `up` can be resumed and removed. The
names of all parts follow from it (see `names`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from schemas.durable import make_folder, write_file
from schemas.errors import UserError
from testbed.sites.local import network
from testbed.spec import GroupSpec, TestbedSpec

_VERSION = 2


@dataclass(frozen=True)
class LocalRecord:
    """Record of a testbed.

    `chain` are the current layers of every node's root and disk, bottom to top; only the last one
    is written. `snapshots` has the chain of each label.
    """

    spec: TestbedSpec
    subnet: int
    ready: bool = False
    chain: tuple[int, ...] = (0,)
    next_layer: int = 1
    snapshots: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

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
        return replace(
            self,
            snapshots={**self.snapshots, label: self.chain},
            chain=(*self.chain, self.next_layer),
            next_layer=self.next_layer + 1,
        )

    def rewound(self, label: str) -> LocalRecord:
        """Return the record with the chain of `label` and a new layer on top."""
        return replace(
            self,
            chain=(*self.snapshots[label], self.next_layer),
            next_layer=self.next_layer + 1,
        )

    def without(self, label: str) -> LocalRecord:
        """Return the record without the snapshot `label`."""
        rest = {name: chain for name, chain in self.snapshots.items() if name != label}
        return replace(self, snapshots=rest)

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
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        data = {}
    if data.get("version") != _VERSION:
        raise UserError(
            "is of another version of hotbed",
            where=path,
            do=f"take the testbed down: `hotbed down {folder.name}`",
        )
    return LocalRecord(
        spec=TestbedSpec.model_validate(data["spec"]),
        subnet=data["subnet"],
        ready=data["ready"],
        chain=tuple(data["chain"]),
        next_layer=data["next_layer"],
        snapshots={label: tuple(chain) for label, chain in data["snapshots"].items()},
    )


def save(folder: Path, record: LocalRecord) -> None:
    make_folder(folder)
    data = {
        "version": _VERSION,
        "spec": record.spec.model_dump(mode="json"),
        "subnet": record.subnet,
        "ready": record.ready,
        "chain": record.chain,
        "next_layer": record.next_layer,
        "snapshots": record.snapshots,
    }
    write_file(folder / "record.json", json.dumps(data, indent=1), 0o644)


def subnets(testbeds: Path) -> set[int]:
    """Return the networks that the recorded testbeds use."""
    found = set()
    for path in testbeds.glob("*/record.json"):
        try:
            found.add(int(json.loads(path.read_text())["subnet"]))
        except (OSError, ValueError, KeyError):
            continue
    return found
