"""`CephStore` on an in-memory cluster."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import StoreError
from testbed.stores.ceph import CephStore, Connection
from testbed.stores.ceph.connection import together
from testbed.stores.contract import (
    LATENCY,
    OSDS,
    PGS,
    READ_BALANCE,
    ClearUpmap,
    ClearUpmapPrimary,
    MoveReplica,
    ReweightByUtilization,
    RunReadBalancer,
    RunSizeBalancer,
    SetBalancer,
    SetOption,
    SetPrimaryAffinity,
    SetUpmapPrimary,
    SwapPrimary,
    observation_from_json,
    observation_to_json,
)
from tests.errors import raises
from tests.testbed.stores.ceph.fake_rados import FakeRados, recorded

ALL = frozenset({OSDS, PGS})


def test_senses_osds_and_pgs(store):
    found = store.sense(ALL)
    assert [osd.id for osd in found.osds] == [0, 1, 2]
    assert len(found.pgs) == 128
    assert all(pg.primary == pg.up[0] and pg.bytes == 4 << 20 for pg in found.pgs)
    assert observation_from_json(json.loads(json.dumps(observation_to_json(found)))) == found


def test_pg_map_is_read_again_only_in_a_new_epoch(store, raw):
    store.sense(ALL)
    store.sense(ALL)
    assert len(raw.sent("pg map")) == 128
    store.act([SetPrimaryAffinity(0, 0.5)])
    store.last_stall()
    store.sense(ALL)
    assert len(raw.sent("pg map")) == 256


def test_swaps_are_sent_together_and_waited_for(store, raw):
    everybody = threading.Barrier(128, timeout=60)
    raw.before = lambda prefix: everybody.wait() if prefix == "osd pg-upmap" else None
    pgs = store.sense(ALL).pgs
    effects = store.act([SwapPrimary(pg.id, pg.up[1]) for pg in pgs])
    assert all(effect.ok for effect in effects)
    assert raw.most_in_flight == 128
    assert effects[0].detail["stall_s"] > 0
    assert effects[0].detail["late"] == 0
    swapped = store.sense(ALL).pgs
    assert [pg.primary for pg in swapped] == [pg.up[1] for pg in pgs]
    assert all(set(a.up) == set(b.up) and b.upmap for a, b in zip(pgs, swapped, strict=True))


def test_a_pg_that_does_not_come_back_is_reported(store, raw, monkeypatch):
    monkeypatch.setattr("testbed.stores.ceph.steps.STALL_TIMEOUT_S", 0.1)
    pgs = store.sense(ALL).pgs
    raw.states[pgs[1].id] = "peering"
    effects = store.act([SwapPrimary(pg.id, pg.up[1]) for pg in pgs[:3]])
    assert effects[0].detail["late"] == 1


def test_a_swap_that_an_affinity_turns_over_is_not_ok(store):
    first = store.sense(ALL).pgs[0]
    store.act([SetPrimaryAffinity(first.up[1], 0.0)])
    (effect,) = store.act([SwapPrimary(first.id, first.up[1])])
    assert not effect.ok
    assert f"osd.{first.up[0]} still leads {first.id}" in effect.message


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (SetPrimaryAffinity(0, 1.5), "is not 0 to 1"),  # Ceph 16 accepts it
        (SetPrimaryAffinity(0, float("nan")), "is not 0 to 1"),
        (SetPrimaryAffinity(77, 0.5), "no osd.77"),
        (SwapPrimary("2.999", 0), "no placement group 2.999"),
        (SwapPrimary("2.0", 2), "holds no replica"),
        (MoveReplica("2.0", 0, 1), "holds a replica of 2.0 already"),
        (MoveReplica("2.0", 0, 9), "not up and in"),
        (MoveReplica("2.0", 2, 2), "holds no replica"),
        (SetBalancer("crush-compat"), "is not upmap, read, upmap-read or none"),
    ],
)
def test_bad_actions_are_refused_and_not_sent(store, raw, action, words):
    assert store.sense(ALL).pgs[0].id == "2.0"
    assert set(store.sense(ALL).pgs[0].up) == {0, 1}
    epoch = raw.dump["epoch"]
    (effect,) = store.act([action])
    assert not effect.ok
    assert words in effect.message
    assert raw.dump["epoch"] == epoch


def test_a_refused_action_does_not_stop_the_others(store):
    actions = [SetPrimaryAffinity(osd, weight) for osd, weight in ((77, 0.5), (1, 0.5), (2, 1.0))]
    assert [effect.ok for effect in store.act(actions)] == [False, True, True]
    assert store.sense(ALL).osds[1].primary_affinity == 0.5


def test_move_replica_keeps_replicas_on_different_nodes(raw):
    nodes = {0: "a", 1: "b", 2: "b"}
    store = CephStore(Connection(raw), pools=["bench"], nodes=nodes)
    (effect,) = store.act([MoveReplica("2.0", 0, 2)])
    assert not effect.ok
    assert "another replica" in effect.message
    (effect,) = store.act([MoveReplica("2.0", 1, 2)])
    assert effect.ok
    assert effect.detail["bytes_moved"] == 4 << 20


def test_moves_are_upmap_items_that_add_up_and_go(raw):
    store = CephStore(Connection(raw), pools=["bench"])
    first, second = store.sense(ALL).pgs[0].up
    (effect,) = store.act([MoveReplica("2.0", second, 2)])
    assert effect.ok
    assert raw.sent("osd pg-upmap-items") == [{"pgid": "2.0", "id": [second, 2]}]
    assert set(store.sense(ALL).pgs[0].up) == {first, 2}
    (effect,) = store.act([MoveReplica("2.0", first, second)])
    assert effect.ok
    assert raw.sent("osd pg-upmap-items")[-1] == {"pgid": "2.0", "id": [second, 2, first, second]}
    assert not raw.sent("osd pg-upmap")
    store.act([MoveReplica("2.0", second, first)])
    (effect,) = store.act([MoveReplica("2.0", 2, second)])
    assert effect.ok
    assert raw.sent("osd rm-pg-upmap-items") == [{"pgid": "2.0"}]
    assert raw.dump["pg_upmap_items"] == []


def test_a_move_of_a_swapped_group_gives_its_whole_vector_anew(raw):
    store = CephStore(Connection(raw), pools=["bench"])
    first, second = store.sense(ALL).pgs[0].up
    store.act([SwapPrimary("2.0", second)])
    (effect,) = store.act([MoveReplica("2.0", first, 2)])
    assert effect.ok
    assert raw.sent("osd pg-upmap")[-1] == {"pgid": "2.0", "id": [second, 2]}
    assert not raw.sent("osd pg-upmap-items")


def test_reweight_counts_weights_and_bytes(store, raw):
    raw.reweight = recorded("reweight.json")
    (effect,) = store.act([ReweightByUtilization()])
    assert effect.detail["weights_changed"] == 2
    assert raw.sent("osd reweight-by-utilization") == [
        {"oload": 120, "max_change": 0.05, "max_osds": 4}
    ]
    raw.reweight = recorded("test_reweight.json")
    (effect,) = store.act([ReweightByUtilization()])
    assert (effect.ok, effect.detail["weights_changed"]) == (True, 0)


@pytest.fixture
def reef(raw):
    raw.upgrade("reef")
    return CephStore(Connection(raw, timeout_s=2.0), pools=["bench"])


@pytest.fixture
def tentacle(raw):
    raw.upgrade("tentacle")
    return CephStore(Connection(raw, timeout_s=2.0), pools=["bench"])


OF_TODAY = {
    *("pg-upmap-primary", "balancer-read", "read-balancer"),
    *("osd_mclock_profile", "rados_replica_read_policy", "crush_location"),
}


@pytest.mark.parametrize("tool", [True, False])
def test_a_release_offers_what_it_has(raw, tool, monkeypatch):
    monkeypatch.setattr("testbed.stores.ceph.store.has_osdmaptool", lambda: tool)

    def offers():
        found = CephStore(Connection(raw), pools=["bench"]).offers()
        return found.acts & OF_TODAY, found.senses & {READ_BALANCE, LATENCY}

    assert offers() == (set(), {LATENCY})
    raw.upgrade("reef")
    acts = {"pg-upmap-primary", "osd_mclock_profile"} | ({"read-balancer"} if tool else set())
    assert offers() == (acts, {READ_BALANCE, LATENCY})
    raw.dump["require_min_compat_client"] = "luminous"
    assert offers()[0] == {"osd_mclock_profile"}
    raw.queue = "wpq"
    assert offers()[0] == set()
    raw.upgrade("tentacle")
    assert offers()[0] == OF_TODAY


def test_pg_upmap_primary_on_reef(reef, raw):
    saved, before = reef.save(), reef.sense(ALL).pgs[0]
    (effect,) = reef.act([SwapPrimary(before.id, before.up[1])])
    assert effect.ok
    assert raw.sent("osd pg-upmap-primary") == [{"pgid": before.id, "id": before.up[1]}]
    assert all(effect.ok for effect in reef.restore(saved))
    assert raw.dump["pg_upmap_primaries"] == []


def test_primaries_are_set_together_cleared_and_put_back(reef, raw):
    everybody = threading.Barrier(128, timeout=60)
    raw.before = lambda prefix: everybody.wait() if prefix == "osd pg-upmap-primary" else None
    saved, pgs = reef.save(), reef.sense(ALL).pgs
    effects = reef.act([SetUpmapPrimary(pg.id, pg.up[1]) for pg in pgs])
    assert all(effect.ok for effect in effects)
    assert effects[0].detail["late"] == 0
    changed = reef.sense(ALL).pgs
    assert [pg.primary for pg in changed] == [pg.up[1] for pg in pgs]
    assert all(pg.upmap for pg in changed)
    raw.before = lambda prefix: None
    (effect,) = reef.act([ClearUpmapPrimary(pgs[0].id)])
    assert effect.ok
    assert reef.sense(ALL).pgs[0] == pgs[0]
    assert len(reef.restore(saved)) == 127
    assert reef.sense(ALL).pgs == pgs


@pytest.mark.parametrize(
    "action", [SetUpmapPrimary("2.0", 2), SetUpmapPrimary("2.999", 0), SetUpmapPrimary("2.0", 77)]
)
def test_a_primary_without_the_pg_is_refused_and_not_sent(reef, raw, action):
    (effect,) = reef.act([action])
    assert not effect.ok
    assert raw.sent("osd pg-upmap-primary") == []


def test_pacific_refuses_the_acts_of_today(store, raw):
    acts = [
        SetUpmapPrimary("2.0", 1),
        RunReadBalancer(),
        SetOption("osd_mclock_profile", "balanced"),
        SetOption("rados_replica_read_policy", "balance"),
    ]
    assert [effect.ok for effect in store.act(acts)] == [False] * 4
    assert raw.config == {}


def test_an_option_that_ceph_conf_overrides_is_not_ok(reef, raw, monkeypatch):
    monkeypatch.setattr("testbed.stores.ceph.steps.OPTION_TIMEOUT_S", 0.1)
    raw.overrides["osd_mclock_profile"] = "balanced"
    (effect,) = reef.act([SetOption("osd_mclock_profile", "high_client_ops")])
    assert not effect.ok
    assert "osd.0, osd.1, osd.2" in effect.message


TOOL = """#!/bin/sh
case "$1" in --help) echo "  --read-pool <poolname>"; exit 0;; esac
[ -s map ] || exit 1
{pools}
"""


@pytest.fixture
def osdmaptool(tmp_path, monkeypatch):
    """Put a program of this name, with the given lines, in the path."""

    def install(lines):
        (tmp_path / "osdmaptool").write_text(TOOL.format(pools=lines))
        (tmp_path / "osdmaptool").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return install


def test_the_read_balancer_carries_out_what_osdmaptool_writes(reef, raw, osdmaptool):
    osdmaptool("exit 0")
    pgs = reef.sense(ALL).pgs
    chosen = [f"ceph osd pg-upmap-primary {pg.id} {pg.up[1]}" for pg in pgs[:3]]
    lines = "\\n".join(chosen)
    osdmaptool(f"[ $5 = bench ] && printf '{lines}\\n' > out; exit 0")
    (effect,) = reef.act([RunReadBalancer()])
    assert effect.ok
    assert effect.detail["primaries_changed"] == 3
    assert [pg.primary for pg in reef.sense(ALL).pgs[:3]] == [pg.up[1] for pg in pgs[:3]]
    osdmaptool("echo ' Unable to find further optimization'")
    (effect,) = reef.act([RunReadBalancer()])
    assert (effect.ok, effect.detail["primaries_changed"]) == (True, 0)
    osdmaptool("echo Error balancing primaries >&2; exit 1")
    with raises(StoreError, "Error balancing primaries"):
        reef.act([RunReadBalancer()])


def test_the_size_balancers_moves_are_carried_out_and_put_back(raw, tmp_path, monkeypatch):
    store = CephStore(Connection(raw), pools=["bench"])
    assert "size-balancer" not in store.offers().acts
    program = tmp_path / "placementoptimizer.py"
    lines = ["ceph osd pg-upmap-items 2.0 0 2", "ceph osd pg-upmap-items 2.1 0 1 2 0"]
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\" > " + f"{tmp_path}/given\n")
    with program.open("a") as file:
        file.write("printf '" + "\\n".join(lines) + "\\n' > out\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    store = CephStore(Connection(raw), pools=["bench"])
    saved = store.save()
    (effect,) = store.act([RunSizeBalancer(7)])
    assert (effect.ok, effect.detail["pgs_moved"]) == (True, 2)
    given = (tmp_path / "given").read_text().split()
    assert " ".join(given) == "balance --only-pool bench --output out --max-pg-moves 7"
    assert raw.sent("osd pg-upmap-items") == [
        {"pgid": "2.0", "id": [0, 2]},
        {"pgid": "2.1", "id": [0, 1, 2, 0]},
    ]
    store.restore(saved)
    assert raw.dump["pg_upmap_items"] == []


def test_the_read_balancer_is_the_managers_where_it_has_the_mode(tentacle, raw):
    (effect,) = tentacle.act([RunReadBalancer()])
    assert effect.ok
    assert raw.balancer == {"mode": "read", "active": True}


def test_senses_latency_and_read_balance(reef, raw):
    senses = frozenset({LATENCY, READ_BALANCE})
    first = reef.sense(senses)
    assert (first.latency, first.read_balance) == ({}, {"bench": 1.31})
    osd = raw.perf[1]["osd"]
    osd["op_r"] += 10
    for name, seconds in (("op_r_latency", 0.5), ("op_r_process_latency", 0.2)):
        osd[name] = {"avgcount": osd[name]["avgcount"] + 10, "sum": osd[name]["sum"] + seconds}
    found = reef.sense(senses)
    assert found.latency[1] == (10, 0.05, 0.02, 0, None)
    assert found.latency[0] == (0, None, None, 0, None)
    assert observation_from_json(json.loads(json.dumps(observation_to_json(found)))) == found


def test_a_call_that_hangs_is_given_up():
    hung, ended = threading.Event(), threading.Event()

    def hang() -> None:
        hung.wait(60)
        ended.set()

    with raises(StoreError, "did not answer within"):
        together([hang, lambda: None], 0.1)
    assert not ended.is_set()
    hung.set()


def test_a_monitor_that_is_gone_is_a_store_error(store, raw):
    def gone(prefix: str) -> None:
        raise TimeoutError(110, "RADOS timed out")

    raw.before = gone
    with raises(StoreError, "Ceph refused 'osd dump'"):
        store.sense(ALL)


PGIDS = sorted(FakeRados(8).maps)
AFFINITY = st.builds(
    SetPrimaryAffinity, st.integers(0, 2), st.floats(0, 1).map(lambda x: round(x, 2))
)
SWAP = st.builds(SwapPrimary, st.sampled_from(PGIDS), st.integers(0, 2))
CLEAR = st.builds(ClearUpmap, st.sampled_from(PGIDS))
MOVE = st.builds(MoveReplica, st.sampled_from(PGIDS), st.integers(0, 2), st.integers(0, 2))
BALANCER = st.builds(SetBalancer, st.sampled_from(["upmap", "read", "upmap-read", "none"]))
PRIMARY = st.builds(SetUpmapPrimary, st.sampled_from(PGIDS), st.integers(0, 2))
OPTION = st.sampled_from(
    [
        *(SetOption("osd_mclock_profile", value) for value in ("balanced", "high_client_ops")),
        *(SetOption("rados_replica_read_policy", value) for value in ("balance", "localize")),
        SetOption("crush_location", "host=n1 root=default"),
    ]
)
REWEIGHT = st.just(ReweightByUtilization())
ACTIONS = st.lists(
    st.one_of(AFFINITY, SWAP, CLEAR, MOVE, BALANCER, REWEIGHT, PRIMARY, OPTION), max_size=12
)


@pytest.mark.slow
@settings(max_examples=40)
@given(before=ACTIONS, after=ACTIONS, release=st.sampled_from(["", "reef", "tentacle"]))
def test_restore_puts_back_what_save_saw(before, after, release):
    raw = FakeRados(8)
    if release:
        raw.upgrade(release)
    raw.reweight = recorded("reweight.json")
    raw.config["osd", "debug_osd"] = "5"
    store = CephStore(Connection(raw), pools=["bench"])
    store.act(before)
    saved, seen, config = store.save(), store.sense(ALL), dict(raw.config)
    store.act(after)
    raw.dump["pg_upmap_items"].append(  # as left by the balancer
        {"pgid": PGIDS[3], "mappings": [{"from": 0, "to": 2}]}
    )
    raw.dump["epoch"] += 1
    effects = store.restore(json.loads(json.dumps(saved)))
    assert all(effect.ok for effect in effects)
    again = store.sense(ALL)
    assert (again.osds, again.pgs) == (seen.osds, seen.pgs)
    assert (store.save(), raw.config) == (saved, config)
    assert store.restore(saved) == []


def test_what_is_gone_is_not_restored(store, raw):
    saved = store.save() | {
        "pg_upmap": {"9.0": [0, 1], "2.fff": [0, 1]},
        "primary_affinity": {"77": 0.5},
    }
    raw.balancer.update(mode="none", active=False)
    effects = store.restore(saved)
    assert [effect.message for effect in effects] == ["balancer upmap, on"]


def test_a_value_that_does_not_change_back_is_not_ok(store, raw, monkeypatch):
    saved = store.save()
    store.act([SetPrimaryAffinity(0, 0.3)])
    monkeypatch.setattr(raw, "mon_osd_primary_affinity", lambda id, weight: "accepted")
    (effect,) = store.restore(saved)
    assert not effect.ok
