"""Division of the pool among microstores, and the time when a change takes effect.

Basic MOS gives whole machines; MOS++ gives shares of all machines together. A change takes effect
station by station (`ReconfigurationCosts`): a loss at once, an addition when it is ready. Disks
that come or go cost the others time while data moves. A change does not speed up earlier changes:
each keeps its times, and a change's data moves after theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from schemas.errors import StoreError
from testbed.simulated.cosperf.demand import Array, StationArrays, servers
from testbed.simulated.cosperf.machines import (
    Constants,
    ObjectClass,
    Placed,
    ReconfigurationCosts,
    SimulatedHost,
    place,
    total,
    whole,
)
from testbed.stores.microstores import NOTHING, Resources, resources_to_json

DISK = 3


@dataclass(frozen=True)
class Holding:
    """Resources of a microstore, and the location of its proxies."""

    resources: Resources
    placed: Placed


@dataclass(frozen=True)
class HoldingChange:
    """A change of a microstore: its holding before, the time when each of its new stations serves
    (the order of `demand.STATIONS`), and the end of the exchange of workers."""

    before: Holding
    ready_s: tuple[float, float, float, float]
    workers_until_s: float

    @property
    def ends_s(self) -> float:
        """Time when the change has no more effect, apart from moving data."""
        return max(*self.ready_s, self.workers_until_s)


class Holdings:
    """Division of the pool among microstores.

    Args:
        hosts: the pool.
        stores: names of microstores.
        machines: microstore of each machine at the beginning; the others are free.
        costs: costs of changes.
    """

    def __init__(
        self,
        hosts: Sequence[SimulatedHost],
        stores: Sequence[str],
        machines: Mapping[str, str],
        costs: ReconfigurationCosts,
    ) -> None:
        self.hosts = tuple(hosts)
        self.stores = tuple(stores)
        self.costs = costs
        self.machines = {host.name: machines.get(host.name, "") for host in hosts}
        self.shares: dict[str, Resources] | None = None
        self.now: dict[str, Holding] = self._held()
        self.changes: dict[
            str, tuple[HoldingChange, ...]
        ] = {}  # those unfinished at the last change
        self.moves_until_s: dict[str, float] = {}

    def _held(self) -> dict[str, Holding]:
        if self.shares is not None:
            placed = place(self.hosts, self.shares)
            return {name: Holding(self.shares[name], placed[name]) for name in self.stores}
        found = {}
        for name in self.stores:
            mine = [host for host in self.hosts if self.machines[host.name] == name]
            found[name] = Holding(total(mine), whole(mine))
        return found

    def assign(self, machines: Mapping[str, str], now_s: float) -> None:
        """Assign whole machines ("": to the pool). StoreError: shares have been given, or a machine
        or microstore is unknown."""
        if self.shares is not None:
            raise StoreError("the pool is divided by shares: a whole machine cannot be assigned")
        for machine, store in machines.items():
            if machine not in self.machines:
                raise StoreError(f"there is no machine {machine!r}")
            if store and store not in self.stores:
                raise StoreError(f"there is no microstore {store!r}")
        self.machines |= dict(machines)
        self._changed(now_s)

    def give(self, shares: Mapping[str, Resources], now_s: float) -> None:
        """Give shares; microstores without a new share keep their present one. StoreError: a
        microstore is unknown, or the shares together exceed the pool."""
        unknown = [name for name in shares if name not in self.stores]
        if unknown:
            raise StoreError(f"there is no microstore {unknown[0]!r}")
        wanted = {name: shares.get(name, self.now[name].resources) for name in self.stores}
        held = NOTHING
        for share in wanted.values():
            held = held + share
        if not held.within(total(self.hosts)):
            raise StoreError(f"{held} is more than the pool has, {total(self.hosts)}")
        self.shares = wanted
        self._changed(now_s)

    def _changed(self, now_s: float) -> None:
        before, self.now = self.now, self._held()
        factor, costs = self.costs.factor, self.costs
        for name in self.stores:
            old, new = before[name], self.now[name]
            if old == new:
                continue
            node = costs.node_s if new.placed.machines - old.placed.machines else 0.0
            disks = _moved(old.resources, new.resources)
            ring = costs.ring_s if disks else 0.0
            workers_until = now_s + factor * (node + costs.workers_s)
            unended = tuple(one for one in self.changes.get(name, ()) if one.ends_s > now_s)
            made = HoldingChange(
                old,
                (
                    workers_until,
                    now_s + factor * (node + costs.workers_s + ring),
                    now_s + factor * (node + costs.network_s),
                    now_s + factor * (node + ring),
                ),
                workers_until,
            )
            self.changes[name] = (*unended, made)
            moved = max(self.moves_until_s.get(name, now_s), now_s + factor * ring)
            self.moves_until_s[name] = moved + factor * costs.migration_s * disks

    def stations(
        self, store: str, workload: ObjectClass, constants: Constants, times_s: Array
    ) -> tuple[Array, Array, Array]:
        """Return service, demand and count of a microstore's stations, shape (times, stations)."""
        new = _servers(workload, self.now[store], constants)
        shape = (len(times_s), len(new.count))
        service, demand, count = (
            np.broadcast_to(part, shape) for part in (new.service, new.demand, new.count)
        )
        changes = [one for one in self.changes.get(store, ()) if one.ends_s > times_s[0]]
        for change in changes:
            old = _servers(workload, change.before, constants)
            scarcer = old.count / old.demand < count / demand
            waits = scarcer & (times_s[:, None] < np.array(change.ready_s))
            service = np.where(waits, old.service, service)
            demand = np.where(waits, old.demand, demand)
            count = np.where(waits, old.count, count)
        moving = times_s < self.moves_until_s.get(store, 0.0)
        if moving.any():
            slower = np.ones((len(times_s), len(new.count)))
            slower[moving, DISK] = 1 / (1 - self.costs.migration_share)
            service, demand = service * slower, demand * slower
        return service, demand, count

    def failing(self, store: str, times_s: Array) -> Array:
        """Return the share of operations that fail during an exchange of workers, by time."""
        changes = self.changes.get(store, ())
        until = max((one.workers_until_s for one in changes), default=-1.0)
        return np.where(times_s < until, self.costs.failed_share, 0.0)

    def save(self) -> dict[str, Any]:
        """Return the division as JSON values, for `restore`."""
        shares = self.shares
        return {
            "machines": dict(self.machines),
            "shares": None
            if shares is None
            else {name: resources_to_json(share) for name, share in shares.items()},
        }

    def restore(self, saved: Mapping[str, Any], now_s: float) -> bool:
        """Restore a division from `save`; return True if it differed."""
        if self.save() == saved:
            return False
        shares = saved["shares"]
        self.machines = dict(saved["machines"])
        self.shares = (
            None if shares is None else {name: Resources(**share) for name, share in shares.items()}
        )
        self._changed(now_s)
        return True


