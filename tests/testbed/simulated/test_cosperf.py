"""COSPerf: microstores on virtual time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.simulated.cosperf.demand import Stations, needs, response, servers, solve
from testbed.simulated.cosperf.holdings import Holdings, even_start
from testbed.simulated.cosperf.machines import (
    CLASSES,
    GBIT,
    Constants,
    Placed,
    ReconfigurationCosts,
    SimulatedHost,
    paper_pool,
    place,
    total,
)
from testbed.simulated.cosperf.stages import LoadCurve, paper_stages
from testbed.simulated.cosperf.store import SLOTS, SimulatedMicrostores
from testbed.stores.microstores import (
    MEASURES,
    MICROSTORES,
    AssignMachine,
    Microstores,
    Resources,
    SetResources,
)

CONSTANTS = Constants(
    proxy_request_s=0.0145,
    proxy_byte_s=3e-9,
    storage_request_s=0.0145,
    storage_byte_s=3e-9,
    network_efficiency=0.75,
)
POOL = paper_pool(1)


def _stations(count: float, service: float, tenants: int = 1) -> Stations:
    shape = (1, tenants, 1)
    same = np.full(shape, service)
    return Stations(same, same, np.full(shape, count), np.zeros(tenants))


def _store(level: float = 0.1) -> SimulatedMicrostores:
    loads = {letter: LoadCurve((0.0, 1e6), (level, level)) for letter in CLASSES}
    return SimulatedMicrostores(POOL, loads, constants=CONSTANTS)


def _seen(store: SimulatedMicrostores) -> Microstores:
    seen = store.sense(frozenset({MICROSTORES})).microstores
    assert seen is not None
    return seen


# --- stations -----------------------------------------------------------------------------------


def test_one_server_is_m_m_1_and_few_workers_wait_for_themselves():
    for used in (0.1, 0.5, 0.9):
        found = response(np.array([[used / 0.2]]), np.zeros((1, 1, 1)), _stations(1, 0.2))
        assert found[0, 0] == pytest.approx(0.2 / (1 - used))
    # In a closed queue, the waits of an open one give exactly n of n + 1 on one server.
    for workers in (1, 4, 32):
        rate = solve(np.array([[float(workers)]]), np.zeros((1, 1, 1)), _stations(1, 0.1))
        assert rate[0, 0] * 0.1 == pytest.approx(workers / (workers + 1))


@given(st.integers(0, 2**32 - 1))
def test_workers_are_rate_times_response_or_a_station_is_full(seed):
    random = np.random.default_rng(seed)
    shape = (20, 3, 4)
    service, count = 10 ** random.uniform(-6, 0, shape), 10 ** random.uniform(0, 3, shape)
    at = Stations(service, service * random.uniform(1, 5, shape), count, np.full(3, 1e-3))
    others = np.where(random.random(shape) < 0.5, 0.0, random.uniform(0, 1, shape))
    workers = 10 ** random.uniform(-3, 4, (20, 3))
    rate = solve(workers, others, at)
    capacity = np.min((1 - others) * at.count / at.demand, axis=-1)
    assert (rate > 0).all()
    assert (rate < capacity).all()
    step = 1e-8 * capacity  # a response near a pole varies strongly, so check both sides
    assert ((rate - step) * response(rate - step, others, at) <= workers).all()
    beyond = np.minimum(rate + step, capacity)
    full = rate + step >= capacity * (1 - 1e-8)
    assert (full | (beyond * response(beyond, others, at) >= workers)).all()


# --- values of a holding ------------------------------------------------------------------------


def test_small_objects_want_cores_and_large_ones_the_network():
    holding = Resources(32, 64, 10 * GBIT, 6, 0)
    placed = Placed({"a": 32.0}, {"a": 10 * GBIT}, 10 * GBIT)
    more_network = Placed({"a": 32.0}, {"a": 20 * GBIT}, 20 * GBIT)
    twice = Resources(32, 64, 20 * GBIT, 12, 0)
    small, large = CLASSES["A"], CLASSES["C"]

    def gain(one: object) -> float:
        before = servers(one, holding, placed, CONSTANTS).capacity  # type: ignore[arg-type]
        return servers(one, twice, more_network, CONSTANTS).capacity / before  # type: ignore[arg-type]

    assert gain(small) == pytest.approx(1.0)
    assert gain(large) > 1.7
    reads, writes = needs(CLASSES["A"], CONSTANTS), needs(CLASSES["B"], CONSTANTS)
    assert writes.storage_s > 2 * reads.storage_s
    assert writes.network_bytes == pytest.approx(reads.network_bytes)
    large = CLASSES["C"]
    holding = Resources(20, 100, 10 * GBIT, 30, 0)
    together = Placed({"a": 10.0, "b": 10.0}, {"a": 5 * GBIT, "b": 5 * GBIT}, 10 * GBIT)
    apart = Placed({"a": 20.0, "b": 0.0}, {"a": 1 * GBIT, "b": 9 * GBIT}, 10 * GBIT)
    whole_rate = servers(large, holding, together, CONSTANTS).capacity
    assert servers(large, holding, apart, CONSTANTS).capacity < 0.2 * whole_rate


shares = st.fixed_dictionaries({name: st.floats(0, 0.5) for name in ("proxy_cores", "network")})


@settings(max_examples=15)
@given(first=shares, second=shares)
def test_containers_fit_the_machines(first, second):
    pool = total(POOL)
    wanted = {
        name: Resources(
            proxy_cores=part["proxy_cores"] * pool.proxy_cores,
            network=part["network"] * pool.network,
        )
        for name, part in (("x", first), ("y", second))
    }
    placed = place(POOL, wanted)
    for host in POOL:
        cores = sum(one.cores.get(host.name, 0.0) for one in placed.values())
        network = sum(one.network.get(host.name, 0.0) for one in placed.values())
        assert cores <= host.holds.proxy_cores + 1e-6
        assert network <= host.network * (1 + 1e-9) + 1e-3
    for name, one in placed.items():
        assert sum(one.cores.values()) == pytest.approx(wanted[name].proxy_cores, abs=1e-6)
        assert sum(one.network.values()) == pytest.approx(wanted[name].network, rel=1e-6, abs=1)


# --- changes ------------------------------------------------------------------------------------


def _two(costs: ReconfigurationCosts) -> Holdings:
    hosts = [SimulatedHost(f"h{index}", 8, GBIT, 0, 3) for index in range(4)]
    return Holdings(hosts, ("x", "y"), {"h0": "x", "h1": "y"}, costs)


@pytest.mark.parametrize(("part", "each"), [(0.25, 3), (1.0, 12)])
@pytest.mark.parametrize("seed", range(5))
def test_microstores_begin_with_the_same_amount(seed: int, part: float, each: int) -> None:
    """Section 5: the same amount for each, conservatively; of all machines, as many for each."""
    hosts = paper_pool(seed)
    start = even_start(hosts, "ABCD", part)
    held = [[host for host in hosts if start.get(host.name) == store] for store in "ABCD"]
    assert [len(one) for one in held] == [each] * 4
    if part < 1:
        assert len({total(one) for one in held}) == 1


def test_what_is_added_serves_when_it_is_ready_and_what_is_taken_is_gone_at_once():
    holdings = _two(ReconfigurationCosts(migration_share=0.2))
    holdings.assign({"h2": "x", "h1": ""}, now_s=100.0)
    times = np.array([100.5, 101.0, 140.0, 200.0])
    _, demand, count = holdings.stations("x", CLASSES["A"], CONSTANTS, times)
    rates = count / demand
    # Proxies' cores: two machines' cores, after 4.9 s for the start of a node and its workers.
    assert rates[3, 0] == pytest.approx(2 * rates[0, 0], rel=0.01)
    # Disks: slower while data moves (15 s of ring, 3 disks of 14 s).
    assert rates[2, 3] == pytest.approx(0.8 * rates[3, 3])
    _, gone, left = holdings.stations("y", CLASSES["A"], CONSTANTS, times)
    assert (left / gone)[0, 0] < 1e-3


# --- the store ----------------------------------------------------------------------------------


def test_it_reports_what_a_controller_needs():
    store = _store()
    assert _seen(store).stores[0].utilization == {}  # nothing has happened yet
    store.advance_to(180)
    seen = _seen(store)
    assert [one.name for one in seen.stores] == list("ABCD")
    for one in seen.stores:
        assert set(one.utilization) == set(MEASURES)
        assert len(one.slots) == SLOTS
        assert max(one.utilization.values()) == pytest.approx(np.mean(one.slots), abs=0.02)
    tenant = seen.tenants[0]
    assert tenant.mean_latency_s is not None
    assert tenant.workers is not None
    assert tenant.requests_s * tenant.mean_latency_s == pytest.approx(tenant.workers, rel=0.01)
    assert sum(tenant.sizes.values()) == pytest.approx(180 * tenant.requests_s, rel=0.01)
    assert seen.total == total(POOL)


def test_whole_machines_and_shares_change_hands_and_come_back():
    store = _store(level=0.4)
    store.advance_to(180)
    before, saved = _seen(store), store.save()
    free = [machine.name for machine in before.machines if not machine.microstore]
    effects = store.act([AssignMachine(name, "A") for name in free])
    assert all(effect.ok for effect in effects)
    store.advance_to(720)
    after = _seen(store)
    assert after.free.proxy_cores == pytest.approx(0)
    assert after.tenants[0].requests_s > 1.5 * before.tenants[0].requests_s
    assert len(store.restore(saved)) == 1
    assert store.restore(saved) == []
    assert _seen(store).free == before.free
    store = _store()
    store.advance_to(180)
    saved, pool = store.save(), total(POOL)
    half = Resources(pool.proxy_cores / 2, pool.storage_cores / 2, 10 * GBIT, 20, 0)
    store.act([SetResources("A", half)])
    store.advance_to(400)
    assert _seen(store).store("A").resources == half
    store.restore(saved)
    assert store.save() == saved


def test_advancing_in_pieces_comes_to_the_same():
    loads = paper_stages(3)
    one, other = (SimulatedMicrostores(POOL, loads, constants=CONSTANTS) for _ in range(2))
    one.advance_to(360)
    for end in (180, 360):
        other.advance_to(end)
    means = [
        np.average(s.series()["tenants"]["C"]["bytes_s"], weights=s.series()["seconds"])
        for s in (one, other)
    ]
    assert means[0] == pytest.approx(means[1], rel=1e-4)


# --- loads --------------------------------------------------------------------------------------


def test_four_stages_of_section_8_2():
    """The test uses means over seeds, because single seeds are noisy."""
    minutes = np.arange(0, 840.0, 5)
    mean = {
        letter: np.mean([paper_stages(seed)[letter].at(60 * minutes) for seed in range(12)], axis=0)
        for letter in CLASSES
    }

    def at(letter: str, minute: float) -> float:
        return float(mean[letter][int(minute // 5)])

    for letter in "AB":  # gradual growth in stage 1, further in stage 4
        assert at(letter, 200) > 2.5 * at(letter, 5)
        assert at(letter, 830) > 1.2 * at(letter, 600)
    for letter in "CD":  # abrupt growth at the start of stage 2, a fall after minute 500
        assert at(letter, 220) > 1.4 * at(letter, 200)
        assert at(letter, 530) < 0.5 * at(letter, 490)
    assert sum(at(letter, 490) for letter in CLASSES) > 1.2  # more than the pool has
