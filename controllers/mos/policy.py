"""Basic MOS: Algorithm 1 of the paper, to the letter (section 5).

Algorithm 1 checks every microstore's utilization once an epoch (the control interval), one after
another. Within [util_low, util_high] nothing happens and its ``firstTime`` becomes true. Outside,
the first epoch only makes ``firstTime`` false and ``toChange`` 1. In every further epoch
``toChange`` doubles. Then ``toChange`` machines come from the free pool if utilization is above
util_high, or one machine returns to the pool if it is below util_low. These consequences are kept:

- nothing happens in the first epoch, and two machines come in the second (2, 4, 8, ...: the text
  calls it quadratic, it is exponential);
- ``toChange`` also doubles in epochs that release, so that a microstore that goes from below the
  band to above it without an epoch within it asks for as many machines at once;
- it doubles while the pool is empty, too;
- a microstore gets only what those before it in the array have left or returned.

The listing leaves some blocks open. In the other reading the first epoch outside the band already
acts, with a ``toChange`` of 1: the controller ``mos-at-once``.

Where the paper is silent: utilization is the busiest resource's; `MachineAssignment` chooses the
machines: the paper says only that its simulator sorts resources by their capability (section 8.2).
A microstore never gives up its last proxies, storage, network or disks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controllers.common.base import ParameterPolicy
from controllers.common.parameters import choice, flag, number, structure
from controllers.contract import State
from controllers.microstores import detect_map
from controllers.microstores.shares import busiest, util
from schemas.errors import UserError
from testbed.stores.contract import Action, Needs, Observation
from testbed.stores.microstores import (
    MACHINES,
    MICROSTORES,
    NOTHING,
    TENANTS,
    AssignableMachine,
    AssignMachine,
    Microstores,
    Resources,
)

KEEP, EVEN = "keep", "even"


@dataclass(frozen=True)
class MosParameters:
    """Parameters; the defaults are from the paper's evaluation (section 8.1)."""

    util_low: float = number(0.65, 0, 1, "utilization below which a machine is given back")
    util_high: float = number(0.85, 0, 1, "utilization above which machines are added")
    initial: str = choice(KEEP, (KEEP, EVEN), "what microstores begin with (even: as many each)")
    initial_share: float = number(0.5, 0, 1, "part of the machines that is given out at first")
    detect: Mapping[str, object] = structure("detect and map: bands of sizes, {} for none")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")


