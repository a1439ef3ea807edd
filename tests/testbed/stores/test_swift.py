"""Swift microstores without Swift: a layout's effect on nodes, whole machines, counters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import StoreError, UserError
from testbed.agent.clean import off_layout
from testbed.agent.contract import AgentNode
from testbed.stores.contract import Effect
from testbed.stores.microstores import (
    MICROSTORES,
    AssignMachine,
    MapTenant,
    Microstore,
    Microstores,
    Resources,
    SetResources,
)
from testbed.stores.swift import accesslog, confs, sensing
from testbed.stores.swift.bring import put_layout
from testbed.stores.swift.changes import Changes
from testbed.stores.swift.cluster import (
    cluster_from_json,
    initial,
)
from testbed.stores.swift.shares import Shares
from testbed.stores.swift.store import SwiftStore
from tests.errors import raises
from tests.testbed.stores.swift_fakes import (
    CONFIG,
    DATA,
    SECRETS,
    FakeNodes,
    cluster,
    opened,
)


def of(seen: Microstores, name: str) -> Microstore:
    return next(one for one in seen.stores if one.name == name)


# --- a layout's effect on nodes ------------------------------------------------------------------


def test_nodes_enforce_scaled_cores_and_controllers_see_nominal_ones(tmp_path):
    store, nodes = opened(tmp_path)
    nodes.answers = {"p0": answer(1, 2.0), "s0": answer(1, 2.0)}
    put_layout(store, "static", scale=1.5)
    assert store.state().shares == initial(cluster()).shares
    assert store.save()["scale"] == 1.5
    shares = store.changes.shares(store.state())
    assert (shares["p0"]["shares"], shares["p0"]["network"]) == ({"proxy": 0.6}, 25e6)
    assert shares["s1"]["shares"] == {"small": 0.3, "large": 0.3}
    assert {node: asked["shares"] for node, asked in nodes.asked[-3].items()} == {
        node: one["shares"] for node, one in shares.items()
    }
    assert off_layout(store) == ["layout static"]
    # A controller's changes are scaled as well, and half of an enforced share is half.
    store.act([SetResources("small", Resources(0.2, 0.4, 25e6))])
    assert nodes.asked[-1]["p0"]["shares"] == {"proxy": 0.3}
    intervals = {"p0": sensing.Interval(1.0, {"proxy": 0.15})}
    seen = sensing.microstores(store.cluster, store.state(), intervals)
    assert of(seen, "small").utilization["proxy_cpu"] == pytest.approx(0.5)
    put_layout(store)
    assert store.state().scale == 1.5
    put_layout(store, "static")
    assert (store.state(), off_layout(store)) == (initial(cluster()), [])


def test_keys_are_in_the_proxys_own_file_alone():
    changes, state = Changes(CONFIG, cluster()), initial(cluster())
    for node in ("p0", "s0"):
        files, units = confs.files_of(changes.wanted(state, node), SECRETS)
        for name, text in {**files, **units}.items():
            assert ("key-a" in text) == name.endswith("proxy.conf"), name
            assert ("= suf" in text) == name.endswith("swift.conf"), name
        # Replicators read it only there.
        assert ("/etc/hotbed/swift/swift.conf" in files) == (node == "s0")
    files, units = confs.files_of(changes.wanted(state, "p0"), SECRETS)
    text = files["/etc/hotbed/swift/proxy.conf"]
    assert "user_a_a = key-a .admin" in text
    [line] = [line for line in text.splitlines() if line.startswith("pipeline = ")]
    order = line.removeprefix("pipeline = ").split()
    # Listings by S3 are not turned into text.
    assert order.index("listing_formats") < order.index("s3api") < order.index("tempauth")
    assert all(f"[filter:{name}]" in text for name in order[:-1])
    assert "swift_dir = /etc/hotbed/swift/small" in text


def test_files_of_a_storage_node():
    changes, state = Changes(CONFIG, cluster()), initial(cluster())
    files, units = confs.files_of(changes.wanted(state, "s0"), SECRETS)
    servers = [text for text in units.values() if "-server " in text]
    assert len(servers) == 3 * len(changes.wanted(state, "s0")["storage"])
    for text in servers:
        (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
        assert " setpriv --reuid hotbed-swift --regid" in line.replace("/usr/bin/", "")
    lines = files["/etc/hotbed/swift/rsyncd.conf"].splitlines()
    assert {"address = 10.0.0.3", "hosts allow = 10.0.0.3 10.0.0.4"} <= set(lines)
    files, units = confs.files_of(changes.wanted(state, "p0"), SECRETS)
    assert " -l 10.0.0.1 " in units["hotbed-swift-memcached.service"]


# --- shares, machines, tenants -------------------------------------------------------------------


def test_who_gives_something_up_goes_first(tmp_path):
    store, nodes = opened(tmp_path)
    less = Resources(0.2, 0.4, 10e6)
    more = Resources(0.6, 0.4, 40e6)
    effects = store.act([SetResources("large", more), SetResources("small", less)])
    assert [effect.ok for effect in effects] == [True, True]
    first, second = nodes.asked
    assert first == {"p0": {"op": "shares", "shares": {"proxy": 0.2}, "network": 10e6}}
    assert second == {"p1": {"op": "shares", "shares": {"proxy": 0.6}, "network": 40e6}}
    assert store.state().shares["large"] == more
    assert off_layout(store) == [f"layout {cluster().layout}"]


def test_a_refusal_of_a_node_is_an_error_and_changes_nothing(tmp_path):
    store, nodes = opened(tmp_path)
    nodes.refuse = {"p0"}
    [effect] = store.act([SetResources("small", Resources(0.2, 0.4, 25e6))])
    assert not effect.ok
    assert "node p0: refuses." in effect.message
    assert store.state() == initial(cluster())
    assert off_layout(store) == []


def test_a_node_that_is_away_follows_when_it_returns(tmp_path):
    store, nodes = opened(tmp_path)
    nodes.lost = {"s0"}
    [effect] = store.act([SetResources("small", Resources(0.4, 0.2, 25e6))])
    assert effect.ok, effect
    for node in ("s0", "s1"):
        nodes.answers[node] = answer(1, 1.0) | {"shares": {"small": 0.1, "large": 0.2}}
    nodes.lost, nodes.answers["s0"]["shares"] = set(), {"small": 0.2, "large": 0.2}
    store.sense(frozenset({MICROSTORES}))
    assert nodes.asked[-1] == {"s0": {"op": "shares", "shares": {"small": 0.1, "large": 0.2}}}
    nodes.lost = {"p0", "p1", "s0", "s1"}
    [effect] = store.act([SetResources("small", Resources(0.4, 0.4, 25e6))])
    assert (effect.ok, effect.message) == (False, "no node of s0, s1 answers.")


def test_a_store_is_put_back_as_it_was(tmp_path):
    store, _ = opened(tmp_path)
    saved = json.loads(json.dumps(store.save()))
    store.act([SetResources("small", Resources(0.1, 0.1, 2.5e6)), MapTenant("b", "small")])
    assert store.state().tenants["b"] == ("small",)
    [effect] = store.restore(saved)
    assert effect.ok, effect
    assert store.state() == initial(cluster())
    assert store.restore(saved) == []


def test_a_tenants_objects_must_be_there_for_it_to_move(tmp_path):
    data = json.loads(json.dumps(DATA))
    data["microstores"]["large"]["storage"] = ["s2", "s3"]
    data["disks"] = {name: ["d0"] for name in ("s0", "s1", "s2", "s3")}
    apart = cluster_from_json(data)
    nodes = [AgentNode(name, "10.0.1.1", ("storage",), "iowait") for name in ("s2", "s3")]
    config = replace(CONFIG, nodes=(*CONFIG.nodes, *nodes))
    store = SwiftStore(config, apart, FakeNodes(), tmp_path / "state.json")
    [effect] = store.act([MapTenant("a", "large")])
    assert not effect.ok
    assert "its objects are on other storage nodes" in effect.message
    assert store.offers().acts == {"resources"}
    assert opened(tmp_path)[0].offers().acts == {"resources", "tenants"}
    assert of(store.seen(store.state(), {}), "large").resources.hdds == 2


def test_a_layout_with_an_unknown_name_is_refused(tmp_path):
    store, nodes = opened(tmp_path)
    for arguments, said in (
        ({"microstores": {"x": {}}}, "no microstore 'x'; allowed: small, large"),
        ({"microstores": {"small": {"cpu": 1}}}, "no share of 'cpu'"),
        ({"microstores": {"small": {"network": 0}}}, "network: 0"),
        ({"tenants": {"x": ["small"]}}, "no tenant 'x'"),
        ({"proxies": {"s0": {}}}, "no proxy 's0'"),
    ):
        with raises(UserError, said):
            put_layout(store, "static", **arguments)
    assert nodes.asked == []


def test_single_proxies_may_have_shares_of_their_own(tmp_path):
    store, nodes = opened(tmp_path)
    put_layout(store, "default", proxies={"p0": {"proxy_cores": 0.6, "network": 2.5e6}})
    assert nodes.asked[-1]["admin"]["op"] == "endpoints"
    assert {"op": "shares", "shares": {"proxy": 0.6}} in [r.get("p0") for r in nodes.asked]
    assert store.state().layout == "default"


# --- counters ------------------------------------------------------------------------------------


def answer(number: int, t: float, **counters: Any) -> dict[str, Any]:
    """Return a daemon's answer with one slot."""
    slot = [
        number,
        t,
        counters.get("cpu", {}),
        counters.get("net", [0, 0]),
        counters.get("busy", []),
    ]
    return {"slots": [slot], "tenants": counters.get("tenants", {})}


