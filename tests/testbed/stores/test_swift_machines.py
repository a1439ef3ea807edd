"""Whole machines of Swift microstores, as in basic MOS."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.agent.contract import AgentNode
from testbed.stores.microstores import AssignMachine, Resources
from testbed.stores.swift import confs
from testbed.stores.swift.bring import put_layout
from testbed.stores.swift.cluster import cluster_from_json
from testbed.stores.swift.store import SwiftStore
from tests.testbed.stores.swift_fakes import CONFIG, DATA, FakeNodes, opened


def with_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage_cores: float = 0.0
) -> tuple[SwiftStore, FakeNodes]:
    """Return a store with proxies as machines; p2 belongs to no microstore."""
    data = json.loads(json.dumps(DATA)) | {"spare_proxies": ["p2"]}
    data["pool"]["machine"] = {"proxy_cores": 0.2, "network": 12.5e6}
    data["pool"]["machine"]["storage_cores"] = storage_cores
    nodes = FakeNodes()
    config = replace(
        CONFIG, nodes=(*CONFIG.nodes, AgentNode("p2", "10.0.0.9", ("proxy",), "iowait"))
    )
    store = SwiftStore(
        config, cluster_from_json(data), nodes, tmp_path / "state.json", sleep=nodes.slept
    )
    rings = {name: dict.fromkeys(confs.KINDS, "") for name in ("small", "large")}
    monkeypatch.setattr(store.changes, "build_rings", lambda *_: {"rings": rings})
    return store, nodes


def test_machines_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = {"proxy_cores": 0.4, "storage_cores": 0.0, "network": 25e6}
    store, nodes = opened(tmp_path, machine=machine)
    rings = {name: dict.fromkeys(confs.KINDS, "") for name in ("small", "large")}
    monkeypatch.setattr(store.changes, "build_rings", lambda *_: {"rings": rings})
    assert "machines" in store.offers().acts
    [effect] = store.act([AssignMachine("p1", "small")])
    assert effect.ok, effect
    seen = store.seen(store.state(), {})
    assert seen.store("small").resources.proxy_cores == pytest.approx(0.8)
    assert seen.store("large").resources.proxy_cores == 0
    assert [machine.microstore for machine in seen.machines] == ["small", "small"]
    assert any(r.get("p1", {}).get("restart") for r in nodes.asked)
    [effect] = store.act([AssignMachine("p1", "")])
    assert effect.ok, effect
    assert nodes.asked[0].keys() == {"admin"}  # clients are informed before it leaves


def test_machines_that_nobody_has_are_in_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, nodes = with_machines(tmp_path, monkeypatch)
    seen = store.seen(store.state(), {})
    assert [(one.name, one.microstore) for one in seen.machines] == [
        *(("p0", "small"), ("p1", "large"), ("p2", "")),
    ]
    assert "proxy" not in store.changes.configure(store.state())["p2"]["wanted"]
    [effect] = store.act([AssignMachine("p2", "small")])
    assert effect.ok, effect
    assert store.state().proxies_of("small") == ("p0", "p2")
    assert nodes.asked[-1]["admin"]["tenants"]["a"]["proxies"] == [
        *("http://10.0.0.1:8080", "http://10.0.0.9:8080"),
    ]
    assert {"op": "shares", "shares": {"proxy": 0.2}, "network": 12.5e6} in [
        requests.get("p2") for requests in nodes.asked
    ]
    put_layout(store, "static")
    assert store.state().proxies["p2"] == ""
    assert store.act([AssignMachine("p0", ""), AssignMachine("p1", "")])[1].ok
    put_layout(store)  # no proxy exists that could set its processes
    assert set(store.state().proxies.values()) == {""}


def test_a_machine_leaves_its_tenants_before_it_serves_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, nodes = with_machines(tmp_path, monkeypatch)
    assert store.act([AssignMachine("p2", "small")])[0].ok
    nodes.asked.clear()
    assert store.act([AssignMachine("p2", "large")])[0].ok
    told = [place for place, one in enumerate(nodes.asked) if "admin" in one]
    restarted = [place for place, one in enumerate(nodes.asked) if one.get("p2", {}).get("restart")]
    assert told[0] < restarted[0] < told[1]
    # Drivers read their file every second.
    (waited,) = [place for place, one in enumerate(nodes.asked) if "slept" in one]
    assert told[0] < waited < restarted[0]
    assert nodes.asked[waited]["slept"]["seconds"] > 1
    first, last = (nodes.asked[place]["admin"]["tenants"] for place in told)
    assert not any("10.0.0.9" in url for one in first.values() for url in one["proxies"])
    assert last["b"]["proxies"] == ["http://10.0.0.2:8080", "http://10.0.0.9:8080"]


def test_what_is_put_back_cuts_nobody_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free machines serve first, then clients are informed, then other machines change owner."""
    store, nodes = with_machines(tmp_path, monkeypatch)
    saved = json.loads(json.dumps(store.save()))
    assert store.act([AssignMachine("p2", "small"), AssignMachine("p0", "")])[1].ok
    nodes.asked.clear()
    [effect] = store.restore(saved)
    assert effect.ok, effect
    first, *others = nodes.asked
    assert set(first) == {"p0", "p1", "p2"}  # a check for half-done changes
    moves = [
        name
        for requests in others
        for name, request in requests.items()
        if request["op"] in ("configure", "endpoints", "sleep")
    ]
    assert moves[:5] == ["p0", "admin", "slept", "p2", "admin"]
    served = next(one["admin"]["tenants"]["a"]["proxies"] for one in nodes.asked if "admin" in one)
    assert served == ["http://10.0.0.1:8080"]
    assert store.state().proxies["p2"] == ""


