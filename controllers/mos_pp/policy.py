"""MOS++: Algorithm 2 of the paper, getContainers() by equations 1 to 6, to the letter (section 6).

As printed, a microstore with performance outside [sla_low, sla_high] is never changed. The branches
that add and remove by getContainers() are inside the branch for performance within the SLA, behind
a test that utilization is neither above the band, nor below, nor within. This must be an error:
section 6 says that resources are removed when performance rises above sla_high and added when it
falls below sla_low. In the reading ``intent`` (the default) the last ``else`` belongs to the
outermost ``if``:

    performance within the SLA:   utilization within the band: nothing
                                  above: a container more; below: a container less
    otherwise:                    utilization was within the band in more than util_thresh of the
                                  epoch's slots: nothing (the SLA's second way to be met)
                                  performance above sla_high: getContainers() are removed
                                  performance below sla_low:  getContainers() are added

The reading ``printed`` follows the listing: it only fine-tunes.

A microstore has one utilization (the busiest resource's) and a number of containers, as in the
listing: a container is a step of every resource. ``mos-pp-resource`` tunes every resource for
itself; ``mos-pp-learning`` also corrects the model, and is the one to operate a store with.

Where the paper is silent: microstores come one after another, as in Algorithm 1. getContainers() is
the difference between the optimiser's plan for all microstores and this microstore's holdings. The
plan is made for the missed bound: getContainers(perf - sla_high) leaves what sla_high needs
(``remove_to``). The free pool gives what it has of that, and a microstore keeps a step of each
resource. A microstore with several tenants misses if any tenant does, and exceeds if all do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.common.base import ParameterPolicy
from controllers.common.parameters import choice, flag, number, structure
from controllers.contract import State
from controllers.microstores import detect_map
from controllers.microstores.optimiser import COST, EXACT, OBJECTIVES, SOLVERS, check_solver, plan
from controllers.microstores.performance import PiecewiseLinear
from controllers.microstores.problem import (
    MicrostorePlan,
    NoPlanError,
    Promise,
    ResourcePool,
    TenantDemand,
    demand_of,
    offered_by,
    prices_from_json,
    promises_from_json,
)
from controllers.microstores.shares import (
    NONE,
    StepLedger,
    Steps,
    added,
    changes,
    clipped,
    ledger,
    util,
    whole_steps,
)
from schemas.errors import UserError
from testbed.stores.contract import Action, Needs, Observation
from testbed.stores.microstores import (
    MEASURES,
    MICROSTORES,
    RESOURCE_NAMES,
    RESOURCES,
    TENANTS,
    Microstore,
    Microstores,
    Tenant,
    resources_to_json,
)

INTENT, PRINTED = "intent", "printed"
KEEP, PLAN = "keep", "plan"
HIGH, LOW = "high", "low"


@dataclass(frozen=True)
class MosPlusPlusParameters:
    """Parameters; the epoch is the control interval (3 minutes in the paper). Defaults are from the
    paper's evaluation (section 8.1)."""

    util_low: float = number(0.65, 0, 1, "utilization below which a container is given back")
    util_high: float = number(0.85, 0, 1, "utilization above which a container is added")
    util_thresh: float = number(
        0.8, 0, 1, "part of an epoch within the band that meets an SLA, whatever the performance"
    )
    reading: str = choice(INTENT, (INTENT, PRINTED), "how Algorithm 2's listing is read")
    initial: str = choice(KEEP, (KEEP, PLAN), "what microstores begin with (plan: the optimiser's)")
    remove_to: str = choice(
        HIGH, (HIGH, LOW), "which of the SLA's bounds is left to who exceeds it (low: equation 2's)"
    )
    solver: str = choice(EXACT, SOLVERS, "of the optimiser; highs needs highspy where it runs")
    objective: str = choice(COST, OBJECTIVES, "of plans (value: performance per price, by highs)")
    tenants: Mapping[str, object] = structure("{TENANT: {workload, sla, weight}}")
    model: Mapping[str, object] = structure("cospurf: tables of a profile (docs/mos.md)")
    prices: Mapping[str, object] = structure("an hour's price of each resource, {} for none")
    detect: Mapping[str, object] = structure("detect and map: bands of sizes, {} for none")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")