def test_utilization_is_of_the_share(tmp_path):
    store, nodes = opened(tmp_path)
    sums = accesslog.Sums()
    for node in ("p0", "p1", "s0", "s1"):
        nodes.answers[node] = answer(
            1, 10.0, cpu={"proxy": 1.0, "small": 1.0, "large": 1.0}, busy=[0]
        )
    nodes.answers["p0"]["tenants"] = {"a": sums.to_json()}
    first = store.sense(frozenset({MICROSTORES}))
    assert first.microstores is not None
    assert first.interval_s == 0
    assert first.microstores.stores[0].utilization == {}
    for _ in range(40):
        sums.add(accesslog.AccessLine("a", 0.1, 5000, failed=False, write=False, size=5000))
    nodes.answers["p0"] = answer(5, 12.0, cpu={"proxy": 1.4}, net=[1e6, 25e6])
    nodes.answers["p0"]["tenants"] = {"a": sums.to_json()}
    nodes.answers["p1"] = answer(5, 12.0, cpu={"proxy": 1.0})
    nodes.answers["s0"] = answer(5, 12.0, cpu={"small": 1.2, "large": 1.0}, busy=[500])
    nodes.answers["s1"] = answer(5, 12.0, cpu={"small": 1.0, "large": 1.0}, busy=[0])
    seen = store.sense(frozenset({MICROSTORES})).microstores
    assert seen is not None
    small = of(seen, "small")
    assert small.utilization == pytest.approx(
        {"proxy_cpu": 0.5, "network": 0.5, "storage_cpu": 0.25, "disk": 0.25}
    )
    assert small.slots == pytest.approx((0.5,))
    assert of(seen, "large").utilization["proxy_cpu"] == 0
    tenant = seen.tenants[0]
    assert tenant.requests_s == pytest.approx(20)
    assert tenant.mean_latency_s == pytest.approx(0.1)
    assert tenant.p95_latency_s is None
    assert tenant.workers == pytest.approx(2)
    assert tenant.sizes == {13: 40}
    left = seen.total - small.resources - of(seen, "large").resources
    assert left.within(Resources())
    nodes.refuse = {"p0", "p1", "s0", "s1"}
    with raises(StoreError, "no node of Swift answers"):
        store.sense(frozenset({MICROSTORES}))