def test_a_machine_that_was_left_half_way_is_whose_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller was killed between giving a machine and recording it."""
    store, nodes = with_machines(tmp_path, monkeypatch)
    saved = json.loads(json.dumps(store.save()))
    nodes.answers["p0"] = {"tenants": {}, "slots": [], "changed": [], "stale": ["a proxy"]}
    assert store.restore(saved) == []
    restarted = [name for one in nodes.asked for name, ask in one.items() if ask.get("restart")]
    assert restarted == ["p0"]
    assert nodes.asked[-1]["admin"]["tenants"]["a"]["proxies"] == ["http://10.0.0.1:8080"]


@pytest.mark.parametrize("layout", [True, False])
def test_a_machine_that_was_left_half_way_serves_before_more_is_asked_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, layout: bool
) -> None:
    """It may run no proxy now and would refuse a number of processes."""
    store, nodes = with_machines(tmp_path, monkeypatch)
    saved = json.loads(json.dumps(store.save()))
    assert store.act([AssignMachine("p2", "small")])[0].ok
    nodes.answers["p0"] = {"tenants": {}, "slots": [], "changed": [], "stale": ["a proxy"]}
    nodes.asked.clear()
    if layout:
        put_layout(store, "static")
    else:
        assert [effect.ok for effect in store.restore(saved)] == [True]
    told = [one["p0"]["op"] for one in nodes.asked if "p0" in one]
    assert told[:4] == ["configure", "configure", "ring", "start"]
    assert "workers" in told[4:]
    assert store.state().proxies["p2"] == ""


def test_a_machines_storage_cores_go_where_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, nodes = with_machines(tmp_path, monkeypatch, storage_cores=0.2)
    # Nobody may assign shares in addition to the machines' shares.
    assert store.offers().acts == {"machines", "tenants"}
    seen = store.seen(store.state(), {})
    assert seen.store("small").resources.storage_cores == pytest.approx(0.2)
    assert store.act([AssignMachine("p2", "small")])[0].ok
    assert store.seen(store.state(), {}).store("small").resources == Resources(0.4, 0.4, 25e6)
    assert {"op": "shares", "shares": {"small": 0.2}} in [one.get("s0") for one in nodes.asked]
    assert store.act([AssignMachine("p0", ""), AssignMachine("p2", "")])[1].ok
    # Its servers still exist, so a step remains.
    assert store.changes.shares(store.state())["s0"]["shares"]["small"] == pytest.approx(0.05)


def test_without_machines_storage_cores_stay_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = with_machines(tmp_path, monkeypatch)
    assert store.offers().acts == {"machines", "resources", "tenants"}
    assert store.act([AssignMachine("p2", "small")])[0].ok
    assert store.seen(store.state(), {}).store("small").resources.storage_cores == 0.4
