from __future__ import annotations

import json
import math

import pytest

from schemas.errors import StoreError, UserError
from testbed.simulated import (
    Benchmark,
    load_parameters,
)
from testbed.simulated.parameters import osd_nodes
from testbed.spec import TestbedSpec
from testbed.stores.contract import (
    CRUSH_LOCATION,
    HOT,
    LATENCY,
    MCLOCK_PROFILE,
    OSDS,
    PGS,
    PRESSURE,
    READ_BALANCE,
    READ_POLICY,
    ClearUpmap,
    MoveReplica,
    ReweightByUtilization,
    RunReadBalancer,
    SetBalancer,
    SetOption,
    SetPrimaryAffinity,
    SetUpmapPrimary,
    SwapPrimary,
)
from tests.errors import raises

EVERYTHING = frozenset({PRESSURE, OSDS, PGS, HOT})


def test_pressure_reports_the_disturbed_nodes(make):
    ceph = make()
    ceph.start_disturbance([(0.0, {"osd2": None, "osd5": 0.25})])
    ceph.advance(1)
    ceph.sense(EVERYTHING)
    ceph.advance(20)
    seen = ceph.sense(EVERYTHING)
    assert seen.interval_s == pytest.approx(20)
    assert seen.hot == {2, 5}
    assert seen.pressure[2] > 95
    assert seen.pressure[5] == pytest.approx(25, abs=10)
    assert all(seen.pressure[osd] < 1 for osd in (0, 1, 3, 4, 6, 7))
    ceph.stop_disturbance()
    ceph.advance(1)
    ceph.sense(EVERYTHING)
    ceph.advance(5)
    assert max(ceph.sense(EVERYTHING).pressure.values()) < 1


def test_a_move_counts_from_the_benchmarks_start(make):
    ceph = make(objects=100)
    ceph.start_disturbance(
        [(0.0, {"osd1": None, "osd2": None}), (5.0, {"osd2": None, "osd3": None})]
    )
    ceph.advance(3)
    ceph.start_benchmark(Benchmark("rand", duration_s=10), in_s=2)
    ceph.advance_to(9.9)
    assert ceph.sense(EVERYTHING).hot == {1, 2}
    ceph.advance_to(10.1)
    assert ceph.sense(EVERYTHING).hot == {2, 3}
    result = ceph.run_benchmark()
    assert result.started_s == pytest.approx(5)
    assert result.fio_reads["osd1"] > 0 < result.fio_reads["osd3"]
    assert result.fio_reads["osd0"] == 0


def test_a_benchmarks_numbers_agree(make):
    ceph = make(objects=200)
    ceph.start_recorder()
    ceph.start_benchmark(Benchmark("seq", duration_s=8))
    result = ceph.run_benchmark()
    assert ceph.benchmark_done
    assert sum(second.operations for second in result.series) == result.operations
    assert result.bytes == result.operations * 4 * 2**20
    assert sum(count for _, _, count in result.histogram) == result.operations
    assert 8 <= result.seconds < 10
    assert result.series[-1].t_s == pytest.approx(result.seconds)
    # Little's law for a closed loop of 16.
    assert result.latency_mean_s is not None
    assert result.iops * result.latency_mean_s == pytest.approx(16, rel=0.1)
    assert result.latency_min_s is not None and result.latency_max_s is not None
    median = result.quantile_s(0.5)
    assert median is not None and result.latency_min_s < median < result.latency_max_s
    metrics = {(sample.node, sample.metric) for sample in ceph.samples()}
    for metric in ("pressure", "disk_read_mb_s", "disk_util", "disk_queue", "net_tx_mb_s", "hot"):
        assert ("osd0", metric) in metrics
    for metric in ("primary_affinity", "reweight", "primaries", "op_r_latency_s", "osd_pressure"):
        assert ("osd.0", metric) in metrics
    for metric in ("throughput_mb_s", "iops", "latency_s", "in_flight", "read_mb_s"):
        assert ("client", metric) in metrics