MISSED, WITHIN, EXCEEDED = "missed", "within", "exceeded"

Demanding = Callable[[Tenant, Promise], TenantDemand]
"""Return what a monitored tenant demands of a plan."""


@dataclass
class ProvisioningEpoch:
    """Working data of an epoch: the microstores in the order of the pass, the demands of plans, and
    what the policy remembers of the epoch in addition to `MosPlusPlus.initial`."""

    seen: Microstores
    book: StepLedger
    order: Sequence[Microstore]
    demand: Demanding = demand_of
    memory: Mapping[str, Any] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    planned: MicrostorePlan | None = None
    asked: bool = False


class MosPlusPlus(ParameterPolicy[MosPlusPlusParameters]):
    """MOS++. Its memory: for the journal the last plan and the reasons for the last epoch's
    changes."""

    name = "mos-pp"
    parameters_type = MosPlusPlusParameters

    def __init__(self, parameters: MosPlusPlusParameters) -> None:
        """Raise UserError for an empty band, a malformed model, tenant, price or detector."""
        p = parameters
        if p.util_low > p.util_high:
            raise UserError(
                f"controller {self.name}: util_low {p.util_low:g} is above util_high "
                f"{p.util_high:g}"
            )
        check_solver(p.solver, p.objective)
        where = f"controller {self.name}: parameter"
        model = PiecewiseLinear.from_json(p.model, f"{where} 'model'") if p.model else None
        super().__init__(p)
        self._model = model
        self._promises = promises_from_json(p.tenants, model, f"{where} 'tenants'")
        self._prices = prices_from_json(p.prices, f"{where} 'prices'") if p.prices else None
        self._detect = detect_map.detector_from_json(p.detect, self.name)
        acts = {RESOURCES} | ({TENANTS} if self._detect else set())
        self.needs = Needs(frozenset({MICROSTORES}), frozenset(acts))

    def initial(self) -> State:
        """Return the state before any decision."""
        return {"begun": False, "why": {}, "plan": None, "tenants": {}}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Run one pass of Algorithm 2 over all microstores."""
        seen = observation.microstores
        if seen is None or observation.interval_s <= 0:  # no monitoring data yet
            return state, []
        begins = not state["begun"] and self._p.initial == PLAN
        epoch = self._epoch(state, seen, begins=begins)
        if begins:
            self._begin(epoch)
        else:
            self._pass(epoch)
        planned = state["plan"]
        if epoch.planned is not None:
            planned = {n: resources_to_json(held) for n, held in epoch.planned.stores.items()}
        after: dict[str, Any] = {**state, **epoch.memory}
        after |= {"begun": True, "why": epoch.why, "plan": planned}
        actions: list[Action] = list(changes(seen, epoch.book))
        if self._detect:
            bands, settings = self._detect
            after["tenants"], moves = detect_map.step(state["tenants"], seen, bands, settings)
            actions += moves
        return after, actions

    def _epoch(self, state: State, seen: Microstores, *, begins: bool) -> ProvisioningEpoch:
        """Return an epoch before its pass; `begins`: init() runs instead of a pass."""
        del state, begins
        return ProvisioningEpoch(seen, ledger(seen), seen.stores)

    def _begin(self, epoch: ProvisioningEpoch) -> None:
        """Run init(sla, free_pool): give exactly what is planned."""
        planned = self._plan(epoch)
        if planned is None:
            return
        names = [store.name for store in epoch.seen.stores if store.name in planned.stores]
        for name in names:
            epoch.book = epoch.book.take(name, self._to_remove(epoch, planned, name))
        for name in names:
            epoch.book = epoch.book.give(name, self._to_add(epoch, planned, name))
            epoch.why[name] = "begins with the optimiser's plan"

    def _pass(self, epoch: ProvisioningEpoch) -> None:
        """Run the body of Algorithm 2's loop for one microstore after another."""
        self._empty(epoch)
        for store in epoch.order:
            verdict = self._verdict(store, epoch.seen)
            if verdict == WITHIN:
                self._tune(epoch, store)
            elif self._acts(store):
                (self._add if verdict == MISSED else self._remove)(epoch, store)

    def _verdict(self, store: Microstore, seen: Microstores) -> str:
        """Return the verdict on a microstore's performance; within if it has no SLA."""
        found: list[str] = []
        for tenant in seen.tenants:
            promise = self._promises.get(tenant.name)
            offered = offered_by(tenant)
            if promise is None or tenant.microstore != store.name or offered <= 0:
                continue
            sla = promise.sla.at(offered)
            level = sla.of(tenant)
            if level is None or level < 1:
                return MISSED
            found.append(EXCEEDED if level > sla.high_level else WITHIN)
        return EXCEEDED if found and set(found) == {EXCEEDED} else WITHIN

    def _empty(self, epoch: ProvisioningEpoch) -> None:
        """Give back what microstores hold that detect and map, not a gap in monitoring, emptied."""
        if self._detect is None or not epoch.seen.tenants:
            return
        served = {tenant.microstore for tenant in epoch.seen.tenants}
        for store in epoch.order:
            if store.name not in served:
                held = epoch.book.held[store.name]
                self._give_back(epoch, store.name, held, "its tenants have moved")

    def _acts(self, store: Microstore) -> bool:
        """Return True if a microstore out of its SLA is changed at all."""
        p = self._p
        if p.reading != INTENT:
            return False
        part = sample(store.slots, p.util_low, p.util_high)
        return part is None or part <= p.util_thresh

    def _tune(self, epoch: ProvisioningEpoch, store: Microstore) -> None:
        """Fine-tune a microstore within its SLA by a whole container."""
        busy = util(store)
        if busy is None:
            return
        if busy > self._p.util_high:
            one = one_more(MEASURES, store.name, epoch.book)
            self._take(epoch, store.name, one, f"utilization {busy:.2f} above the band")
        elif busy < self._p.util_low:
            one = one_less(MEASURES, epoch.book.held[store.name])
            self._give_back(epoch, store.name, one, f"utilization {busy:.2f} below the band")

    def _remove(self, epoch: ProvisioningEpoch, store: Microstore) -> None:
        planned = (
            self._plan(epoch)
            if self._p.remove_to == LOW
            else self._optimised(epoch, at_high=store.name)
        )
        unwanted = self._to_remove(epoch, planned, store.name)
        self._give_back(epoch, store.name, unwanted, "performance above the SLA's high")

    def _add(self, epoch: ProvisioningEpoch, store: Microstore) -> None:
        wanted = self._to_add(epoch, self._plan(epoch), store.name)
        self._take(epoch, store.name, wanted, "performance below the SLA's low")

    def _give_back(self, epoch: ProvisioningEpoch, name: str, unwanted: Steps, why: str) -> None:
        before = epoch.book.held[name]
        epoch.book = epoch.book.take(name, unwanted)
        self._say(epoch, name, why, before)

    def _take(self, epoch: ProvisioningEpoch, name: str, wanted: Steps, why: str) -> None:
        before = epoch.book.held[name]
        epoch.book = epoch.book.give(name, wanted)
        self._say(epoch, name, why, before)

    @staticmethod
    def _say(epoch: ProvisioningEpoch, name: str, why: str, before: Steps) -> None:
        gained = sum(clipped(added(epoch.book.held[name], before, -1)))
        lost = sum(clipped(added(before, epoch.book.held[name], -1)))
        said = f"{why}: {f'+{gained}' if gained else f'-{lost}' if lost else 'nothing to be had'}"
        epoch.why[name] = f"{epoch.why[name]}; {said}" if name in epoch.why else said

    # ---- getContainers(): by the optimiser's plan for all microstores (equations 1 to 6) ----

    def _plan(self, epoch: ProvisioningEpoch) -> MicrostorePlan | None:
        """Return the epoch's plan, made at the first request."""
        if not epoch.asked:
            epoch.asked = True
            epoch.planned = self._optimised(epoch)
        return epoch.planned

    def _optimised(self, epoch: ProvisioningEpoch, at_high: str = "") -> MicrostorePlan | None:
        """Return a plan for every tenant with an SLA; microstores without one keep their resources.
        The plan aims at the SLAs' lows, for the microstore `at_high` at their highs. None without a
        model, such a tenant, or room for all."""
        if self._model is None:
            return None
        seen = epoch.seen
        names = {store.name for store in seen.stores}
        demands: list[TenantDemand] = []
        for tenant in seen.tenants:
            promise = self._promises.get(tenant.name)
            if promise is not None and tenant.microstore in names:
                if tenant.microstore == at_high:
                    promise = replace(promise, sla=replace(promise.sla, low=promise.sla.high))
                demands.append(epoch.demand(tenant, promise))
        planned = {demand.microstore for demand in demands}
        if not planned:
            return None
        left = seen.total
        for store in seen.stores:
            if store.name not in planned:
                left = left - store.resources
        try:
            return plan(
                self._model,
                demands,
                ResourcePool(left, seen.step),
                prices=self._prices,
                solver=self._p.solver,
                objective=self._p.objective,
            )
        except NoPlanError:
            return None

    @staticmethod
    def _to_remove(epoch: ProvisioningEpoch, planned: MicrostorePlan | None, store: str) -> Steps:
        """Return the containers beyond the plan's; without a plan one."""
        if planned is None or store not in planned.stores:
            return one_less(MEASURES, epoch.book.held[store])
        return clipped(added(epoch.book.held[store], steps_of(planned, store, epoch.book), -1))

    @staticmethod
    def _to_add(epoch: ProvisioningEpoch, planned: MicrostorePlan | None, store: str) -> Steps:
        """Return the containers that the microstore lacks of the plan's; without a plan one."""
        if planned is None or store not in planned.stores:
            return one_more(MEASURES, store, epoch.book)
        return clipped(added(steps_of(planned, store, epoch.book), epoch.book.held[store], -1))