@pytest.mark.parametrize(("epoch_s", "slots"), [(12, 48), (25, 100), (180, 102)])
def test_a_slot_is_a_hundredth_of_the_epoch(epoch_s, slots):
    """MOS, section 6, footnote 2; the daemon's slots of 0.25 s are the shortest."""
    count = 4 * epoch_s
    now = {
        "slots": [[n, n / 4, {"proxy": n / 8}, [0, 0], []] for n in range(1, count + 1)],
        "tenants": {},
    }
    found = sensing.interval_of(answer(0, 0.0, cpu={"proxy": 0.0}), now)
    assert found is not None
    assert len(found.slots) == slots
    assert {one.seconds for one in found.slots} == {0.25 * max(1, round(count / 100))}
    assert all(one.cores["proxy"] == pytest.approx(0.5) for one in found.slots)


def test_a_daemon_that_started_anew_counts_from_nothing():
    assert sensing.interval_of(answer(9, 10.0), answer(1, 11.0)) is None
    old, new = accesslog.Sums(), accesslog.Sums()
    for _ in range(3):
        old.add(accesslog.AccessLine("a", 0.1, 1, failed=False, write=True, size=1))
    new.add(accesslog.AccessLine("a", 0.1, 1, failed=False, write=True, size=1))
    assert sensing.difference(old.to_json(), new.to_json())["requests"] == 1


# --- rings and files -----------------------------------------------------------------------------


