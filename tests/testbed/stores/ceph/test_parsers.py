"""What Ceph's daemons answer: parsers on recorded answers, activity, and polling."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import StoreError
from testbed.stores.ceph.connection import Connection, Reply, parse
from testbed.stores.ceph.perf import (
    LATENCY_FLOOR_S,
    CounterPoller,
    OsdCounters,
    PgReport,
    PolledCounters,
    latency_pressure,
    osd_rates,
    parse_counters,
    pg_rates,
    report_of,
    unclean,
)
from testbed.stores.ceph.pgs import bytes_moved, changed_primaries, parse_osd_map, pg_stats
from testbed.stores.ceph.steps import (
    Command,
    balancer_modes,
    parse_items,
    parse_read,
    reweights,
)
from testbed.stores.ceph.store import parse_features
from testbed.stores.contract import (
    ACTIVITY,
    OSDS,
    PG_UPMAP,
    PGS,
    ClearUpmapPrimary,
    OpRates,
    Pg,
    SetUpmapPrimary,
    observation_from_json,
    observation_to_json,
)
from tests.testbed.stores.ceph.fake_rados import DATA, FakeRados, recorded


def test_osd_map_and_racks():
    found = parse_osd_map(recorded("osd_dump.json"), recorded("osd_tree.json"))
    assert sorted(found.osds) == [0, 1, 2]
    assert found.osds[2].node == "n2"
    assert found.osds[2].crush_weight == 1
    assert found.pools["bench"].pg_num == 128
    assert found.pools["bench"].pgids()[10] == "2.a"
    assert found.require_min_compat_client == "luminous"
    assert not found.pg_upmap
    found = parse_osd_map(recorded("osd_dump_upmap.json"), recorded("osd_tree.json"))
    assert len(found.pg_upmap) == 48
    assert found.pg_upmap["2.0"] == (0, 1)
    assert found.pinned("2.0")
    assert not found.pinned("2.7f")
    found = parse_osd_map(recorded("osd_dump.json"), recorded("osd_tree.json"), {1: "osd1"})
    assert [osd.node for osd in found.osds.values()] == ["n0", "osd1", "n2"]
    dump = recorded("osd_dump.json")
    dump["osds"][0]["primary_affinity"] = 0.0999908447265625
    assert parse_osd_map(dump, recorded("osd_tree.json")).osds[0].primary_affinity == 0.1
    tree = recorded("osd_tree.json")
    hosts = [item["id"] for item in tree["nodes"] if item["type"] == "host"]
    tree["nodes"] += [
        {"id": -100, "type": "rack", "name": "rack0", "children": hosts[:2]},
        {"id": -101, "type": "rack", "name": "rack1", "children": hosts[2:]},
    ]
    found = parse_osd_map(recorded("osd_dump.json"), tree)
    by_rack: dict[str, int] = {}
    for osd in found.osds.values():
        by_rack[osd.rack] = by_rack.get(osd.rack, 0) + 1
    assert by_rack == {"rack0": 2, "rack1": 1}
    flat = parse_osd_map(recorded("osd_dump.json"), recorded("osd_tree.json"))
    assert {osd.rack for osd in flat.osds.values()} == {""}


def of(version: str, name: str) -> Any:
    text = (DATA.parent / version / name).read_text()
    return json.loads(text) if name.endswith(".json") else text


@pytest.mark.parametrize(
    ("version", "score", "swapped", "modes"),
    [
        ("18.2.7", 1.88, {}, {"none", "crush-compat", "upmap"}),
        ("20.2.4", 1.38, {"1.0": 5}, {"none", "crush-compat", "upmap", "read", "upmap-read"}),
    ],
)
def test_reef_and_tentacle_report_scores_latencies_and_modes(
    version, score, swapped, modes, monkeypatch
):
    found = parse_osd_map(of(version, "osd_dump.json"), of(version, "osd_tree.json"))
    assert found.pools["bench"].read_balance == pytest.approx(score)
    assert found.pg_upmap_primary == swapped
    seen = parse_features(
        of(version, "versions.json"),
        of(version, "features.json"),
        found.require_min_compat_client,
    )
    assert (seen.version, seen.upmap_primary) == (version, True)
    latency = parse_counters(of(version, "perf_dump_osd.0.json")).latency()
    assert latency.write_s is None or latency.write_s > 0
    raw = FakeRados()
    descriptions = of(version, "command_descriptions.json")
    monkeypatch.setattr(raw, "mgr_get_command_descriptions", lambda: descriptions)
    assert balancer_modes(Connection(raw)) == modes


def test_tentacle_reports_nodes_counters_and_groups():
    name = "20.2.4"
    found = parse_osd_map(of(name, "osd_dump.json"), of(name, "osd_tree.json"))
    assert [osd.node for osd in found.osds.values()] == [f"osd{number}" for number in range(8)]
    counters = parse_counters(of(name, "perf_dump_osd.0.json"))
    assert (counters.reads, counters.writes, counters.replica_writes) == (44, 34, 43)
    assert counters.read_latency_mean_s == pytest.approx(0.0813, abs=1e-4)
    raw = FakeRados()
    raw.mgr_pg_dump = lambda dumpcontents: of(name, "pg_dump_pgs.json")
    reports = [report_of(item) for item in pg_stats(Connection(raw)).values()]
    assert len(reports) == 2
    assert all(one.clean and len(one.up) == 2 for one in reports)


def test_commands_of_programs_are_read():
    assert parse_read(of("18.2.7", "osdmaptool_read.txt")) == [
        SetUpmapPrimary(pg, osd)
        for pg, osd in (("1.0", 0), ("1.1", 2), ("1.2", 1), ("1.7", 1), ("1.a", 0))
    ]
    assert parse_read(of("20.2.4", "osdmaptool_read.txt")) == [
        SetUpmapPrimary(pg, osd) for pg, osd in (("1.6", 7), ("1.9", 7), ("1.44", 4), ("1.7d", 4))
    ]
    assert parse_read("ceph osd rm-pg-upmap-primary 1.f\nsomething\n") == [ClearUpmapPrimary("1.f")]
    assert parse_items(
        of("18.2.7", "placementoptimizer.txt") + "ceph osd rm-pg-upmap-items 1.e\n"
    ) == [
        Command("osd pg-upmap-items", {"pgid": "1.8", "id": [3, 0]}, pg="1.8", moves=True),
        Command("osd pg-upmap-items", {"pgid": "1.d", "id": [3, 0]}, pg="1.d", moves=True),
        Command("osd rm-pg-upmap-items", {"pgid": "1.e"}, pg="1.e", moves=True),
    ]


LUMINOUS = {"client": {"group": {"features": "0x1ffd", "release": "luminous", "num": 4}}}


@pytest.mark.parametrize(
    ("versions", "features"),
    [
        ({"overall": {"ceph version Development (no_version) squid (dev)": 9}}, {"client": []}),
        ({"overall": None}, {"client": []}),
        ({"overall": {"ceph version 12.2.13 (584a20e) luminous (stable)": 9}}, LUMINOUS),
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
    found = parse_features(recorded("versions.json"), recorded("features.json"), "jewel")
    assert PG_UPMAP not in found.needs().acts


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


def test_pg_dump_reweights_and_what_is_no_json():
    raw = FakeRados()
    connection = Connection(raw)
    for name in ("pg_dump.json", "pg_dump_pgs.json"):
        raw.mgr_pg_dump = lambda dumpcontents, name=name: recorded(name)
        stats = pg_stats(connection)
        assert len(stats) == 6
        found = {pg: report_of(item) for pg, item in stats.items()}
        assert all(one.clean and one.up == one.acting for one in found.values())
    assert any(item["stat_sum"]["num_bytes"] > 0 for item in stats.values())
    assert (found["2.7f"].writes, found["2.7f"].reads, found["2.7f"].up) == (4, 1, (0, 1))
    changed = reweights(Reply(0, recorded("reweight.json"), "", 0.0))
    assert [osd for osd, _, _ in changed] == [2, 0]
    assert changed[0][1:] == (1, pytest.approx(0.9577, abs=1e-4))
    assert reweights(Reply(0, recorded("test_reweight.json"), "no change", 0.0)) == []
    assert parse(b'{"dev":-nan,"x":1}') == {"dev": None, "x": 1}
    assert parse(b"plain words\n") == "plain words"
    before = [Pg("1.0", (0, 1), (0, 1)), Pg("1.1", (1, 2), (1, 2))]
    after = [Pg("1.0", (1, 0), (1, 0)), Pg("1.1", (1, 3), (1, 2))]
    assert changed_primaries(before, after) == {"1.0": 1}
    assert bytes_moved(before, after, {"1.0": 5, "1.1": 7}) == 7


def test_counters():
    found = parse_counters(recorded("perf_dump_osd.0.json"))
    assert found.read_latency_n == 440
    assert found.read_latency_mean_s == pytest.approx(0.021141, rel=1e-3)
    assert found.read_bytes > 0
    before = OsdCounters(reads=100, read_latency_n=100, read_latency_s=5.0)
    after = OsdCounters(reads=10, read_latency_n=10, read_latency_s=0.1)
    assert after.since(before) == after
    assert before.since(OsdCounters(reads=90, read_latency_n=90, read_latency_s=4.0)).reads == 10


def test_latency_pressure_meets_the_papers_thresholds_at_twice_the_peers():
    calm = dict.fromkeys(range(4), 0.1)
    found = latency_pressure(calm | {4: 0.21, 5: 0.12, 6: 1.0, 7: 0.5})
    assert found[0] == 0
    assert found[4] > 50
    assert found[5] < 20
    assert found[6] == pytest.approx(90)
    quick = {0: LATENCY_FLOOR_S / 50, 1: LATENCY_FLOOR_S / 2, 2: LATENCY_FLOOR_S}
    assert set(latency_pressure(quick).values()) == {0}


# -- activity of PGs and OSDs ----------------------------------------------------------------------


EVERYTHING = frozenset({OSDS, PGS, ACTIVITY})


def report(writes: int, reads: int = 0, state: str = "active+clean") -> PgReport:
    return PgReport(reads, writes, state, (0, 1), (0, 1), 0)


@pytest.mark.parametrize(
    ("known", "pg"),
    [
        (report(0), Pg("2.0", (0, 2), (0, 1))),  # moved, served by the old members
        (report(0), Pg("2.0", (0, 2), (0, 2))),  # the report is older than the map
        (report(0, state="active+remapped+backfilling"), Pg("2.0", (0, 1), (0, 1))),
        (report(0, state="active+recovering+degraded"), Pg("2.0", (0, 1), (0, 1))),
        (report(0), Pg("2.9", (0, 1), (0, 1))),  # not reported at all
    ],
)
def test_what_is_not_known_to_be_clean_is_on_its_way(known, pg):
    assert unclean([pg], {"2.0": known}) == (pg.id,)
    scrubbing = report(0, state="active+clean+scrubbing+deep")
    assert unclean([Pg("2.0", (0, 1), (0, 1))], {"2.0": scrubbing}) == ()


def test_an_osds_writes_are_its_own_and_those_of_its_replicas():
    dump = recorded("perf_dump_osd.0.json")
    dump["osd"]["subop_w"] = 4711
    before = parse_counters(dump)
    assert before.replica_writes == 4711
    after = replace(before, reads=before.reads + 20, writes=before.writes + 30, replica_writes=50)
    before = replace(before, replica_writes=10)
    found = osd_rates(PolledCounters(100.0, before), PolledCounters(110.0, after))
    assert found == OpRates(2.0, 7.0)
    assert osd_rates(PolledCounters(100.0, before), PolledCounters(100.0, after)) is None


def test_reads_of_a_pg_are_not_counted_across_a_change_of_its_primary():
    """Reef: the reads of a former primary came back at once as reads of a second."""
    before, after = report(0, reads=900), report(0, reads=910)
    assert pg_rates({"2.0": before}, {"2.0": after}, 10.0) == {"2.0": OpRates(1.0, 0.0)}
    assert pg_rates({"2.0": replace(before, primary=1)}, {"2.0": after}, 10.0) == {}


def test_the_store_senses_activity(store, raw):
    first = store.sense(EVERYTHING).activity
    assert first is not None
    assert first.pgs == {}  # no rates are known yet
    assert first.unclean == ()
    raw.writes["2.0"] = 50
    raw.reported["2.1"] = [9, 8]
    seen = store.sense(EVERYTHING)
    assert seen.activity is not None
    assert seen.activity.pgs["2.0"].writes > 0
    assert seen.activity.pgs["2.2"] == OpRates()
    assert seen.activity.unclean == ("2.1",)
    assert set(seen.activity.osds) == {0, 1, 2}
    assert observation_from_json(json.loads(json.dumps(observation_to_json(seen)))) == seen


# -- polling without waiting for the slowest OSD ---------------------------------------------------


class Osds:
    """OSDs that have served more reads at each request; a `stuck` OSD waits."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}
        self.stuck: dict[int, threading.Event] = {}
        self.dead: set[int] = set()
        self.latency_s: dict[int, float] = {}

    def osd(self, osd: int, prefix: str, **arguments: Any) -> Reply:
        assert (prefix, arguments) == ("perf dump", {"logger": "osd"})
        self.asked[osd] = self.asked.get(osd, 0) + 1
        if osd in self.stuck:
            self.stuck[osd].wait(10)
        if osd in self.dead:
            return Reply(-110, "", "timed out", 0.0)
        reads = 10 * self.asked[osd]
        latency = {"avgcount": reads, "sum": reads * self.latency_s.get(osd, 0.01)}
        counters = {"op_r": reads, "op_r_out_bytes": 0, "op_w": 0, "op_w_in_bytes": 0}
        writes = {"avgcount": 0, "sum": 0}
        counters |= {"op_r_latency": latency, "op_r_process_latency": latency}
        return Reply(0, {"osd": counters | {"op_w_latency": writes}}, "", 0.0)


@pytest.fixture
def osds():
    return Osds()


def test_a_slow_one_is_not_waited_for_nor_asked_twice_and_comes_later(osds):
    osds.stuck[1] = threading.Event()
    poller = CounterPoller(osds)  # type: ignore[arg-type]
    assert set(poller.read((0, 1, 2), 0.05)) == {0, 2}
    assert set(poller.read((0, 1, 2), 0.05)) == {0, 2}
    assert osds.asked == {0: 2, 1: 1, 2: 2}
    osds.stuck.pop(1).set()
    deadline = time.monotonic() + 5
    late: dict[int, Any] = {}
    while 1 not in late and time.monotonic() < deadline:
        late = poller.read((0, 1, 2), 0.05)
    assert late[1].counters.reads in (10, 20)  # the late answer, or a newer one
    assert poller.read((1,), 5.0)[1].counters.reads > 10


def test_one_that_fails_is_absent_and_asked_again(osds):
    osds.dead.add(2)
    poller = CounterPoller(osds)  # type: ignore[arg-type]
    assert set(poller.read((1, 2), 5.0)) == {1}
    osds.dead.clear()
    assert set(poller.read((1, 2), 5.0)) == {1, 2}
