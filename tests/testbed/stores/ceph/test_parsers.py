"""Parsers of Ceph's answers, on recorded ones."""

from __future__ import annotations

import pytest
from fake_rados import recorded
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import StoreError
from testbed.stores.ceph.connection import Reply, parse
from testbed.stores.ceph.perf import (
    LATENCY_FLOOR_S,
    OsdCounters,
    latency_pressure,
    parse_counters,
    parse_pg_counts,
)
from testbed.stores.ceph.pgs import bytes_moved, changed_primaries, parse_osd_map, pg_bytes
from testbed.stores.ceph.steps import reweights
from testbed.stores.ceph.store import parse_features, parse_version
from testbed.stores.contract import PG_UPMAP, Pg


def test_osd_map():
    found = parse_osd_map(recorded("osd_dump.json"), recorded("osd_tree.json"))
    assert sorted(found.osds) == [0, 1, 2]
    assert found.osds[2].node == "n2"
    assert found.osds[2].crush_weight == 1
    assert found.pools["bench"].pg_num == 128
    assert found.pools["bench"].pgids()[10] == "2.a"
    assert found.require_min_compat_client == "luminous"
    assert not found.pg_upmap


def test_osd_map_with_upmaps():
    found = parse_osd_map(recorded("osd_dump_upmap.json"), recorded("osd_tree.json"))
    assert len(found.pg_upmap) == 48
    assert found.pg_upmap["2.0"] == (0, 1)
    assert found.pinned("2.0")
    assert not found.pinned("2.7f")


def test_node_names_win_over_crush_hosts():
    found = parse_osd_map(recorded("osd_dump.json"), recorded("osd_tree.json"), {1: "osd1"})
    assert [osd.node for osd in found.osds.values()] == ["n0", "osd1", "n2"]


def test_weights_lose_their_16_bit_dirt():
    dump = recorded("osd_dump.json")
    dump["osds"][0]["primary_affinity"] = 0.0999908447265625
    assert parse_osd_map(dump, recorded("osd_tree.json")).osds[0].primary_affinity == 0.1


def test_version():
    assert parse_version("ceph version 16.2.15 (618f44) pacific (stable)") == (16, 2, 15)


LUMINOUS = {"client": {"group": {"features": "0x1ffd", "release": "luminous", "num": 4}}}


@pytest.mark.parametrize(
    ("versions", "features"),
    [
        ({"overall": {"ceph version Development (no_version) squid (dev)": 9}}, {"client": []}),
        ({"overall": {"16.2.15": 9}}, {"client": []}),
        ({"overall": {}}, {"client": []}),
        ({"overall": None}, {"client": []}),
        ("no JSON", {"client": []}),
        ({"overall": {"ceph version 12.2.13 (584a20e) luminous (stable)": 9}}, LUMINOUS),
        ({"overall": {"ceph version 16.2.15 (618f44) pacific (stable)": 9}}, {"client": [{}]}),
        ({"overall": {"ceph version 16.2.15 (618f44) pacific (stable)": 9}}, "no JSON"),
    ],
)
def test_answers_that_do_not_say_what_ceph_can_do(versions, features):
    with pytest.raises(StoreError):
        parse_features(versions, features, "luminous")


def test_features_of_pacific():
    found = parse_features(recorded("versions.json"), recorded("features.json"), "luminous")
    assert found.version == "16.2.15"
    assert found.upmap
    assert not found.upmap_primary
    assert PG_UPMAP in found.needs().acts


@pytest.mark.parametrize(
    ("clients", "demand", "offered"),
    [
        (["reef"], "reef", True),
        (["squid", "reef"], "reef", True),
        (["reef", "luminous"], "reef", False),  # a kernel client reports Luminous at most
        (["reef"], "luminous", False),
    ],
)
def test_upmap_primary_from_reef_on_without_kernel_clients(clients, demand, offered):
    versions = {"overall": {"ceph version 18.2.4 (e7ad534) reef (stable)": 5}}
    features = {"client": [{"release": name, "num": 1} for name in clients]}
    assert parse_features(versions, features, demand).upmap_primary is offered


def test_upmap_is_not_offered_to_clients_older_than_luminous():
    found = parse_features(recorded("versions.json"), recorded("features.json"), "jewel")
    assert PG_UPMAP not in found.needs().acts


def test_bytes_of_both_forms_of_pg_dump():
    part, whole = pg_bytes(recorded("pg_dump_pgs.json")), pg_bytes(recorded("pg_dump.json"))
    assert len(part) == len(whole) == 6
    assert any(value > 0 for value in part.values())


def test_counters():
    found = parse_counters(recorded("perf_dump_osd.0.json"))
    assert found.read_latency_n == 440
    assert found.read_latency_mean_s == pytest.approx(0.021141, rel=1e-3)
    assert found.read_bytes > 0
    counts = parse_pg_counts(recorded("perf_dump_osd.0.json"))
    assert (counts.removing, counts.pgs >= counts.primaries > 0) == (0, True)


def test_counters_of_an_osd_that_restarted_count_from_its_start():
    before = OsdCounters(reads=100, read_latency_n=100, read_latency_s=5.0)
    after = OsdCounters(reads=10, read_latency_n=10, read_latency_s=0.1)
    assert after.since(before) == after
    assert before.since(OsdCounters(reads=90, read_latency_n=90, read_latency_s=4.0)).reads == 10


def test_reweights():
    changed = reweights(Reply(0, recorded("reweight.json"), "", 0.0))
    assert [osd for osd, _, _ in changed] == [2, 0]
    assert changed[0][1:] == (1, pytest.approx(0.9577, abs=1e-4))
    assert reweights(Reply(0, recorded("test_reweight.json"), "no change", 0.0)) == []


def test_answers_with_nan_are_read():
    assert parse(b'{"dev":-nan,"x":1}') == {"dev": None, "x": 1}
    assert parse(b"plain words\n") == "plain words"


LATENCY = st.floats(1e-5, 10)


@given(st.dictionaries(st.integers(0, 20), LATENCY, min_size=1))
def test_latency_pressure_is_a_percentage_in_the_order_of_latencies(latencies):
    found = latency_pressure(latencies)
    assert found.keys() == latencies.keys()
    assert all(0 <= value < 100 for value in found.values())
    by_latency = [found[osd] for osd in sorted(latencies, key=latencies.__getitem__)]
    assert by_latency == sorted(by_latency)


def test_latency_pressure_meets_the_papers_thresholds_at_twice_the_peers():
    calm = dict.fromkeys(range(4), 0.1)
    found = latency_pressure(calm | {4: 0.21, 5: 0.12, 6: 1.0, 7: 0.5})
    assert found[0] == 0
    assert found[4] > 50
    assert found[5] < 20
    assert found[6] == pytest.approx(90)


def test_latency_pressure_of_an_idle_cluster_is_none():
    quick = {0: LATENCY_FLOOR_S / 50, 1: LATENCY_FLOOR_S / 2, 2: LATENCY_FLOOR_S}
    assert set(latency_pressure(quick).values()) == {0}


def test_changed_primaries_and_bytes_moved():
    before = [Pg("1.0", (0, 1), (0, 1)), Pg("1.1", (1, 2), (1, 2))]
    after = [Pg("1.0", (1, 0), (1, 0)), Pg("1.1", (1, 3), (1, 2))]
    assert changed_primaries(before, after) == {"1.0": 1}
    assert bytes_moved(before, after, {"1.0": 5, "1.1": 7}) == 7