def test_an_effect_counts_requests_meanwhile(tmp_path):
    store, nodes = opened(tmp_path)
    sums = accesslog.Sums()
    nodes.answers["p0"] = answer(1, 1.0, tenants={"a": sums.to_json()})

    def work() -> str:
        for failed in (True, False, False):
            sums.add(accesslog.AccessLine("a", 0.1, 1, failed=failed, write=True, size=1))
        nodes.answers["p0"] = answer(2, 2.0, tenants={"a": sums.to_json()})
        return "done"

    effect = store.timed(work)
    assert effect == Effect(True, "done", effect.seconds, {"requests": 2.0, "failed": 1.0})


def test_shares_go_by_the_sites_folders_where_it_has_some(tmp_path, monkeypatch):
    """Otherwise they use a slice's quota."""
    calls: list[list[str]] = []
    monkeypatch.setattr(
        "testbed.stores.swift.shares.subprocess.run", lambda argv, **_: calls.append(argv)
    )
    Shares(tmp_path).set("small", 0.35)
    Shares(tmp_path).set("small", None)
    assert [call[-2:] for call in calls] == [
        ["hotbed-swift-small.slice", "CPUQuota=35%"],
        ["hotbed-swift-small.slice", "CPUQuota="],
    ]
    for controller in ("cpu", "cpuacct"):
        (tmp_path / controller / "swift-small").mkdir(parents=True)
    (tmp_path / "cpu" / "cgroup.procs").touch()
    shares = Shares(tmp_path)
    shares.set("small", 0.35)
    folder = tmp_path / "cpu" / "swift-small"
    assert (folder / "cpu.cfs_quota_us").read_text() == "8750"
    assert (folder / "cpu.cfs_period_us").read_text() == "25000"
    shares.set("small", 0.02)  # the kernel's smallest quota is 1 ms
    assert (folder / "cpu.cfs_quota_us").read_text() == "1000"
    assert (folder / "cpu.cfs_period_us").read_text() == "50000"
    (tmp_path / "cpuacct" / "swift-small" / "cpuacct.usage").write_text("2500000000\n")
    assert shares.used(["small", "large"]) == {"small": 2.5, "large": 0.0}


# -- whole machines, as in basic MOS ---------------------------------------------------------------


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


def test_a_machine_leaves_its_tenants_before_it_serves_others(tmp_path, monkeypatch):
    store, nodes = with_machines(tmp_path, monkeypatch)
    assert store.act([AssignMachine("p2", "small")])[0].ok
    nodes.asked.clear()
    assert store.act([AssignMachine("p2", "large")])[0].ok
    sent = [place for place, one in enumerate(nodes.asked) if "admin" in one]
    restarted = [place for place, one in enumerate(nodes.asked) if one.get("p2", {}).get("restart")]
    assert sent[0] < restarted[0] < sent[1]
    # Drivers read their file every second.
    (waited,) = [place for place, one in enumerate(nodes.asked) if "slept" in one]
    assert sent[0] < waited < restarted[0]
    assert nodes.asked[waited]["slept"]["seconds"] > 1
    first, last = (nodes.asked[place]["admin"]["tenants"] for place in sent)
    assert not any("10.0.0.9" in url for one in first.values() for url in one["proxies"])
    assert last["b"]["proxies"] == ["http://10.0.0.2:8080", "http://10.0.0.9:8080"]


def test_a_restored_state_cuts_nobody_off(tmp_path, monkeypatch):
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


def test_a_machine_that_was_left_half_way_returns_to_its_owner(tmp_path, monkeypatch):
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
    tmp_path, monkeypatch, *, layout
):
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
    sent = [one["p0"]["op"] for one in nodes.asked if "p0" in one]
    assert sent[:4] == ["configure", "configure", "ring", "start"]
    assert "workers" in sent[4:]
    assert store.state().proxies["p2"] == ""


def test_a_machines_storage_cores_go_where_it_goes(tmp_path, monkeypatch):
    store, nodes = with_machines(tmp_path, monkeypatch, storage_cores=0.2)
    # Nobody may assign shares in addition to the machines' shares.
    assert store.offers().acts == {"machines", "tenants"}
    seen = store.seen(store.state(), {})
    assert of(seen, "small").resources.storage_cores == pytest.approx(0.2)
    assert store.act([AssignMachine("p2", "small")])[0].ok
    assert of(store.seen(store.state(), {}), "small").resources == Resources(0.4, 0.4, 25e6)
    assert {"op": "shares", "shares": {"small": 0.2}} in [one.get("s0") for one in nodes.asked]
    assert store.act([AssignMachine("p0", ""), AssignMachine("p2", "")])[1].ok
    # Its servers still exist, so a step remains.
    assert store.changes.shares(store.state())["s0"]["shares"]["small"] == pytest.approx(0.05)