def _servers(workload: ObjectClass, holding: Holding, constants: Constants) -> StationArrays:
    return servers(workload, holding.resources, holding.placed, constants)


def _moved(old: Resources, new: Resources) -> int:
    return round(abs(new.ssds - old.ssds) + abs(new.hdds - old.hdds))


def even_start(
    hosts: Sequence[SimulatedHost], stores: Sequence[str], part: float
) -> dict[str, str]:
    """Deal a part of the machines out in turns, equally many to each microstore.

    Algorithm 1 starts with the same amount of resources for each, "conservatively". So machines of
    one kind are dealt out first, one to each microstore, in rounds of all sizes.
    """
    order = sorted(hosts, key=lambda host: (-host.cores, -host.network, -host.ssds, host.name))
    each, many = int(part * len(order) / len(stores)), len(stores)
    rounds = []
    for _, kind in groupby(order, key=lambda host: host.holds):
        alike = list(kind)
        rounds += [alike[at : at + many] for at in range(0, len(alike) - many + 1, many)]
    if len(rounds) >= each:
        rounds = [rounds[index * len(rounds) // each] for index in range(each)]
    else:
        used = {host.name for one in rounds for host in one}
        rounds.append([host for host in order if host.name not in used])
    dealt = [host for one in rounds for host in one][: each * many]
    return {host.name: stores[index % many] for index, host in enumerate(dealt)}
