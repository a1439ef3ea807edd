"""Algorithms 1 and 2, transcribed from the paper's listings, against the controllers.

The transcriptions count machines and containers of one size. Nothing here is taken from the
controllers: `algorithm_1` follows the listing of section 5, `algorithm_2` that of section 6 with
the last ``else`` at the outermost ``if``, as section 6's text has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controllers.microstores.performance import PiecewiseLinear, WorkloadClass
from controllers.registry import create, find
from testbed.stores.contract import Observation
from testbed.stores.microstores import (
    MEASURES,
    NOTHING,
    AssignableMachine,
    AssignMachine,
    Microstore,
    Microstores,
    Resources,
    SetResources,
    Tenant,
)
from tests.controllers.mos_stores import linear

UTIL_LOW, UTIL_HIGH, UTIL_THRESH = 0.65, 0.85, 0.8
"""Section 8.1."""

UTILIZATIONS = st.one_of(
    st.sampled_from([0.0, UTIL_LOW, 0.75, UTIL_HIGH, 1.0]), st.floats(0, 1, allow_nan=False)
)


# ---- Algorithm 1 ----


def algorithm_1(hw: dict[str, int], free: int, epochs, *, at_once: bool):
    """Return the machines of each microstore after every epoch. `at_once`: adding and removing
    follow the choice of toChange, instead of standing in its else-branch. A store keeps a
    machine, and one that is not sensed keeps all."""
    hw, found = dict(hw), []
    first_time = dict.fromkeys(hw, True)
    to_change = dict.fromkeys(hw, 0)
    for utils in epochs:
        for ms in hw:
            if utils[ms] is None:
                continue
            if UTIL_LOW <= utils[ms] <= UTIL_HIGH:
                first_time[ms] = True
                continue
            if first_time[ms]:
                first_time[ms] = False
                to_change[ms] = 1
                if not at_once:
                    continue
            else:
                to_change[ms] = to_change[ms] * 2
            if utils[ms] > UTIL_HIGH:
                added = min(to_change[ms], free)
                hw[ms] += added
                free -= added
            elif utils[ms] < UTIL_LOW and hw[ms] > 1:
                hw[ms] -= 1
                free += 1
        found.append(dict(hw))
    return found


def machines_held(policy, owners, names, epochs):
    """Return the machines of each microstore after every epoch of the controller; `owners` maps
    machines to microstores, and a utilization of None is not sensed."""
    owners, state, found = dict(owners), policy.initial(), []
    for utils in epochs:
        sensed = {ms: {} if utils[ms] is None else {"proxy_cpu": utils[ms]} for ms in names}
        stores = tuple(Microstore(ms, NOTHING, sensed[ms]) for ms in names)
        machines = tuple(
            AssignableMachine(machine, Resources(1, 1, 1, 1, 1), owner)
            for machine, owner in owners.items()
        )
        seen = Observation(0, 180, microstores=Microstores(stores, machines=machines))
        state, actions = policy.decide(state, seen)
        for action in actions:
            assert isinstance(action, AssignMachine)
            assert owners[action.machine] != action.microstore
            owners[action.machine] = action.microstore
        held = list(owners.values())
        found.append({ms: held.count(ms) for ms in names})
    return found


SENSED = st.one_of(st.none(), UTILIZATIONS)


@pytest.mark.parametrize(("name", "at_once"), [("mos", False), ("mos-at-once", True)])
@settings(max_examples=40, deadline=None)
@given(
    hw=st.fixed_dictionaries({"a": st.integers(1, 5), "b": st.integers(1, 5)}),
    free=st.integers(0, 12),
    epochs=st.lists(st.fixed_dictionaries({"a": SENSED, "b": SENSED}), min_size=1, max_size=12),
)
@example(hw={"a": 1, "b": 3}, free=0, epochs=[{"a": 0.9, "b": 0.1}] * 3)
@example(hw={"b": 3, "a": 1}, free=0, epochs=[{"a": 0.9, "b": 0.1}] * 3)
def test_algorithm_1_is_the_listing(name, at_once, hw, free, epochs):
    """A store takes what those before it in the array gave back, in the same epoch."""
    owners = {f"free{i}": "" for i in range(free)}
    owners |= {f"{ms}{i}": ms for ms, count in hw.items() for i in range(count)}
    found = machines_held(create(find(name), {}, 1), owners, list(hw), epochs)
    assert found == algorithm_1(hw, free, epochs, at_once=at_once)


def test_even_begins_with_as_many_for_each():
    policy = create(find("mos"), {"initial": "even"}, 1)
    epochs = [{"a": 0.9, "b": 0.9}] * 3
    found = machines_held(policy, {f"free{i}": "" for i in range(8)}, ["a", "b"], epochs)
    assert found == [{"a": count, "b": count} for count in (2, 2, 4)]


# ---- Algorithm 2 ----

POOL = 12
"""Containers of the pool, of each resource."""

RATES = {"web": (10, 7, 5), "video": (6, 9, 5)}
"""Requests a second of a step of proxies' cores, storage servers' cores and network (cospurf)."""

BYTES = 1000
PLENTY = 1000


@dataclass
class Ms:
    """A microstore of the transcription: containers of each resource, performance and bounds in
    requests a second, utilization of each resource and of each time slot."""

    name: str
    cont: list[int]
    perf: Fraction
    sla_low: Fraction
    utils: tuple[float, ...]
    slots: tuple[float, ...]

    @property
    def sla_high(self) -> Fraction:
        """Twice sla_low (section 8.1)."""
        return 2 * self.sla_low

    def planned(self, bound: Fraction) -> list[int]:
        """Return the fewest containers of each resource with cospurf >= bound (equations 2, 3):
        the scarcest resource decides. A disk carries plenty."""
        return [*(max(1, math.ceil(bound / rate)) for rate in RATES[self.name]), 1]


def algorithm_2(stores: list[Ms], *, whole: bool) -> None:
    """Run one pass over the microstores; `whole`: fine-tuning moves whole containers by the busiest
    resource, instead of a step of every resource by its own utilization."""

    def alloc(ms: Ms, wanted: list[int]) -> None:
        for r, count in enumerate(wanted):
            free = POOL - sum(one.cont[r] for one in stores)
            ms.cont[r] += min(max(0, count), free)

    def dealloc(ms: Ms, unwanted: list[int]) -> None:
        for r, count in enumerate(unwanted):
            ms.cont[r] -= min(max(0, count), ms.cont[r] - 1)

    for ms in stores:
        if ms.sla_low <= ms.perf <= ms.sla_high:
            busy = (max(ms.utils),) * len(ms.utils) if whole else ms.utils
            dealloc(ms, [int(u < UTIL_LOW) for u in busy])
            alloc(ms, [int(u > UTIL_HIGH) for u in busy])
            continue
        inside = sum(UTIL_LOW <= slot <= UTIL_HIGH for slot in ms.slots)
        if Fraction(inside, len(ms.slots)) > Fraction(str(UTIL_THRESH)):
            continue
        if ms.perf > ms.sla_high:
            most = ms.planned(ms.sla_high)
            dealloc(ms, [has - need for has, need in zip(ms.cont, most, strict=True)])
        elif ms.perf < ms.sla_low:
            least = ms.planned(ms.sla_low)
            alloc(ms, [need - has for has, need in zip(ms.cont, least, strict=True)])


@st.composite
def microstores(draw, name: str) -> Ms:
    """Draw a microstore with at most half of the pool, which also suffices for its bounds."""
    slots = draw(st.lists(UTILIZATIONS, min_size=5, max_size=5))
    return Ms(
        name,
        [draw(st.integers(1, POOL // 2)) for _ in MEASURES],
        perf=Fraction(draw(st.integers(1, 200)), 3),
        sla_low=Fraction(draw(st.integers(2, 45)), 3),
        utils=tuple(draw(UTILIZATIONS) for _ in MEASURES),
        slots=tuple(slots),
    )


def observed(stores: list[Ms]) -> Observation:
    """Return what the workload monitors report of the microstores."""
    step = Resources(1, 1, 1, 1, 1)
    return Observation(
        0,
        180,
        microstores=Microstores(
            tuple(
                Microstore(
                    ms.name,
                    Resources(*map(float, ms.cont[:3]), ms.cont[3]),
                    dict(zip(MEASURES, ms.utils, strict=True)),
                    ms.slots,
                )
                for ms in stores
            ),
            tuple(
                Tenant(
                    ms.name,
                    ms.name,
                    requests_s=float(ms.perf),
                    bytes_s=float(ms.perf * BYTES),
                    mean_latency_s=1.0,
                    workers=float(PLENTY),
                )
                for ms in stores
            ),
            Resources(POOL, POOL, POOL, POOL, 0),
            step,
        ),
    )


def model() -> PiecewiseLinear:
    tables = {}
    for name, rates in RATES.items():
        gains = dict(zip(("proxy_cores", "storage_cores", "network"), rates, strict=True))
        gains |= {"ssds": PLENTY, "hdds": PLENTY}
        most = dict.fromkeys(gains, POOL)
        tables[name] = linear(WorkloadClass(name, BYTES), gains, most, 0.001)
    return PiecewiseLinear(tables)


@pytest.mark.parametrize(("name", "whole"), [("mos-pp", True), ("mos-pp-resource", False)])
@settings(max_examples=60, deadline=None)
@given(web=microstores("web"), video=microstores("video"))
def test_algorithm_2_is_the_listing(name, whole, web, video):
    stores = [web, video]
    tenants = {
        ms.name: {
            "workload": ms.name,
            "sla": {
                "bandwidth_mb_s": {
                    "low": float(ms.sla_low * BYTES) / 1e6,
                    "high": float(ms.sla_high * BYTES) / 1e6,
                }
            },
        }
        for ms in stores
    }
    policy = create(find(name), {"model": model().to_json(), "tenants": tenants}, 1)
    seen = observed(stores)
    state, actions = policy.decide(policy.initial(), seen)
    again, same = policy.decide(state, seen)
    assert (same, again) == (actions, state)  # Algorithm 2 remembers nothing
    found = {store.name: store.resources for store in seen.microstores.stores}
    for action in actions:
        assert isinstance(action, SetResources)
        found[action.microstore] = action.resources
    algorithm_2(stores, whole=whole)
    for ms in stores:
        held = found[ms.name]
        counts = [held.proxy_cores, held.storage_cores, held.network, held.ssds]
        assert counts == pytest.approx(ms.cont)
