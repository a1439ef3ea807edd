"""Swift's nodes: the daemon, its servers and statistics, and removal from the rings."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import RemoteError, StoreError
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.ssh import Completed, LocalShell
from testbed.stores.swift import accesslog, services
from testbed.stores.swift import node as daemon
from testbed.stores.swift.bring import put_layout
from testbed.stores.swift.changes import Changes
from testbed.stores.swift.cluster import cluster_from_json, initial
from testbed.stores.swift.confs import DEVICES, VENV, Wanted
from testbed.stores.swift.node import SwiftNode
from testbed.stores.swift.storage import ALL, Passes, StorageChanges
from testbed.stores.swift.store import SwiftStore
from tests.errors import raises
from tests.testbed.sites.manual_clock import ManualClock
from tests.testbed.stores.swift_fakes import CONFIG, DATA, SECRETS, FakeNodes, cluster, opened

PROXY = services.PROXY


@pytest.fixture
def started(monkeypatch):
    """Return the restarted units in order; "reloaded" marks a proxy that applied its settings."""
    found: list[str] = []

    def start(wanted: Wanted, restart: Sequence[str] = ()) -> list[str]:
        found.extend(restart)
        return list(restart)

    def reload_proxy(workers: int) -> float:
        found.append("reloaded")
        return 1.0

    monkeypatch.setattr(services, "secrets", lambda: SECRETS)
    monkeypatch.setattr(services, "write", lambda wanted: [])
    monkeypatch.setattr(services, "start", start)
    monkeypatch.setattr(services, "reload_proxy", reload_proxy)
    monkeypatch.setattr(SwiftNode, "_look", lambda self: None)
    return found


def configured(microstore: str = "small") -> dict[str, Any]:
    """Return the request for a proxy node of this microstore; without one, in the pool."""
    state = initial(cluster())
    changes = Changes(CONFIG, cluster())
    wanted = changes.wanted(state, "p0" if microstore == "small" else "p1")
    wanted |= {"memcached": "10.0.0.1"}
    if not microstore:
        del wanted["proxy"]
    return {"op": "configure", "wanted": wanted, "address": "10.0.0.1", "devices": {}}


def test_a_server_is_started_anew_until_it_runs_with_its_settings(tmp_path, started):
    """The process that wrote the settings was killed before the start, and its successor too."""
    kept = tmp_path / "node.json"
    node = SwiftNode(kept)
    assert PROXY in node.answer(configured())["stale"]
    node.answer({"op": "start"})
    assert node.answer(configured())["stale"] == []
    assert node.answer(configured("large"))["stale"] == [PROXY]  # killed here,
    assert SwiftNode(kept).answer(configured("large"))["stale"] == [PROXY]  # and here again
    started.clear()
    again = SwiftNode(kept)
    again.answer({"op": "start"})
    assert started == [PROXY]
    again.answer({"op": "start"})
    assert started == [PROXY]
    assert SwiftNode(kept).answer(configured("large"))["stale"] == []


def test_a_server_that_was_stopped_meanwhile_is_started_when_it_comes_back(tmp_path, started):
    node = SwiftNode(tmp_path / "node.json")
    node.answer(configured())
    node.answer({"op": "start"})
    assert node.answer(configured(""))["stale"] == []  # stopped; killed before the next step
    assert node.answer(configured())["stale"] == [PROXY]


def test_processes_that_did_not_come_up_are_asked_for_again(tmp_path, started, monkeypatch):
    node = SwiftNode(tmp_path / "node.json")
    node.answer(configured())
    node.answer({"op": "start"})
    workers = {"op": "workers", "workers": 2}

    def fails(count: int) -> float:
        raise StoreError("the proxy did not start 2 processes within 50 s.")

    with monkeypatch.context() as context:
        context.setattr(services, "reload_proxy", fails)
        with raises(StoreError, "did not start 2 processes"):
            node.answer(workers)
    started.clear()
    assert "seconds" in node.answer(workers)
    assert node.answer(workers) == {"changed": []}
    assert started == ["reloaded"]
    assert json.loads((tmp_path / "node.json").read_text())["running"][PROXY]


def test_a_layout_sends_all_shares_and_processes(tmp_path, started):
    """Leftovers of a killed change on nodes are in no file: the state shows no difference."""
    store, nodes = opened(tmp_path)
    put_layout(store, "static")
    sent = {(node, ask["op"]) for one in nodes.asked for node, ask in one.items()}
    assert {(node, "shares") for node in ("p0", "p1", "s0", "s1")} <= sent
    assert {("p0", "workers"), ("p1", "workers")} <= sent


@pytest.mark.parametrize(("before", "after"), [(0.4, 0.05), (0.05, 0.4)])
def test_processes_start_on_the_larger_share(tmp_path, before, after):
    store, nodes = opened(tmp_path)
    put_layout(store, microstores={"small": {"proxy_cores": before, "workers": 2}})
    nodes.asked.clear()
    put_layout(store, microstores={"small": {"proxy_cores": after, "workers": 1}})
    asked = [one["p0"] for one in nodes.asked if "p0" in one]
    reloaded = next(place for place, one in enumerate(asked) if one["op"] == "workers")
    share = next(place for place, one in enumerate(asked) if one.get("shares") == {"proxy": after})
    assert (share < reloaded) == (after > before)


class Echo(SwiftNode):
    """Daemon that answers with the requested number of letters."""

    def answer(self, request: Mapping[str, Any]) -> Any:
        return "x" * request["n"]

    def tick(self) -> None:
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Provide the socket of a daemon with short waits for its clients."""
    monkeypatch.setattr(daemon, "_PATIENCE_S", 0.05)
    path = tmp_path / "run" / "socket"
    server = daemon.NodeSocketServer(Echo(tmp_path / "node.json"), path)
    thread = threading.Thread(target=server.run, args=(0.01,))
    thread.start()
    yield path
    server.end()
    thread.join()


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    client.settimeout(30)
    return client


