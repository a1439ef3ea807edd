"""Removal of an empty storage node from Swift's rings, however long passes take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import RemoteError, StoreError
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.agent.reach import LocalShell
from testbed.ssh import Completed
from testbed.stores.swift.cluster import cluster_from_json
from testbed.stores.swift.confs import DEVICES, VENV, StorageServers, storage_conf
from testbed.stores.swift.storage import ALL, Passes, StorageChanges
from testbed.stores.swift.store import SwiftStore
from tests.errors import raises
from tests.testbed.stores.swift_fakes import CONFIG, DATA, FakeNodes

NOTHING = {"objects": 0, "containers": 0, "accounts": 0, "async_pending": 0}


class HereShell(LocalShell):
    """Shell with the node's folders and programs in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        super().__init__("s1")
        self.folder = folder
        for name, text in (("mountpoint", '[ -d "$2/objects" ]'), ("chown", ":")):
            self.program(folder / "bin" / name, text)

    def program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        there = [
            word.replace(DEVICES, f"{self.folder}/srv")
            .replace(VENV, f"{self.folder}/venv")
            .replace("/run/hotbed-swift", f"{self.folder}/run")
            for word in argv
        ]
        path = f"PATH={self.folder}/bin:{os.environ['PATH']}"
        return super().run(["env", path, *there], **options)


def test_what_a_node_holds_is_counted_by_kind_on_the_disks_asked_for(tmp_path: Path) -> None:
    shell = HereShell(tmp_path)
    for name in (
        *("d0/objects/3/abc/0a/1.data", "d0/objects/3/abc/0a/2.meta", "d0/objects/4/abc/0b/3.ts"),
        *("d0/objects/3/hashes.pkl", "d0/objects/3/.lock-replication", "d0/objects-1/3/a/b/1.data"),
        *("d0/containers/7/abc/0c/0c.db", "d0/containers/7/abc/0c/0c.db.pending"),
        *("d0/async_pending/a83/0d-17", "d0/quarantined/objects/0e/1.data", "d0/tmp/x.data"),
        *("d1/objects/3/abc/0a/1.data", "d1/accounts/9/abc/0f/0f.db"),
    ):
        path = tmp_path / "srv" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = Passes(lambda _: shell)
    assert found.held("s1", ["d0"]) == {
        **NOTHING, "objects": 4, "containers": 1, "async_pending": 1
    }  # fmt: skip
    assert found.held("s1", ["d1"]) == {**NOTHING, "objects": 1, "accounts": 1}
    with raises(StoreError, "disk d2 is not mounted"):
        found.held("s1", ["d0", "d2"])


def test_a_pass_that_fails_or_does_not_end_is_told_and_the_others_are_run(tmp_path: Path) -> None:
    shell = HereShell(tmp_path)
    shell.program(
        tmp_path / "venv/bin/python",
        f"""echo "$2 $3 $4 $5" >> {tmp_path}/ran
        case $2 in *container-replicator) echo "no ring"; exit 3 ;; esac""",
    )
    # Only one daemon appears to exceed its time, however slow this machine is.
    shell.program(
        tmp_path / "bin/timeout",
        f"""echo "$1 $2 $3" >> {tmp_path}/limits
        shift 3; "$@" || exit
        case $3 in *object-replicator) exit 124 ;; esac""",
    )
    daemons = ("object-replicator", "container-replicator", "account-replicator")
    with pytest.raises(RemoteError) as told:
        Passes(lambda _: shell).run("s1", "small", daemons, limit_s=90)
    assert "object-replicator" in str(told.value)
    assert "container-replicator failed (no ring)" in str(told.value)
    assert (tmp_path / "ran").read_text().splitlines() == [
        f"{tmp_path}/venv/bin/swift-{kind}-replicator /etc/hotbed/swift/{kind}-small.conf once -v"
        for kind in ("object", "container", "account")
    ]
    Passes(lambda _: shell).run("s1", "small", ["account-replicator"], limit_s=60)
    assert (tmp_path / "limits").read_text().split("\n") == [*["-k 5 90"] * 3, "-k 5 60", ""]


class Leaving(Passes):
    """Node with scripted contents: one entry after each pass."""

    def __init__(self, holds: Sequence[Mapping[str, int]], cut_off: str = "") -> None:
        self.holds, self.cut_off = list(holds), cut_off
        self.ran: list[tuple[str, str, tuple[str, ...]]] = []
        self.on_pass: Callable[[], None] = lambda: None

    def held(self, node: str, disks: Sequence[str]) -> dict[str, int]:
        return NOTHING | self.holds[min(len(self.ran), len(self.holds) - 1)]

    def run(
        self,
        node: str,
        microstore: str,
        daemons: Sequence[str] = ALL,
        *,
        limit_s: float,
    ) -> None:
        self.ran.append((node, microstore, tuple(daemons)))
        self.on_pass()
        if self.cut_off:
            raise RemoteError(self.cut_off)