def test_changes_and_what_is_refused(make):
    ceph = make(objects=100)
    pg = ceph.sense(EVERYTHING).pgs[7]
    first, second = pg.up
    effects = ceph.act([SwapPrimary(pg.id, second)])
    assert effects[0].ok and effects[0].detail["epochs"] == 1 and effects[0].detail["stall_s"] > 0
    swapped = ceph.sense(EVERYTHING).pgs[7]
    assert swapped.up == (second, first) and swapped.upmap
    assert ceph.act([ClearUpmap(pg.id)])[0].ok
    assert ceph.sense(EVERYTHING).pgs[7] == pg
    outside = next(osd for osd in range(8) if osd not in pg.up)
    refused = ceph.act(
        [
            SetPrimaryAffinity(8, 0.5),
            SetPrimaryAffinity(1, 1.5),
            SetPrimaryAffinity(1, float(1)),
            SwapPrimary(pg.id, outside),
            SwapPrimary("9.0", 0),
            MoveReplica(pg.id, outside, first),
            SetBalancer("crush-compat"),
        ]
    )
    assert [effect.ok for effect in refused] == [False, False, True, False, False, False, False]
    assert all(effect.message for effect in refused)


def test_the_read_balancer_evens_out_the_score(make):
    ceph = make(objects=100)
    senses = frozenset({READ_BALANCE})
    before = ceph.sense(senses).read_balance
    effect = ceph.act([RunReadBalancer()])[0]
    after = ceph.sense(senses).read_balance
    assert effect.ok and effect.detail["primaries_changed"] > 0
    assert before is not None and after is not None
    assert before.keys() == after.keys() == {"bench"}
    assert before["bench"] == pytest.approx(21 / 16)  # as osdmaptool says of this placement
    assert after["bench"] == pytest.approx(20 / 16)


def test_a_location_sends_reads_to_its_host(make):
    ceph = make(objects=400)
    ceph.act([SetOption(READ_POLICY, "localize")])
    assert ceph.act([SetOption(CRUSH_LOCATION, "host=osd3 root=default")])[0].ok
    ceph.start_benchmark(Benchmark("rand", duration_s=10))
    held = sum(3 in pg.up for pg in ceph.sense(EVERYTHING).pgs)
    led = sum(pg.acting[0] == 3 for pg in ceph.sense(EVERYTHING).pgs)
    ceph.sense(frozenset({LATENCY}))
    result = ceph.run_benchmark()
    seen = ceph.sense(frozenset({LATENCY})).latency
    assert seen is not None and sum(one.reads for one in seen.values()) == result.operations
    assert seen[3].reads / result.operations > (held + led) / 2 / 128


def test_latency_is_of_the_interval(make):
    ceph = make(objects=100)
    ceph.start_disturbance([(0.0, {"osd2": None})])
    ceph.start_benchmark(Benchmark("rand", duration_s=20))
    ceph.advance(5)
    ceph.sense(frozenset({LATENCY}))
    ceph.advance(10)
    seen = ceph.sense(frozenset({LATENCY})).latency
    assert seen is not None and len(seen) == 8
    for one in seen.values():
        assert one.writes == 0 and one.write_s is None
        assert one.read_s is not None and one.read_service_s is not None
        assert 0 < one.read_service_s <= one.read_s
    calm = max(one.read_s or 0 for osd, one in seen.items() if osd != 2)
    assert (seen[2].read_s or 0) > 2 * calm
    ceph.run_benchmark()
    ceph.sense(frozenset({LATENCY}))
    idle = ceph.sense(frozenset({LATENCY})).latency
    assert idle is not None and idle[2].reads == 0 and idle[2].read_s is None


def test_profiles_are_offered_by_osds_that_schedule_by_mclock(make, tmp_path):
    assert MCLOCK_PROFILE not in make().offers().acts
    file = tmp_path / "model.yaml"
    file.write_text("op_queue: mclock_scheduler\n")
    ceph = make(parameters=load_parameters(file))
    assert MCLOCK_PROFILE in ceph.offers().acts
    saved = ceph.save()
    assert ceph.act([SetOption(MCLOCK_PROFILE, "high_client_ops")])[0].ok
    assert ceph.save()["options"][MCLOCK_PROFILE] == "high_client_ops"
    ceph.restore(saved)
    assert ceph.save() == saved


