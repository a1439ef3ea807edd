"""Sampler, recorder, top, health and clean, on an in-memory cluster and probe threads."""

from __future__ import annotations

import json
import threading

import pytest

from schemas.errors import RemoteError, StoreError, UserError
from testbed.agent import __main__ as dispatch
from testbed.agent import clean, health, recorder, sampler, top
from testbed.agent.contract import AgentConfig
from testbed.agent.monitor import Monitor
from testbed.agent.sampler import Sampler, StoreSampler
from testbed.stores.ceph import CephStore, Connection
from tests.errors import raises
from tests.testbed.agent.channels import Site, counters, node
from tests.testbed.stores.ceph.fake_rados import FakeRados

NODES = (node("a", 0), node("b", 1), node("c", 2, "iowait"))
CONFIG = AgentConfig("t", "ceph", NODES, ("bench",))


@pytest.fixture
def raw():
    return FakeRados(16)


@pytest.fixture
def sampling(raw, monkeypatch):
    monkeypatch.setattr(sampler, "read_state", lambda: {"hot_nodes": ["b"]})
    site = Site(dict.fromkeys("abc", counters))
    store = StoreSampler(Connection(raw), CONFIG)
    found = Sampler(CONFIG, Monitor(NODES, site.open), lambda: store)
    yield found, site
    found.close()


def served(raw: FakeRados, osd: int, reads: int, latency_s: float) -> None:
    """Let `osd` serve `reads` reads of 4 MiB since the last sample."""
    section = raw.perf[osd]["osd"]
    section["op_r"] += reads
    section["op_r_out_bytes"] += reads << 22
    section["op_r_latency"]["avgcount"] += reads
    section["op_r_latency"]["sum"] += reads * latency_s


def test_a_sample_has_every_metric(sampling, raw):
    served(raw, 0, 10, 0.2)
    taken = sampling[0].sample()
    assert taken.lost == {}
    assert taken.values["a"]["pressure"] == pytest.approx(50)
    assert taken.values["c"]["pressure"] == pytest.approx(15)  # its signal is iowait
    assert [taken.values[name]["hot"] for name in "abc"] == [0, 1, 0]
    assert taken.values["osd.0"]["op_r_latency_s"] == pytest.approx(0.2)
    assert "op_r_latency_s" not in taken.values["osd.1"]
    primaries = sum(taken.values[f"osd.{osd}"]["primaries"] for osd in range(3))
    assert primaries == 16
    assert taken.values["osd.1"]["primary_affinity"] == 1
    assert taken.values["client"]["read_iops"] > 0


def gone(prefix: str) -> None:
    raise TimeoutError(110, "timed out")


def test_a_store_that_comes_back_is_sampled_again(raw):
    now = [0.0]
    opened: list[StoreSampler | Exception] = [
        StoreError("away"),
        StoreSampler(Connection(raw), CONFIG),
    ]

    def open_store() -> StoreSampler:
        store = opened.pop(0)
        if isinstance(store, Exception):
            raise store
        return store

    monitor = Monitor(NODES, Site(dict.fromkeys("abc", counters)).open)
    found = Sampler(CONFIG, monitor, open_store, lambda: now[0])
    assert found.sample().lost["store"] == "away"
    assert len(opened) == 1  # a failing query takes seconds, so it is not repeated at every sample
    now[0] += sampler.AGAIN_S
    assert found.sample().values["osd.0"]["primary_affinity"] == 1
    assert "read_mb_s" in found.sample().values["client"]


def test_an_osd_or_a_store_that_does_not_answer_is_named(sampling, raw):
    raw.perf.pop(1)
    taken = sampling[0].sample()
    assert taken.lost["osd.1"] == "does not answer in time"
    raw.osd(1)["up"] = 0
    assert sampling[0].sample().lost["osd.1"] == "is down"
    raw.before = gone
    taken = sampling[0].sample()
    assert "a" in taken.values
    assert "timed out" in taken.lost["store"]
    assert not any(name.startswith("osd.") for name in taken.values)


def test_recording_is_lines_that_survive_a_cut(sampling, tmp_path):
    path, ended, taken = tmp_path / "r.jsonl", threading.Event(), []

    def take():
        taken.append(sampling[0].sample())
        if len(taken) == 3:
            ended.set()
        return taken[-1]

    assert recorder.record(take, path, ended, interval_s=0.01) == 3
    text = path.read_text()
    found = recorder.samples_of(text[:-20])
    assert len(found) == 2
    assert found[0]["values"]["b"]["hot"] == 1
    assert found[0]["wall"] == pytest.approx(taken[0].wall, abs=0.001)


class Clock(threading.Event):
    """Clock advanced by waiting, up to eight seconds."""

    now = 0.0

    def wait(self, timeout=None):
        self.now += timeout
        return self.now > 8


def test_a_sample_that_takes_long_makes_later_ones_late_and_never_a_burst(tmp_path):
    clock, at = Clock(), []

    def take():
        at.append(clock.now)
        clock.now += 2.5 if len(at) == 3 else 0.1
        return sampler.NodeSample(at[-1], {})

    assert recorder.record(take, tmp_path / "r", clock, clock=lambda: clock.now) == 6
    assert at == [1, 2, 3, 5.5, 6.5, 7.5]


@pytest.mark.parametrize(
    "payload", [{}, {"name": "../x", "max_s": 5}, {"name": "x\n", "max_s": 5}, {"name": "y"}]
)
def test_bad_recorder_payloads_are_refused(payload):
    with pytest.raises(UserError):
        recorder.start(CONFIG, payload)