Built = list[tuple[list[str], list[tuple[str, str]]]]


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 100.0, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def changes(
    tmp_path: Path, leaving: Leaving, pass_s: float = 10.0
) -> tuple[StorageChanges, Clock, Built]:
    """Return three storage nodes of two disks each; their rings are recorded, not built."""
    data = DATA | {
        "microstores": {
            name: one | {"storage": ["s0", "s1", "s2"]} for name, one in DATA["microstores"].items()
        },
        "disks": {node: ["d0", "d1"] for node in ("s0", "s1", "s2")},
    }
    third = AgentNode("s2", "10.0.0.9", ("storage",), "iowait")
    config = AgentConfig("t", "swift", (*CONFIG.nodes, third))
    store = SwiftStore(config, cluster_from_json(data), FakeNodes(), tmp_path / "state.json")
    clock, built = Clock(), Built()
    found = StorageChanges(store, clock=lambda: clock.now, sleep=clock.sleep)
    found._passes = leaving
    leaving.on_pass = lambda: clock.sleep(pass_s)

    def build(state: Any, storage: str, emptied: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        built.append((sorted(state.members[storage]), list(emptied)))
        return {"rings": {}, "changed": True, "moved": 0, "balance": 0.0}

    store.changes.build_rings = build  # type: ignore[method-assign]
    store.changes.ring_requests = lambda *_: []  # type: ignore[method-assign,return-value]
    return found, clock, built


def test_a_node_leaves_after_as_many_passes_as_it_takes(tmp_path: Path) -> None:
    """Interrupted passes also achieve this; each pass runs only daemons with work to do."""
    objects = [{"objects": count} for count in (90, 70, 50, 30, 10)]
    leaving = Leaving([{"objects": 90, "containers": 1}, *objects, {}], "did not end within 120 s")
    found, _, built = changes(tmp_path, leaving)
    effect = found.remove("s1")
    assert effect.ok, effect
    assert built == [
        (["s0", "s1", "s2"], [("s1", "d0"), ("s1", "d1")]),
        (["s0", "s2"], []),
    ]
    assert leaving.ran[0] == ("s1", "small", ("object-replicator", "container-replicator"))
    assert leaving.ran[1:] == [("s1", "small", ("object-replicator",))] * 5


def test_an_empty_node_is_looked_at_again_when_all_must_know_the_rings(tmp_path: Path) -> None:
    """After the first pass, a proxy with old rings wrote to the node."""
    leaving = Leaving([{"objects": 9}, {}])
    found, clock, _ = changes(tmp_path, leaving, pass_s=1.0)
    whole = leaving.held

    def held(node: str, disks: Sequence[str]) -> dict[str, int]:
        if len(leaving.ran) == 1 and clock.now >= 116.0:
            return NOTHING | {"async_pending": 2}
        return whole(node, disks)

    leaving.held = held  # type: ignore[method-assign]
    found.empty("small", "s1", ["d0", "d1"])
    assert clock.slept == pytest.approx(17.0)
    assert [daemons for *_, daemons in leaving.ran] == [("object-replicator",), ("object-updater",)]


def test_passes_that_change_nothing_end_and_the_node_stays(tmp_path: Path) -> None:
    leaving = Leaving([{"objects": 9}, {"objects": 7}], "object-replicator failed (no ring)")
    found, _, built = changes(tmp_path, leaving, pass_s=20.0)
    effect = found.remove("s1")
    assert not effect.ok
    assert "after 80 s (7 in objects)" in effect.message
    assert "object-replicator failed (no ring)" in effect.message
    assert len(leaving.ran) == 4
    assert len(built) == 1


def test_removal_ends_in_its_time_even_if_there_is_progress(tmp_path: Path) -> None:
    leaving = Leaving([{"objects": 1000 - count} for count in range(900)])
    found, clock, _ = changes(tmp_path, leaving, pass_s=100.0)
    assert not found.remove("s1").ok
    assert clock.now == pytest.approx(600.0)


def test_single_disks_leave_alike_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    leaving = Leaving([{"objects": 9}, {}])
    found, _, built = changes(tmp_path, leaving, pass_s=20.0)
    assert "disk 'd7' of node s1 is in no ring" in found.remove("s1", ["d7"]).message
    assert built == []
    assert found.remove("s1", ["d1"]).message == "d1 of s1 out of the rings"
    assert built == [(["s0", "s1", "s2"], [("s1", "d1")]), (["s0", "s1", "s2"], [])]


def test_object_servers_take_several_copies_at_once() -> None:
    text = storage_conf(StorageServers("small", "10.0.0.3", 6200), "object")
    server, _, replicator = text.partition("[object-replicator]")
    assert "replication_concurrency_per_device = 4" in server.partition("[app:object-server]")[2]
    assert "node_timeout = 30" in replicator
    assert "per_device" not in storage_conf(StorageServers("small", "10.0.0.3", 6200), "container")