def test_what_was_saved_is_put_back(make):
    ceph = make(objects=1433)
    before = ceph.sense(EVERYTHING).pgs
    saved = json.loads(json.dumps(ceph.save()))
    ceph.act([SetPrimaryAffinity(osd, 0.3) for osd in range(4)])
    ceph.act([SwapPrimary(pg.id, pg.up[1]) for pg in before[:20]])
    effect = ceph.act([ReweightByUtilization(101, 0.2, 4)])[0]
    assert effect.ok and effect.detail["weights_changed"] > 0 < effect.detail["bytes_moved"]
    ceph.act([SetBalancer("upmap-read")])
    ceph.act([SetUpmapPrimary(pg.id, pg.up[0]) for pg in before[20:40]])
    ceph.act([RunReadBalancer()])
    ceph.act([SetOption(READ_POLICY, "balance"), SetOption(CRUSH_LOCATION, "host=osd1")])
    effects = ceph.restore(saved)
    assert effects and all(effect.ok and effect.message for effect in effects)
    assert ceph.save() == saved
    assert ceph.restore(saved) == []
    assert ceph.settle()
    assert [pg.up for pg in ceph.sense(EVERYTHING).pgs] == [pg.up for pg in before]
    with raises(StoreError, "another version"):
        ceph.restore({"version": 0})


@pytest.mark.parametrize("signal", ["osd", "op_r_latency"])
def test_the_other_signals(make, signal):
    ceph = make(objects=400, signal=signal)
    ceph.start_disturbance([(0.0, {"osd1": None, "osd5": None})])
    ceph.start_benchmark(Benchmark("rand", duration_s=30))
    ceph.advance(5)
    ceph.sense(EVERYTHING)
    ceph.advance(20)
    pressure = ceph.sense(EVERYTHING).pressure
    calm = [value for osd, value in pressure.items() if osd not in (1, 5)]
    assert min(pressure[1], pressure[5]) > max(50.0 if signal == "op_r_latency" else 20.0, *calm)


def test_a_spec_that_cannot_be_simulated(make, spec):
    data = spec.model_dump()
    data["store"] = None
    with raises(UserError, "only a Ceph"):
        make(on=TestbedSpec.model_validate(data))
    two = spec.model_dump()
    two["groups"] = [*two["groups"], {**two["groups"][1], "name": "ssd"}]
    with raises(UserError, "2 groups"):
        make(on=TestbedSpec.model_validate(two))
    with raises(UserError, "no OSD node 'osd9'"):
        make().start_disturbance([(0.0, {"osd9": None})])
    with raises(UserError, do="above 0 to 1"):
        make().start_disturbance([(0.0, {"osd1": -1.0})])
    assert osd_nodes(spec)[-1] == "osd7"


def test_bad_requests_are_one_sentence(make):
    ceph = make()
    with raises(StoreError, "fill in objects"):
        ceph.start_benchmark(Benchmark("rand"))
    with raises(StoreError, "bytes"):
        ceph.prefill(10**6, 4 * 2**20)
    with raises(StoreError, "duration"):
        ceph.start_benchmark(Benchmark("write", duration_s=-1))
    with raises(StoreError, "cannot sense"):
        ceph.sense(frozenset({"smell"}))
    with raises(StoreError, "cannot be asked to break"):
        ceph.fault("slow", "osd1", factor=math.nan)
    assert ceph.sense(EVERYTHING).osds  # alive after all of them


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("osd_op_s: -0.1", "osd_op_s"),
        ("peering_s: .inf", "peering_s"),
        ("clients: 2.5", "clients"),
        ("osd_op_s: 1\nosd_op_s: 2\n", "'osd_op_s'"),
        ("host_order: [1, 2]", "host_order names 2 hosts"),
    ],
)
def test_a_model_that_cannot_be_is_one_sentence(tmp_path, make, text, said):
    file = tmp_path / "model.yaml"
    file.write_text(text)
    with raises(UserError, said) as raised:
        make(parameters=load_parameters(file))
    assert "\n" not in str(raised.value)
