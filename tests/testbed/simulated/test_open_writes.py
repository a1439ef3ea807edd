"""Open-loop writes on a modelled store: rates, activity, moving data, racks."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import StoreError, UserError
from testbed.simulated import SimulatedCeph
from testbed.simulated.loads import OpenWrites
from testbed.simulated.parameters import ModelParameters
from testbed.spec import TestbedSpec, load_spec
from testbed.stores.contract import ACTIVITY, OSDS, PGS, MoveReplica
from tests.errors import raises

SPEC = Path(__file__).parents[3] / "testbed" / "specs" / "ursa-10.yaml"
SEEN = frozenset({OSDS, PGS, ACTIVITY})
SIZE = 65536


@pytest.fixture
def spec():
    return load_spec(SPEC)


def started(ceph: SimulatedCeph, rate: float = 0.4, duration_s: float = 30.0) -> OpenWrites:
    ceph.prefill_each(4, SIZE)
    pgs = ceph.sense(SEEN).pgs
    writes = OpenWrites({pg.id: rate for pg in pgs[:50]}, SIZE, duration_s)
    ceph.start_open_writes(writes)
    return writes


def test_writes_come_at_their_rates(spec):
    with SimulatedCeph(spec, seed=1) as ceph:
        started(ceph, rate=0.4, duration_s=60.0)
        while not ceph.advance(10):
            pass
        result = ceph.open_writes_result()
        assert {pg.bytes for pg in ceph.sense(SEEN).pgs} == {4 * SIZE}  # overwritten in place
    assert len(result.requests) == pytest.approx(50 * 0.4 * 60, rel=0.1)
    assert all(took is not None and took > 0 for _, took, _ in result.requests)
    assert sum(row["intended"] for row in result.series) == len(result.requests)
    assert sum(row["done"] for row in result.series) == len(result.requests)
    starts = [at for at, _, _ in result.requests]
    assert starts == sorted(starts)
    assert max(starts) <= 60


def test_activity_is_what_was_written(spec):
    with SimulatedCeph(spec, seed=1) as ceph:
        writes = started(ceph, rate=1.0, duration_s=100.0)
        ceph.advance(5)
        ceph.sense(SEEN)
        ceph.advance(50)
        seen = ceph.sense(SEEN)
    assert seen.activity is not None
    assert seen.activity.unclean == ()
    total = sum(rates.writes for rates in seen.activity.pgs.values())
    assert total == pytest.approx(50.0, rel=0.15)
    assert {pg for pg, rates in seen.activity.pgs.items() if rates.writes} <= set(writes.rates)
    on_osds = sum(rates.writes for rates in seen.activity.osds.values())
    assert on_osds == pytest.approx(3 * total, rel=0.05)


def test_a_group_that_is_moved_is_unclean_until_it_is_there(spec):
    with SimulatedCeph(spec, seed=1) as ceph:
        ceph.prefill_each(64, SIZE)
        pg = ceph.sense(SEEN).pgs[0]
        target = next(osd for osd in range(10) if osd not in pg.up)
        (effect,) = ceph.act([MoveReplica(pg.id, pg.up[1], target)])
        assert effect.ok
        activity = ceph.sense(SEEN).activity
        assert activity is not None
        assert activity.unclean == (pg.id,)
        assert ceph.settle()
        seen = ceph.sense(SEEN)
        assert seen.activity is not None
        assert seen.activity.unclean == ()
        assert target in next(one for one in seen.pgs if one.id == pg.id).up


def moving_s(spec: TestbedSpec, seed: int = 1) -> float:
    """Return the time to move a large group to the other rack."""
    model = ModelParameters(recovery_sleep_s=0.0)
    with SimulatedCeph(spec, seed=seed, parameters=model) as ceph:
        ceph.prefill_each(16, 4 * 2**20)
        pg = ceph.sense(SEEN).pgs[0]
        rack = {osd.id: osd.rack for osd in ceph.sense(SEEN).osds}
        free = [osd for osd in range(10) if osd not in pg.up and rack[osd] != rack[pg.up[0]]]
        began = ceph.now_s
        ceph.act([MoveReplica(pg.id, pg.up[1], free[0])])
        assert ceph.settle()
        return ceph.now_s - began


def test_what_crosses_racks_takes_longer_where_their_way_out_is_narrow(spec):
    assert spec.racks is not None
    slow = spec.model_copy(update={"racks": spec.racks.model_copy(update={"uplink": 50e6})})
    flat = spec.model_copy(update={"racks": spec.racks.model_copy(update={"uplink": None})})
    # 64 MiB at 50 Mbit/s take 11 seconds.
    assert moving_s(slow) > moving_s(flat) + 5


def test_groups_and_results_that_there_are_not_are_reported(spec):
    with SimulatedCeph(spec, seed=1) as ceph:
        ceph.prefill_each(1, SIZE)
        with raises(UserError, "no placement group '9.9'"):
            ceph.start_open_writes(OpenWrites({"9.9": 1.0}, SIZE, 10.0))
    with SimulatedCeph(spec, seed=1) as ceph:
        started(ceph)
        ceph.advance(1)
        with raises(StoreError, "have not ended"):
            ceph.open_writes_result()