def test_a_recording_is_never_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FOLDER", tmp_path)
    path = tmp_path / "x.jsonl"
    path.write_text('{"wall":1,"values":{},"lost":{}}\n')
    with raises(UserError, where=str(path)):
        recorder.start(CONFIG, {"name": "x", "max_s": 5})
    assert len(recorder.fetch(CONFIG, {"name": "x", "forget": True})["samples"]) == 1
    with raises(UserError, "'x'"):
        recorder.fetch(CONFIG, {"name": "x"})


def test_top_shows_nodes_osds_who_is_lost_and_what_is_steered(sampling, raw, monkeypatch):
    found, site = sampling
    site.answers["a"] = lambda seq, turn: b""
    shown = top.view(CONFIG, found.sample())
    json.dumps(shown, allow_nan=False)
    assert shown["nodes"]["b"]["osds"] == [1]
    assert shown["nodes"]["b"]["hot"] == 1
    assert set(shown["osds"]) == {"osd.0", "osd.1", "osd.2"}
    rows = [{"name": "dlr", "steered": ["osd.0=0.10"]}, {"name": "default", "steered": []}]
    verbs = {"control-status": lambda config, payload: {"controllers": rows}}
    monkeypatch.setattr(dispatch, "find", verbs.get)
    raw.before = gone
    shown = top.view(CONFIG, sampling[0].sample())
    assert "timed out" in shown["lost"]["store"]
    assert shown["steered"] == {"dlr": ["osd.0=0.10"]}


def detailed(seq: int, turn: int) -> bytes:
    fio = ["fio x", 500_000 * turn, 1_000_000 * turn, 0]
    late = {"9.7": ["new", 250_000, 0, 0]} if turn > 1 else {}
    processes = {"7.1": fio, "8.1": ["idle", 5, 5, 5], **late}
    known = {"disks": ["sdb"], "net": "eth0", "processes": processes}
    return counters(seq, turn, detail=known)


def test_a_nodes_detail_has_busy_processes_disks_and_network(monkeypatch):
    site = Site({"a": detailed, "b": lambda seq, turn: b""})
    monkeypatch.setattr(top, "over_ssh", lambda config, processes: site.open)
    (found,) = top.node_top(CONFIG, {"node": "a", "interval_s": 0.2, "count": 1})
    json.dumps(found, allow_nan=False)
    assert [row["command"] for row in found["processes"]] == ["fio x", "new", "idle"]
    assert found["processes"][0] == {
        **{"pid": 7, "command": "fio x"},
        **{"cpu_cores": pytest.approx(0.5), "read_mb_s": pytest.approx(1), "write_mb_s": 0},
    }
    (disk,) = found["disks"]
    assert (disk["disk"], disk["util"]) == ("sdb", pytest.approx(80))
    assert found["net"] == {"interface": "eth0", "rx_mb_s": 1.0, "tx_mb_s": 2.0}
    with raises(RemoteError, "node b"):
        next(top.node_top(CONFIG, {"node": "b"}))
    with raises(UserError, "'z'"):
        next(top.node_top(CONFIG, {"node": "z"}))


@pytest.fixture
def store(raw, monkeypatch):
    found = CephStore(Connection(raw), pools=["bench"])
    for module in (health, clean):
        monkeypatch.setattr(module, "opened", lambda config: _Kept(found))
    for pool in raw.dump["pools"][:-1]:
        raw.dump["pools"].remove(pool)
    return found


class _Kept:
    def __init__(self, store: CephStore) -> None:
        self.store = store

    def __enter__(self) -> CephStore:
        return self.store

    def __exit__(self, *_: object) -> None: ...


def test_clean_repairs_and_reports(store, raw, monkeypatch):
    refused = RemoteError("gone")
    monkeypatch.setattr(clean, "on_each", lambda names, call: {"a": True, "b": False, "c": refused})
    raw.osd(1)["primary_affinity"] = 0.1
    raw.osd(2)["weight"] = 0.9
    raw.mon_osd_pg_upmap("2.0", [1, 0])
    changes = ["primary affinity of osd.1 to 1", "reweight of osd.2 to 1", "upmap of 2.0 removed"]
    assert clean.unclean(CONFIG, {}) == ["balancer off", *changes]
    found = clean.clean(CONFIG, {})
    assert found["put_right"] == ["balancer none, off", *changes]
    assert found["caches"]["osds"] == [0, 1, 2]
    assert (found["caches"]["nodes"], found["caches"]["not_permitted"]) == (["a"], ["b"])
    assert found["caches"]["failed"] == {"c": "gone"}
    assert clean.clean(CONFIG, {})["put_right"] == clean.unclean(CONFIG, {}) == []


def test_filestores_have_no_cache_of_their_own_to_drop(store, raw, monkeypatch):
    monkeypatch.setattr(clean, "on_each", lambda names, call: {"a": True})
    raw.filestores = {1}
    found = clean.caches(CONFIG, {})
    assert (found["osds"], found["failed"]) == ([0, 2], {})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda raw: raw.states.update({"2.0": "active+undersized+degraded"}), "undersized"),
        (lambda raw: raw.osd(1).update(up=0), "osd.1 on b is down"),
        (lambda raw: raw.perf[1]["osd"].update(numpg_removing=4), "4 placement groups are"),
    ],
)
def test_a_store_that_does_not_come_to_rest_says_what_is_amiss(raw, store, spoil, words):
    named = CephStore(Connection(raw), pools=["bench"], nodes={0: "a", 1: "b", 2: "c"})
    spoil(raw)
    with raises(StoreError, words):
        health.until_clean(named, 0.3)