class Mos(ParameterPolicy[MosParameters]):
    """Basic MOS. Its memory: ``firstTime`` and ``toChange`` of every microstore, and the reasons
    for the last epoch's changes."""

    name = "mos"
    parameters_type = MosParameters
    acts_at_once = False
    """True if the first epoch outside the band already acts."""

    def __init__(self, parameters: MosParameters) -> None:
        """Raise UserError for an empty band."""
        if parameters.util_low > parameters.util_high:
            raise UserError(
                f"controller {self.name}: util_low {parameters.util_low:g} is above util_high "
                f"{parameters.util_high:g}"
            )
        super().__init__(parameters)
        self._detect = detect_map.detector_from_json(parameters.detect, self.name)
        acts = {MACHINES} | ({TENANTS} if self._detect else set())
        self.needs = Needs(frozenset({MICROSTORES}), frozenset(acts))

    def initial(self) -> State:
        """Return the state before any decision."""
        return {"stores": {}, "begun": False, "why": {}, "tenants": {}}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Run one pass of Algorithm 1 over all microstores."""
        seen = observation.microstores
        if seen is None or observation.interval_s <= 0:  # no monitoring data yet
            return state, []
        machines = MachineAssignment(seen.machines)
        if not state["begun"] and self._p.initial == EVEN:
            after, machines = dict(state), self._even(machines, seen)
        else:
            after, machines = self._pass(state, seen, machines)
        after |= {"begun": True}
        actions: list[Action] = _changes(seen, machines)
        if self._detect:
            bands, settings = self._detect
            after["tenants"], moves = detect_map.step(state["tenants"], seen, bands, settings)
            actions += moves
        return after, actions

    def _pass(
        self, state: State, seen: Microstores, machines: MachineAssignment
    ) -> tuple[dict[str, Any], MachineAssignment]:
        stores: dict[str, Any] = {}
        why: dict[str, str] = {}
        for store in seen.stores:
            before = state["stores"].get(store.name, {"first": True, "change": 1})
            stores[store.name], change = self._look(before, util(store), len(seen.machines))
            if change > 0:
                names = machines.to_add(change, busiest(store))
                machines = machines.assigned(names, store.name)
                why[store.name] = f"utilization {util(store):.2f}: adds {len(names)} of {change}"
            elif change < 0:
                names = machines.to_remove(store.name, -change, busiest(store))
                machines = machines.assigned(names, FREE)
                why[store.name] = f"utilization {util(store):.2f}: gives back {len(names)}"
        return dict(state) | {"stores": stores, "why": why}, machines

    def _look(
        self, before: Mapping[str, Any], busy: float | None, machines: int
    ) -> tuple[dict[str, Any], int]:
        """Run Algorithm 1's body: return the microstore's memory, and machines to add (below 0: to
        give back)."""
        if busy is None:
            return dict(before), 0
        if self._p.util_low <= busy <= self._p.util_high:
            return {"first": True, "change": before["change"]}, 0
        if before["first"]:
            after = {"first": False, "change": 1}
            if not self.acts_at_once:
                return after, 0
        else:
            # More than all machines is all machines: the number need not grow forever.
            after = {"first": False, "change": min(before["change"] * 2, max(2, 2 * machines))}
        return after, after["change"] if busy > self._p.util_high else -1

    def _even(self, machines: MachineAssignment, seen: Microstores) -> MachineAssignment:
        """Run init(free_pool): the same, conservatively small number of machines for each
        microstore; the best of each kind are dealt out in turn."""
        names = [store.name for store in seen.stores]
        each = int(self._p.initial_share * len(machines.all) / max(1, len(names)))
        each = max(each, 1)
        machines = machines.assigned([machine.name for machine in machines.all], FREE)
        for _ in range(each):
            for name in names:
                machines = machines.assigned(machines.to_add(1, "proxy_cpu"), name)
        return machines


def _changes(seen: Microstores, machines: MachineAssignment) -> list[Action]:
    """Return orders for the machines that change hands, those that become free first."""
    before = {machine.name: machine.microstore for machine in seen.machines}
    changed = [m for m in machines.all if m.microstore != before[m.name]]
    changed.sort(key=lambda machine: (machine.microstore != FREE, machine.name))
    return [AssignMachine(machine.name, machine.microstore) for machine in changed]


_OF_MEASURE = {"proxy_cpu": "proxy_cores", "storage_cpu": "storage_cores", "network": "network"}
FREE = ""


@dataclass(frozen=True)
class MachineAssignment:
    """Present assignment of machines to microstores; every change makes a new value."""

    all: tuple[AssignableMachine, ...]

    def of(self, microstore: str) -> tuple[AssignableMachine, ...]:
        """Return a microstore's machines; "" stands for the free pool."""
        return tuple(machine for machine in self.all if machine.microstore == microstore)

    def assigned(self, names: Sequence[str], microstore: str) -> MachineAssignment:
        """Return the assignment with the machines called `names` given to `microstore`."""
        chosen = set(names)
        return MachineAssignment(
            tuple(
                AssignableMachine(m.name, m.holds, microstore) if m.name in chosen else m
                for m in self.all
            )
        )

    def to_add(self, count: int, measure: str) -> list[str]:
        """Return up to `count` free machines, best in `measure` first."""
        free = sorted(self.of(FREE), key=lambda m: (-_amount(m.holds, measure), m.name))
        return [machine.name for machine in free[:count]]

    def to_remove(self, microstore: str, count: int, measure: str) -> list[str]:
        """Return up to `count` of the microstore's machines, worst in `measure` first; never one
        that it needs to keep proxies, storage, network or disks. A resource that no machine carries
        is exempt: Swift's microstores have their own disks."""
        held = list(self.of(microstore))
        carried = [part > 0 for part in _parts(self.all)]
        chosen: list[str] = []
        for machine in sorted(held, key=lambda m: (_amount(m.holds, measure), m.name)):
            rest = [m for m in held if m is not machine]
            if len(chosen) < count and rest and _has(rest, carried):
                held = rest
                chosen.append(machine.name)
        return chosen


def _amount(holds: Resources, measure: str) -> float:
    if measure == "disk":
        return holds.ssds + holds.hdds
    return float(getattr(holds, _OF_MEASURE[measure]))


def _has(machines: Sequence[AssignableMachine], needed: Sequence[bool]) -> bool:
    return all(
        part > 0 or not wanted for part, wanted in zip(_parts(machines), needed, strict=True)
    )


def _parts(machines: Sequence[AssignableMachine]) -> tuple[float, ...]:
    """Return the machines' sum: proxies' cores, storage servers' cores, network, disks."""
    total = NOTHING
    for machine in machines:
        total = total + machine.holds
    return (total.proxy_cores, total.storage_cores, total.network, total.ssds + total.hdds)


create = Mos.create