def ask(client: socket.socket, n: int) -> int:
    client.sendall(json.dumps({"n": n}).encode() + b"\n")
    with client.makefile() as answers:
        return len(json.loads(answers.readline())["result"])


def test_clients_that_stay_or_do_not_read_stop_no_other(served):
    first = connect(served)
    assert ask(first, 1) == 1
    deaf = connect(served)
    deaf.sendall(b'{"n": 50000000}\n')
    others = [connect(served) for _ in range(200)]
    assert [ask(client, 3) for client in others[-50:]] == [3] * 50
    assert first.recv(1) == b""  # it was closed to make room
    for client in (first, deaf, *others):
        client.close()


# -- removal of an empty storage node from the rings -----------------------------------------------


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


def test_files_are_counted_by_kind_on_the_given_disks(tmp_path):
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


def test_a_pass_that_fails_or_does_not_end_stops_no_other_pass(tmp_path):
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
    with pytest.raises(RemoteError) as sent:
        Passes(lambda _: shell).run("s1", "small", daemons, limit_s=90)
    assert "object-replicator" in str(sent.value)
    assert "container-replicator failed (no ring)" in str(sent.value)
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

    def run(self, node, microstore, daemons=ALL, *, limit_s):
        self.ran.append((node, microstore, tuple(daemons)))
        self.on_pass()
        if self.cut_off:
            raise RemoteError(self.cut_off)


Built = list[tuple[list[str], list[tuple[str, str]]]]


