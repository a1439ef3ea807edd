"""Node daemon of Swift: its servers run with their current settings."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import StoreError
from testbed.stores.swift import node as daemon
from testbed.stores.swift import services
from testbed.stores.swift.bring import put_layout
from testbed.stores.swift.changes import Changes
from testbed.stores.swift.cluster import initial
from testbed.stores.swift.confs import WantedServers
from testbed.stores.swift.node import SwiftNode
from tests.errors import raises
from tests.testbed.stores.swift_fakes import CONFIG, SECRETS, cluster, opened

PROXY = services.PROXY


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the restarted units in order; "reloaded" marks a proxy that applied its settings."""
    found: list[str] = []

    def start(wanted: WantedServers, restart: Sequence[str] = ()) -> list[str]:
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


def test_a_server_is_started_anew_until_it_runs_with_its_settings(
    tmp_path: Path, started: list[str]
) -> None:
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


def test_a_server_that_was_stopped_meanwhile_is_started_when_it_comes_back(
    tmp_path: Path, started: list[str]
) -> None:
    node = SwiftNode(tmp_path / "node.json")
    node.answer(configured())
    node.answer({"op": "start"})
    assert node.answer(configured(""))["stale"] == []  # stopped; killed before the next step
    assert node.answer(configured())["stale"] == [PROXY]


def test_processes_that_did_not_come_up_are_asked_for_again(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_layout_tells_all_shares_and_processes(tmp_path: Path, started: list[str]) -> None:
    """Leftovers of a killed change on nodes are in no file: the state shows no difference."""
    store, nodes = opened(tmp_path)
    put_layout(store, "static")
    told = {(node, ask["op"]) for one in nodes.asked for node, ask in one.items()}
    assert {(node, "shares") for node in ("p0", "p1", "s0", "s1")} <= told
    assert {("p0", "workers"), ("p1", "workers")} <= told


@pytest.mark.parametrize(("before", "after"), [(0.4, 0.05), (0.05, 0.4)])
def test_processes_start_on_the_larger_share(tmp_path: Path, before: float, after: float) -> None:
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
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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


def test_clients_that_stay_or_do_not_read_stop_no_other(served: Path) -> None:
    first = connect(served)
    assert ask(first, 1) == 1
    deaf = connect(served)
    deaf.sendall(b'{"n": 50000000}\n')
    others = [connect(served) for _ in range(200)]
    assert [ask(client, 3) for client in others[-50:]] == [3] * 50
    assert first.recv(1) == b""  # it was closed to make room
    for client in (first, deaf, *others):
        client.close()
