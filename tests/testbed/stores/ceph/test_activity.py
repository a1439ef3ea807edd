"""Operations of PGs and OSDs, and which PGs are on their way."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fake_rados import recorded

from testbed.stores.ceph.activity import PgRates, PgReport, osd_rates, parse_reports, unclean
from testbed.stores.ceph.osdmap import parse_osd_map
from testbed.stores.ceph.perf import parse_counters
from testbed.stores.ceph.polling import Answer
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


def report(at_s: float, writes: int, reads: int = 0, state: str = "active+clean") -> PgReport:
    return PgReport(at_s, reads, writes, state, (0, 1), (0, 1))


def test_reports_of_both_forms_of_pg_dump():
    for name in ("pg_dump_pgs.json", "pg_dump.json"):
        found = parse_reports(recorded(name))
        assert found
        assert all(one.clean and one.up == one.acting for one in found.values())
    told = parse_reports(recorded("pg_dump_pgs.json"))["2.7f"]
    assert (told.writes, told.reads, told.up) == (4, 1, (0, 1))
    assert told.at_s == pytest.approx(1795248638.771701)


def test_a_rate_is_the_difference_of_two_reports_over_the_time_between_them():
    rates = PgRates()
    assert rates.update({"2.0": report(100.0, 10)}, 0.0) == {}
    assert rates.update({"2.0": report(104.0, 30, 8)}, 7.0) == {"2.0": OpRates(2.0, 5.0)}


def test_a_rate_stays_until_the_next_report_is_overdue():
    rates = PgRates()
    rates.update({"2.0": report(100.0, 10)}, 0.0)
    rates.update({"2.0": report(105.0, 30)}, 5.0)
    assert rates.update({"2.0": report(105.0, 30)}, 8.0)["2.0"].writes == 4.0
    assert rates.update({"2.0": report(105.0, 30)}, 21.0)["2.0"].writes == 0.0
    # After a silence the mean is over all of it.
    assert rates.update({"2.0": report(145.0, 70)}, 45.0)["2.0"].writes == 1.0


def test_counters_that_went_back_begin_anew():
    rates = PgRates()
    rates.update({"2.0": report(100.0, 1000)}, 0.0)
    assert rates.update({"2.0": report(105.0, 10)}, 5.0) == {}
    assert rates.update({"2.0": report(110.0, 20)}, 10.0)["2.0"].writes == 2.0


@pytest.mark.parametrize(
    ("told", "pg"),
    [
        (report(0, 0), Pg("2.0", (0, 2), (0, 1))),  # moved, served by the old members
        (report(0, 0), Pg("2.0", (0, 2), (0, 2))),  # the report is older than the map
        (report(0, 0, state="active+remapped+backfilling"), Pg("2.0", (0, 1), (0, 1))),
        (report(0, 0, state="active+recovering+degraded"), Pg("2.0", (0, 1), (0, 1))),
        (report(0, 0), Pg("2.9", (0, 1), (0, 1))),  # not told of at all
    ],
)
def test_what_is_not_known_to_be_clean_is_on_its_way(told, pg):
    assert unclean([pg], {"2.0": told}) == (pg.id,)


@pytest.mark.parametrize("state", ["active+clean", "active+clean+scrubbing+deep"])
def test_a_clean_pg_is_not(state):
    assert unclean([Pg("2.0", (0, 1), (0, 1))], {"2.0": report(0, 0, state=state)}) == ()


def test_an_osds_writes_are_its_own_and_those_of_its_replicas():
    dump = recorded("perf_dump_osd.0.json")
    before = parse_counters(dump)
    after = replace(before, reads=before.reads + 20, writes=before.writes + 30, replica_writes=50)
    before = replace(before, replica_writes=10)
    found = osd_rates(Answer(100.0, before), Answer(110.0, after))
    assert found == OpRates(2.0, 7.0)
    assert osd_rates(Answer(100.0, before), Answer(100.0, after)) is None


def test_replica_writes_are_read_from_the_osd():
    dump = json.loads(json.dumps(recorded("perf_dump_osd.0.json")))
    dump["osd"]["subop_w"] = 4711
    assert parse_counters(dump).replica_writes == 4711


def test_the_store_senses_activity(store, raw):
    first = store.sense(EVERYTHING).activity
    assert first is not None
    assert first.pgs == {}  # nothing is known of rates yet
    assert first.unclean == ()
    raw.fresh = "2024-05-01T10:00:10.000000+0000"
    raw.writes["2.0"] = 50
    raw.reported["2.1"] = [9, 8]
    seen = store.sense(EVERYTHING)
    assert seen.activity is not None
    assert seen.activity.pgs["2.0"] == OpRates(0.0, 5.0)
    assert seen.activity.pgs["2.2"] == OpRates()
    assert seen.activity.unclean == ("2.1",)
    assert set(seen.activity.osds) == {0, 1, 2}
    assert observation_from_json(json.loads(json.dumps(observation_to_json(seen)))) == seen


def test_activity_alone_tells_no_pgs(store, raw):
    store.sense(frozenset({ACTIVITY}))
    raw.fresh = "2024-05-01T10:00:10.000000+0000"
    seen = store.sense(frozenset({ACTIVITY}))
    assert seen.pgs == ()
    assert seen.activity is not None
    assert len(seen.activity.pgs) == 128


def test_a_group_that_stays_silent_from_the_start_is_idle():
    rates = PgRates()
    rates.update({"2.0": report(100.0, 10)}, 0.0)
    assert rates.update({"2.0": report(100.0, 10)}, 10.0) == {}
    assert rates.update({"2.0": report(100.0, 10)}, 16.0) == {"2.0": OpRates()}


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