def changes(
    tmp_path: Path, leaving: Leaving, pass_s: float = 10.0
) -> tuple[StorageChanges, ManualClock, Built]:
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
    clock, built = ManualClock(100.0), Built()
    found = StorageChanges(store, clock=clock.now, sleep=clock.sleep)
    found._passes = leaving
    leaving.on_pass = lambda: clock.sleep(pass_s)

    def build(state: Any, storage: str, emptied: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        built.append((sorted(state.members[storage]), list(emptied)))
        return {"rings": {}, "changed": True, "moved": 0, "balance": 0.0}

    store.changes.build_rings = build  # type: ignore[method-assign]
    store.changes.ring_requests = lambda *_: []  # type: ignore[method-assign,return-value]
    return found, clock, built


def test_a_node_leaves_after_as_many_passes_as_it_takes(tmp_path):
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


def test_an_empty_node_is_looked_at_again_when_all_must_know_the_rings(tmp_path):
    """After the first pass, a proxy with old rings wrote to the node."""
    leaving = Leaving([{"objects": 9}, {}])
    found, clock, _ = changes(tmp_path, leaving, pass_s=1.0)
    whole = leaving.held

    def held(node: str, disks: Sequence[str]) -> dict[str, int]:
        if len(leaving.ran) == 1 and clock.now() >= 116.0:
            return NOTHING | {"async_pending": 2}
        return whole(node, disks)

    leaving.held = held  # type: ignore[method-assign]
    found.empty("small", "s1", ["d0", "d1"])
    assert sum(clock.slept) == pytest.approx(17.0)
    assert [daemons for *_, daemons in leaving.ran] == [("object-replicator",), ("object-updater",)]


def test_passes_that_change_nothing_end_and_the_node_stays(tmp_path):
    leaving = Leaving([{"objects": 9}, {"objects": 7}], "object-replicator failed (no ring)")
    found, _, built = changes(tmp_path, leaving, pass_s=20.0)
    effect = found.remove("s1")
    assert not effect.ok
    assert "after 80 s (7 in objects)" in effect.message
    assert "object-replicator failed (no ring)" in effect.message
    assert len(leaving.ran) == 4
    assert len(built) == 1


def test_removal_ends_in_its_time_even_if_there_is_progress(tmp_path):
    leaving = Leaving([{"objects": 1000 - count} for count in range(900)])
    found, clock, _ = changes(tmp_path, leaving, pass_s=100.0)
    assert not found.remove("s1").ok
    assert clock.now() == pytest.approx(600.0)


def test_single_disks_leave_alike_and_unknown_ones_are_refused(tmp_path):
    leaving = Leaving([{"objects": 9}, {}])
    found, _, built = changes(tmp_path, leaving, pass_s=20.0)
    assert "disk 'd7' of node s1 is in no ring" in found.remove("s1", ["d7"]).message
    assert built == []
    assert found.remove("s1", ["d1"]).message == "d1 of s1 out of the rings"
    assert built == [(["s0", "s1", "s2"], [("s1", "d1")]), (["s0", "s1", "s2"], [])]


# -- statistics from the access log ----------------------------------------------------------------


def line(method: str = "GET", status: int = 200, seconds: str = "0.0500", **other: str) -> bytes:
    words = {"account": "AUTH_a", "got": "-", "gave": "4097", "source": "-", "object": "o"} | other
    text = (
        f"<134>hbswift: hbswift {method} {words['account']} {status} {words['got']} "
        f"{words['gave']} {seconds} 0.01 {words['source']} {words['object']}"
    )
    return text.encode() + b"\0"


def parsed(datagram: bytes) -> accesslog.AccessLine:
    found = accesslog.parse(datagram)
    assert found is not None
    return found


def test_a_line_as_swift_sends_it():
    """Recorded line: the formatter adds the transaction."""
    found = accesslog.parse(
        b"<134>hbswift: hbswift GET AUTH_small 401 - 131 0.1089 0.10876107215881348 - o "
        b"(txn: tx9088a61eef1145498a31f-006b027dfc)\x00"
    )
    assert found is not None
    assert (found.tenant, found.bytes, found.failed) == ("small", 131, False)
    own = (
        b"<134>hbswift: hbswift HEAD AUTH_small 503 - - 0.0176 - GET_ACCOUNT_INFO - "
        b"(txn: tx9088a61eef1145498a31f-006b027dfc)\x00"
    )
    assert accesslog.parse(own) is None


def test_lines_of_the_access_log_become_sums():
    sums = accesslog.Sums()
    for datagram in (
        line(),
        line("PUT", 201, "0.2000", got="1000", gave="-"),
        line("DELETE", 404, gave="70"),
        line(status=503),
        line(status=499),
    ):
        found = accesslog.parse(datagram)
        assert found is not None
        assert found.tenant == "a"
        sums.add(found)
    assert (sums.requests, sums.failed, sums.writes, sums.bytes) == (3, 2, 2, 5167)
    assert sums.sizes == {13: 1, 10: 1}
    assert sums.seconds == pytest.approx(0.3)
    assert accesslog.percentile({20: 199}, 0.95) is None
    assert accesslog.percentile({20: 190, 40: 10}, 0.95) == pytest.approx(1e-3)
    assert accesslog.percentile({20: 100, 40: 100}, 0.95) == pytest.approx(1e-2)


def test_invented_accounts_are_not_counted(monkeypatch):
    """Anybody who reaches a proxy can name accounts. The daemon's memory and the real tenants' sums
    stay correct."""
    monkeypatch.setattr(accesslog, "MOST_TENANTS", 3)
    listener = accesslog.Listener(port=0)
    try:
        for n in range(5):
            for status in (401, 403, 499):
                listener.add(parsed(line(status=status, account=f"AUTH_invented{n}")))
        listener.add(parsed(line(account="AUTH_a")))
        listener.add(parsed(line(status=401, account="AUTH_a")))
        listener.add(parsed(line(status=503, account="AUTH_b")))
        assert {name: sums.requests for name, sums in listener.tenants.items()} == {"a": 2, "b": 0}
        for n in range(5):
            listener.add(parsed(line(account=f"AUTH_made{n}")))
        assert len(listener.tenants) == 3
    finally:
        listener.close()


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"<134>swift-proxy: ERROR with Object server",
        line(account="-"),
        line(source="TA"),
        line(seconds="soon"),
        line()[:-12],
    ],
)
def test_other_lines_are_left_alone(datagram):
    assert accesslog.parse(datagram) is None