def steps_of(planned: MicrostorePlan, store: str, book: StepLedger) -> Steps:
    """Return the steps that the plan gives a microstore."""
    return whole_steps(planned.stores[store], book.step, up=True)


# ---- A container: a step of the resources of some measures ----
#
# A disk is an SSD, or an HDD if no SSD is free. A microstore of only SSDs gets no HDD, as all of
# its requests would meet the HDD's latency (R6).

_PLACE = {"proxy_cpu": 0, "storage_cpu": 1, "network": 2}
_SSDS, _HDDS = RESOURCE_NAMES.index("ssds"), RESOURCE_NAMES.index("hdds")


def one_more(measures: Iterable[str], store: str, book: StepLedger) -> Steps:
    """Return a container that helps `measures`."""
    disk = _SSDS if book.free[_SSDS] > 0 or book.held[store][_HDDS] == 0 else _HDDS
    return _one(measures, disk)


def one_less(measures: Iterable[str], held: Steps) -> Steps:
    """Return a container that `measures` can spare."""
    return _one(measures, _HDDS if held[_HDDS] > 0 else _SSDS)


def count_of(held: Steps, measure: str) -> int:
    """Return the steps of a measure's resource; disks of both classes together."""
    return held[_SSDS] + held[_HDDS] if measure == "disk" else held[_PLACE[measure]]


def _one(measures: Iterable[str], disk: int) -> Steps:
    places = {_PLACE.get(measure, disk) for measure in measures}
    return tuple(int(index in places) for index in range(len(NONE)))


def sample(slots: Sequence[float], low: float, high: float) -> float | None:
    """Return the part of the epoch's time slots (1 % of it each) with utilization between `low` and
    `high`, the listing's sample(); None without slots."""
    if not slots:
        return None
    return sum(low <= slot <= high for slot in slots) / len(slots)


create = MosPlusPlus.create
