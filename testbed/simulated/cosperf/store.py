"""`SimulatedMicrostores`: COSPerf as a store that a controller senses and changes.

    hosts = paper_pool(seed=7)
    store = SimulatedMicrostores(hosts, paper_stages(7), constants=constants)
    store.advance_to(store.epoch_s)                # so that there is something to sense
    Loop(plan, decider=..., store=store, journal=..., saved=...,
         clock=SimulatedClock(store, stop_at_s=14 * 3600)).run()
    store.series()

Everything happens on virtual time. A tenant's clients are closed loops, with as many workers as
would reach its load on the idle pool. Their real rate is solved for every sampling slot of an epoch
(footnote 2: 1 % of it)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from schemas.errors import StoreError
from testbed.simulated.cosperf.demand import Array, Stations, response, servers, shared
from testbed.simulated.cosperf.holdings import Holdings, even_start
from testbed.simulated.cosperf.machines import (
    CLASSES,
    STEP,
    Constants,
    ReconfigurationCosts,
    SimulatedHost,
    total,
    whole,
)
from testbed.simulated.cosperf.record import Chunk, SimulationRecord, microstore_seen, tenant_seen
from testbed.simulated.cosperf.stages import LoadCurve
from testbed.stores.contract import Action, Effect, Needs, Observation
from testbed.stores.microstores import (
    MACHINES,
    MICROSTORES,
    RESOURCES,
    TENANTS,
    AssignMachine,
    MapTenant,
    Microstores,
    SetResources,
    resources_to_json,
)

OFFERS = Needs(senses=frozenset({MICROSTORES}), acts=frozenset({RESOURCES, MACHINES, TENANTS}))
EPOCH_S = 180.0
SLOTS = 100
START_PART = 0.25
"""Share of the machines that is dealt out evenly at the beginning; the others are free."""


@dataclass(frozen=True)
class AlonePerformance:
    """Performance of a workload alone on the whole pool: maximum of operations a second, and
    seconds of an operation that never waits."""

    requests_s: float
    response_s: float


class SimulatedMicrostores:
    """COSPerf; implements `testbed.stores.contract.Store` and `testbed.simulated.clock.Simulation`.

    Args:
        hosts: the pool.
        loads: load of every tenant, by the letter of its workload.
        constants: costs of operations.
        costs: costs of changes.
        start_part: share of the machines dealt out evenly first; a microstore for each tenant.
        epoch_s: the control interval, which has `SLOTS` slots.
    """

    def __init__(
        self,
        hosts: Sequence[SimulatedHost],
        loads: Mapping[str, LoadCurve],
        *,
        constants: Constants,
        costs: ReconfigurationCosts | None = None,
        start_part: float = START_PART,
        epoch_s: float = EPOCH_S,
    ) -> None:
        self.epoch_s = epoch_s
        self.tenants = tuple(loads)
        self.hosts = tuple(hosts)
        self.constants = constants
        self._classes = [CLASSES[letter] for letter in self.tenants]
        self._loads = [loads[letter] for letter in self.tenants]
        self._slot_s = epoch_s / SLOTS
        start = even_start(hosts, self.tenants, start_part)
        self._holdings = Holdings(hosts, self.tenants, start, costs or ReconfigurationCosts())
        self._mapped = {tenant: tenant for tenant in self.tenants}
        self._now_s = 0.0
        self._sensed_s = 0.0
        self._record = SimulationRecord(self.tenants, self.tenants)
        everything = total(hosts)
        alone = [servers(one, everything, whole(hosts), constants) for one in self._classes]
        self.alone = {
            tenant: AlonePerformance(at.capacity, constants.idle_s + float(np.sum(at.service)))
            for tenant, at in zip(self.tenants, alone, strict=True)
        }
        self._workers_per_level = np.array(
            [one.requests_s * one.response_s for one in self.alone.values()]
        )

    # --- virtual time ---------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual seconds since the store was made."""
        return self._now_s

    def advance_to(self, t_s: float) -> bool:
        """Run until `t_s`; return False, because no benchmark can end."""
        if not math.isfinite(t_s):
            raise StoreError(f"the simulation cannot be advanced to {t_s} s: give a time")
        if t_s > self._now_s:
            count = max(1, math.ceil((t_s - self._now_s) / self._slot_s - 1e-9))
            edges = np.linspace(self._now_s, t_s, count + 1)
            self._record.add(self._run((edges[:-1] + edges[1:]) / 2, t_s - self._now_s))
            self._now_s = t_s
        return False

    def _run(self, times_s: Array, seconds: float) -> Chunk:
        levels = np.stack([load.at(times_s) for load in self._loads], axis=1)
        workers = np.maximum(levels * self._workers_per_level, 1e-3)
        parts = [
            self._holdings.stations(self._mapped[tenant], one, self.constants, times_s)
            for tenant, one in zip(self.tenants, self._classes, strict=True)
        ]
        service, demand, count = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        idle_s = np.full(len(self.tenants), self.constants.idle_s)
        at = Stations(service, demand, count, idle_s)
        rate, others = shared(workers, self._groups(), at)
        own = rate[..., None] * demand / count
        failing = np.stack(
            [self._holdings.failing(self._mapped[tenant], times_s) for tenant in self.tenants],
            axis=1,
        )
        return Chunk(
            ends_s=float(times_s[-1]) + seconds / len(times_s) / 2,
            seconds=seconds,
            workers=workers,
            rate=rate,
            latency_s=response(rate, others, at),
            failed=rate * failing,
            utilization=np.minimum(own + others, 1.0),
            held={name: one.resources for name, one in self._holdings.now.items()},
            mapped=dict(self._mapped),
        )

    def _groups(self) -> list[list[int]]:
        order = sorted(range(len(self.tenants)), key=lambda i: self._mapped[self.tenants[i]])
        return [
            list(group) for _, group in groupby(order, key=lambda i: self._mapped[self.tenants[i]])
        ]

    # --- Store ----------------------------------------------------------------------------------

    def offers(self) -> Needs:
        """See `Store.offers`."""
        return OFFERS

    def sense(self, senses: frozenset[str]) -> Observation:
        """Return an observation, in no virtual time. See `Store.sense`."""
        refused = senses - OFFERS.senses
        if refused:
            raise StoreError(f"this store cannot sense {', '.join(sorted(refused))}")
        interval, self._sensed_s = self._now_s - self._sensed_s, self._now_s
        chunks = self._record.since_sensed()
        held = self._holdings
        seen = Microstores(
            stores=tuple(
                microstore_seen(name, held.now[name].resources, self.tenants, chunks)
                for name in held.stores
            ),
            tenants=tuple(
                tenant_seen(index, tenant, self._mapped[tenant], self._classes[index], chunks)
                for index, tenant in enumerate(self.tenants)
            ),
            total=total(self.hosts),
            step=STEP,
            machines=tuple(host.machine(held.machines[host.name]) for host in self.hosts),
        )
        return Observation(self._now_s, interval, signal="microstores", microstores=seen)

    def act(self, actions: Sequence[Action]) -> list[Effect]:
        """Apply all shares, then all machines, then the tenants' microstores. See `Store.act`."""
        shares = {a.microstore: a.resources for a in actions if isinstance(a, SetResources)}
        machines = {a.machine: a.microstore for a in actions if isinstance(a, AssignMachine)}
        if shares:
            self._holdings.give(shares, self._now_s)
        if machines:
            self._holdings.assign(machines, self._now_s)
        effects = []
        for action in actions:
            if isinstance(action, MapTenant):
                self._map(action)
            elif not isinstance(action, (SetResources, AssignMachine)):
                effects.append(Effect(False, f"this store cannot change {action.kind}"))
                continue
            effects.append(Effect(True))
        return effects

    def _map(self, action: MapTenant) -> None:
        if action.tenant not in self._mapped or action.microstore not in self._holdings.stores:
            raise StoreError(f"no tenant {action.tenant!r} or microstore {action.microstore!r}")
        self._mapped[action.tenant] = action.microstore

    def save(self) -> Mapping[str, Any]:
        """Return machines, shares and the tenants' microstores. See `Store.save`."""
        return {**self._holdings.save(), "tenants": dict(self._mapped)}

    def restore(self, saved: Mapping[str, Any]) -> list[Effect]:
        """See `Store.restore`."""
        effects = []
        division = {name: saved[name] for name in ("machines", "shares")}
        if self._holdings.restore(division, self._now_s):
            effects.append(Effect(True, "the pool's division"))
        if self._mapped != saved["tenants"]:
            self._mapped = dict(saved["tenants"])
            effects.append(Effect(True, "who is served where"))
        return effects

    # --- what came of it ------------------------------------------------------------------------

    def series(self) -> dict[str, Any]:
        """Return means over every interval between two decisions or observations; see
        `SimulationRecord.series`."""
        return self._record.series(self._classes) | {
            "pool": resources_to_json(total(self.hosts)),
        }
