"""Operations of PGs and OSDs, and PGs in transit."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from fake_rados import recorded
from hypothesis import given
from hypothesis import strategies as st

from testbed.stores.ceph.perf import (
    PgReport,
    PolledCounters,
    osd_rates,
    parse_counters,
    parse_reports,
    pg_rates,
    unclean,
)
from testbed.stores.ceph.pgs import parse_osd_map
from testbed.stores.contract import (
    ACTIVITY,
    OSDS,
    PGS,
    OpRates,
    Pg,
    observation_from_json,
    observation_to_json,
)

EVERYTHING = frozenset({OSDS, PGS, ACTIVITY})


def report(writes: int, reads: int = 0, state: str = "active+clean") -> PgReport:
    return PgReport(reads, writes, state, (0, 1), (0, 1))


def test_reports_of_both_forms_of_pg_dump():
    for name in ("pg_dump_pgs.json", "pg_dump.json"):
        found = parse_reports(recorded(name))
        assert found
        assert all(one.clean and one.up == one.acting for one in found.values())
    told = parse_reports(recorded("pg_dump_pgs.json"))["2.7f"]
    assert (told.writes, told.reads, told.up) == (4, 1, (0, 1))


def test_a_rate_is_the_difference_of_two_reports_over_the_time_between_the_calls():
    found = pg_rates({"2.0": report(10)}, {"2.0": report(30, 8), "2.1": report(5)}, 4.0)
    assert found == {"2.0": OpRates(2.0, 5.0)}  # 2.1 has no rates yet


def test_counters_that_went_back_say_nothing():
    assert pg_rates({"2.0": report(1000)}, {"2.0": report(10)}, 5.0) == {}


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20), st.floats(0.5, 20))
def test_nothing_is_lost_between_calls_however_late_reports_are(steps, seconds):
    counts = [sum(steps[:n]) for n in range(len(steps) + 1)]
    pairs = itertools.pairwise(counts)
    rates = [pg_rates({"2.0": report(a)}, {"2.0": report(b)}, seconds)["2.0"] for a, b in pairs]
    assert sum(rate.writes * seconds for rate in rates) == pytest.approx(counts[-1], abs=0.02 * 400)


@pytest.mark.parametrize(
    ("told", "pg"),
    [
        (report(0), Pg("2.0", (0, 2), (0, 1))),  # moved, served by the old members
        (report(0), Pg("2.0", (0, 2), (0, 2))),  # the report is older than the map
        (report(0, state="active+remapped+backfilling"), Pg("2.0", (0, 1), (0, 1))),
        (report(0, state="active+recovering+degraded"), Pg("2.0", (0, 1), (0, 1))),
        (report(0), Pg("2.9", (0, 1), (0, 1))),  # not reported at all
    ],
)
def test_what_is_not_known_to_be_clean_is_on_its_way(told, pg):
    assert unclean([pg], {"2.0": told}) == (pg.id,)


@pytest.mark.parametrize("state", ["active+clean", "active+clean+scrubbing+deep"])
def test_a_clean_pg_is_not(state):
    assert unclean([Pg("2.0", (0, 1), (0, 1))], {"2.0": report(0, state=state)}) == ()


def test_an_osds_writes_are_its_own_and_those_of_its_replicas():
    dump = recorded("perf_dump_osd.0.json")
    before = parse_counters(dump)
    after = replace(before, reads=before.reads + 20, writes=before.writes + 30, replica_writes=50)
    before = replace(before, replica_writes=10)
    found = osd_rates(PolledCounters(100.0, before), PolledCounters(110.0, after))
    assert found == OpRates(2.0, 7.0)
    assert osd_rates(PolledCounters(100.0, before), PolledCounters(100.0, after)) is None


def test_replica_writes_are_read_from_the_osd():
    dump = json.loads(json.dumps(recorded("perf_dump_osd.0.json")))
    dump["osd"]["subop_w"] = 4711
    assert parse_counters(dump).replica_writes == 4711


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


def test_activity_alone_tells_no_pgs(store):
    store.sense(frozenset({ACTIVITY}))
    seen = store.sense(frozenset({ACTIVITY}))
    assert seen.pgs == ()
    assert seen.activity is not None
    assert len(seen.activity.pgs) == 128


def test_racks_come_from_the_crush_tree():
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
