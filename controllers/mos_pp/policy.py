"""MOS++: Algorithm 2 of the paper with getContainers() by equations 1 to 6 (section 6).

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

Where the paper is silent: getContainers() is the difference between the optimiser's plan for all
microstores and this microstore's holdings. The plan is made for the missed bound:
getContainers(perf - sla_high) leaves what sla_high needs (``remove_to``). What the free pool lacks
comes from microstores that hold more than the plan gives them. If the SLA is missed but the plan
adds nothing, the too busy resource gets a container. Fine-tuning is by resource (`too_busy`). An
epoch first serves those that give back, then those with a missed SLA, then fine-tuning; among
equals the first microstore changes every epoch. A microstore with several tenants misses if any
tenant does, and exceeds if all do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.common.parameters import choice, flag, mapping, number, read, structure
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
    MEASURE_OF,
    NONE,
    StepLedger,
    Steps,
    added,
    changes,
    clipped,
    in_turn,
    ledger,
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
    Resources,
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
    either: bool = flag(True, "an SLA is met by its utilization too (section 6); false: not so")
    reading: str = choice(INTENT, (INTENT, PRINTED), "how Algorithm 2's listing is read")
    initial: str = choice(KEEP, (KEEP, PLAN), "what microstores begin with (plan: the optimiser's)")
    headroom: float = number(1.1, 1, 3, "times the throughput that an SLA's low needs")
    reclaim: bool = flag(True, "what the free pool lacks comes from who has more than is planned")
    remove_to: str = choice(
        HIGH, (HIGH, LOW), "which of the SLA's bounds is left to who exceeds it (low: equation 2's)"
    )
    guard: bool = flag(True, "give nothing back that would push utilization out of the band's top")
    learn: float = number(0.5, 0, 1, "how fast what is measured corrects the model; 0: never")
    solver: str = choice(EXACT, SOLVERS, "of the optimiser; highs needs highspy where it runs")
    objective: str = choice(COST, OBJECTIVES, "of plans (value: performance per price, by highs)")
    tenants: Mapping[str, object] = structure("{TENANT: {workload, sla, weight}}")
    model: Mapping[str, object] = structure("cospurf: tables of a profile (docs/mos.md)")
    prices: Mapping[str, object] = structure("an hour's price of each resource, {} for none")
    detect: Mapping[str, object] = structure("detect and map: bands of sizes, {} for none")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")


MISSED, WITHIN, EXCEEDED = "missed", "within", "exceeded"


@dataclass
class _Epoch:
    """Working data of an epoch."""

    seen: Microstores
    book: StepLedger
    learnt: Learnt
    why: dict[str, str] = field(default_factory=dict)
    planned: MicrostorePlan | None = None
    asked: bool = False


class MosPlusPlus:
    """MOS++. Its memory: learnt corrections (`Learnt`), the turn, and for the journal the last
    plan and the reasons for the last epoch's changes."""

    name = "mos-pp"

    def __init__(self, parameters: MosPlusPlusParameters) -> None:
        """Raise UserError for an empty band, a malformed model, tenant, price or detector."""
        p = parameters
        if p.util_low > p.util_high:
            raise UserError(
                f"controller mos-pp: util_low {p.util_low:g} is above util_high {p.util_high:g}"
            )
        check_solver(p.solver, p.objective)
        where = "controller mos-pp: parameter"
        model = PiecewiseLinear.from_json(p.model, f"{where} 'model'") if p.model else None
        self._p = p
        self._optimiser = Optimiser(
            model,
            promises_from_json(p.tenants, model, f"{where} 'tenants'"),
            prices_from_json(p.prices, f"{where} 'prices'") if p.prices else None,
            p,
        )
        self._detect = detect_map.detector_from_json(p.detect, self.name)
        acts = {RESOURCES} | ({TENANTS} if self._detect else set())
        self.needs = Needs(frozenset({MICROSTORES}), frozenset(acts))

    def parameters(self) -> Mapping[str, object]:
        """Return every parameter in force."""
        return mapping(self._p)

    def initial(self) -> State:
        """Return the state before any decision."""
        return {
            "learnt": {},
            "turn": 0,
            "begun": False,
            "why": {},
            "plan": None,
            "tenants": {},
        }

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Run one pass of Algorithm 2 over all microstores."""
        seen = observation.microstores
        if seen is None or observation.interval_s <= 0:  # no monitoring data yet
            return state, []
        epoch = _Epoch(seen, ledger(seen), Learnt.from_json(state["learnt"], self._p))
        if not state["begun"] and self._p.initial == PLAN:
            self._begin(epoch)
        else:
            self._pass(epoch, state["turn"])
        planned = state["plan"]
        if epoch.planned is not None:
            planned = {n: resources_to_json(held) for n, held in epoch.planned.stores.items()}
        after: dict[str, Any] = dict(state) | {
            "learnt": epoch.learnt.to_json(),
            "turn": state["turn"] + 1,
            "begun": True,
            "why": epoch.why,
            "plan": planned,
        }
        actions: list[Action] = list(changes(seen, epoch.book))
        if self._detect:
            bands, settings = self._detect
            after["tenants"], moves = detect_map.step(state["tenants"], seen, bands, settings)
            actions += moves
        return after, actions

    def _begin(self, epoch: _Epoch) -> None:
        """Run init(sla, free_pool): give exactly what is planned."""
        planned = self._plan(epoch)
        if planned is None:
            return
        names = [store.name for store in epoch.seen.stores if store.name in planned.stores]
        for name in names:
            epoch.book = epoch.book.take(name, to_remove(planned, name, epoch.book))
        for name in names:
            epoch.book = epoch.book.give(name, to_add(planned, name, epoch.book))
            epoch.why[name] = "begins with the optimiser's plan"

    def _pass(self, epoch: _Epoch, turn: int) -> None:
        stores = in_turn(epoch.seen.stores, turn)
        verdicts = {store.name: self._verdict(store, epoch.seen) for store in stores}
        for store in stores:
            modelled = self._optimiser.modelled(store, epoch.seen)
            missed = verdicts[store.name] == MISSED
            epoch.learnt.see(store.name, modelled, store.utilization, missed=missed)
        for store in stores:
            if self._deserted(store, epoch.seen):
                held = epoch.book.held[store.name]
                self._give_back(epoch, store.name, held, "its tenants have moved")
        out = [store for store in stores if verdicts[store.name] != WITHIN and self._acts(store)]
        tuned = [store for store in stores if verdicts[store.name] == WITHIN]
        for store in out:
            if verdicts[store.name] == EXCEEDED:
                self._remove(epoch, store)
        for store in tuned:
            self._less(epoch, store)
        for store in out:
            if verdicts[store.name] == MISSED:
                self._add(epoch, store)
        for store in tuned:
            self._more(epoch, store)

    def _verdict(self, store: Microstore, seen: Microstores) -> str:
        """Return the verdict on a microstore's performance; within if it has no SLA."""
        found: list[str] = []
        for tenant in seen.tenants:
            promise = self._optimiser.promises.get(tenant.name)
            offered = offered_by(tenant)
            if promise is None or tenant.microstore != store.name or offered <= 0:
                continue
            sla = promise.sla.at(offered)
            level = sla.of(tenant)
            if level is None or level < 1:
                return MISSED
            found.append(EXCEEDED if level > sla.high_level else WITHIN)
        return EXCEEDED if found and set(found) == {EXCEEDED} else WITHIN

    def _deserted(self, store: Microstore, seen: Microstores) -> bool:
        """Return True if detect and map, not a gap in monitoring, has emptied a microstore."""
        return (
            self._detect is not None
            and bool(seen.tenants)
            and all(tenant.microstore != store.name for tenant in seen.tenants)
        )

    def _acts(self, store: Microstore) -> bool:
        """Return True if a microstore out of its SLA is changed at all."""
        p = self._p
        if p.reading != INTENT:
            return False
        part = sample(store.slots, p.util_low, p.util_high)
        return not (p.either and part is not None and part > p.util_thresh)

    def _plan(self, epoch: _Epoch) -> MicrostorePlan | None:
        """Return the epoch's plan, made at the first request."""
        if not epoch.asked:
            epoch.asked = True
            epoch.planned = self._optimiser.plan(epoch.seen, epoch.learnt)
        return epoch.planned

    def _remove(self, epoch: _Epoch, store: Microstore) -> None:
        planned = (
            self._plan(epoch)
            if self._p.remove_to == LOW
            else self._optimiser.plan(epoch.seen, epoch.learnt, at_high=store.name)
        )
        unwanted = to_remove(planned, store.name, epoch.book)
        self._give_back(epoch, store.name, unwanted, "performance above the SLA's high")

    def _less(self, epoch: _Epoch, store: Microstore) -> None:
        for measure in too_idle(store, epoch.book, self._p):
            one = one_less(measure, epoch.book.held[store.name])
            self._give_back(epoch, store.name, one, f"{measure} below the band")

    def _add(self, epoch: _Epoch, store: Microstore) -> None:
        planned = self._plan(epoch)
        wanted = to_add(planned, store.name, epoch.book)
        if self._p.reclaim:
            epoch.book = reclaimed(planned, store.name, wanted, epoch.book)
        before = epoch.book.held[store.name]
        self._take(epoch, store.name, wanted, "performance below the SLA's low")
        if epoch.book.held[store.name] == before:
            # The model grants enough, but the SLA is missed: add what is too busy.
            self._more(epoch, store)

    def _more(self, epoch: _Epoch, store: Microstore) -> None:
        for measure in too_busy(store, self._p):
            one = one_more(measure, store.name, epoch.book)
            self._take(epoch, store.name, one, f"{measure} above the band")

    def _give_back(self, epoch: _Epoch, name: str, unwanted: Steps, why: str) -> None:
        before = epoch.book.held[name]
        epoch.book = epoch.book.take(name, unwanted)
        self._say(epoch, name, why, before)

    def _take(self, epoch: _Epoch, name: str, wanted: Steps, why: str) -> None:
        before = epoch.book.held[name]
        epoch.book = epoch.book.give(name, wanted)
        self._say(epoch, name, why, before)

    @staticmethod
    def _say(epoch: _Epoch, name: str, why: str, before: Steps) -> None:
        gained = sum(clipped(added(epoch.book.held[name], before, -1)))
        lost = sum(clipped(added(before, epoch.book.held[name], -1)))
        said = f"{why}: {f'+{gained}' if gained else f'-{lost}' if lost else 'nothing to be had'}"
        epoch.why[name] = f"{epoch.why[name]}; {said}" if name in epoch.why else said


# ---- getContainers(): by the optimiser's plan for all microstores (equations 1 to 6) ----

ONE_EACH: Steps = (1, 1, 1, 1, 0)
"""Steps to add if no model shows what is missing."""


@dataclass(frozen=True)
class Optimiser:
    """Fixed inputs of the optimiser in all epochs."""

    model: PiecewiseLinear | None
    promises: Mapping[str, Promise]
    prices: Resources | None
    parameters: MosPlusPlusParameters

    def plan(self, seen: Microstores, learnt: Learnt, at_high: str = "") -> MicrostorePlan | None:
        """Return a plan for every tenant with an SLA; microstores without one keep their resources.
        The plan aims at the SLAs' lows, for the microstore `at_high` at their highs. None without a
        model, such a tenant, or room for all."""
        if self.model is None:
            return None
        demands: list[TenantDemand] = []
        for tenant in seen.tenants:
            promise = self.promises.get(tenant.name)
            if promise is not None and self._known(seen, tenant):
                if tenant.microstore == at_high:
                    promise = replace(promise, sla=replace(promise.sla, low=promise.sla.high))
                known = learnt.of(tenant.microstore)
                demands.append(demand_of(tenant, promise, known.corrections, known.knee))
        planned = {demand.microstore for demand in demands}
        if not planned:
            return None
        left = seen.total
        for store in seen.stores:
            if store.name not in planned:
                left = left - store.resources
        try:
            return plan(
                self.model,
                demands,
                ResourcePool(left, seen.step),
                prices=self.prices,
                solver=self.parameters.solver,
                objective=self.parameters.objective,
            )
        except NoPlanError:
            return None

    @staticmethod
    def _known(seen: Microstores, tenant: Tenant) -> bool:
        return any(store.name == tenant.microstore for store in seen.stores)

    def modelled(self, store: Microstore, seen: Microstores) -> dict[str, float]:
        """Return, for each of a microstore's resources, the modelled seconds of work per second of
        its tenants' service, as if the resource (each class of disks too) served it alone; {}
        without a model."""
        found: dict[str, float] = {}
        for tenant in seen.tenants:
            promise = self.promises.get(tenant.name)
            if self.model is None or promise is None or tenant.microstore != store.name:
                continue
            table = self.model.table(promise.workload)
            for name in RESOURCE_NAMES:
                capacity = getattr(table, name).value(getattr(store.resources, name))
                if capacity > 0:
                    found[name] = found.get(name, 0.0) + tenant.requests_s / capacity
        return found


def to_remove(planned: MicrostorePlan | None, store: str, ledger: StepLedger) -> Steps:
    """Return the containers beyond the plan's; without a plan one of each."""
    if planned is None or store not in planned.stores:
        return ONE_EACH
    return clipped(added(ledger.held[store], _steps(planned, store, ledger), -1))


def to_add(planned: MicrostorePlan | None, store: str, ledger: StepLedger) -> Steps:
    """Return the containers that the microstore lacks of the plan's; without a plan one of each."""
    if planned is None or store not in planned.stores:
        return ONE_EACH
    return clipped(added(_steps(planned, store, ledger), ledger.held[store], -1))


def reclaimed(
    planned: MicrostorePlan | None, store: str, wanted: Steps, ledger: StepLedger
) -> StepLedger:
    """Return the ledger after other microstores have given back what `store` wants and the free
    pool lacks, as far as they hold more than the plan gives them."""
    if planned is None:
        return ledger
    for other in sorted(planned.stores):
        missing = clipped(added(wanted, ledger.free, -1))
        if other == store or missing == NONE or other not in ledger.held:
            continue
        excess = clipped(added(ledger.held[other], _steps(planned, other, ledger), -1))
        ledger = ledger.take(other, tuple(map(min, missing, excess)))
    return ledger


def _steps(planned: MicrostorePlan, store: str, ledger: StepLedger) -> Steps:
    return whole_steps(planned.stores[store], ledger.step, up=True)


# ---- Corrections of the model ----

_LEAST_CORRECTION, _MOST_CORRECTION = 0.25, 4.0
_LEAST_BUSY = 0.05
"""Utilization below which the monitors' rounding would be learnt."""

_DIGITS = 6
_DISKS = ("ssds", "hdds")


@dataclass(frozen=True)
class OfStore:
    """Learnt values of a microstore: the utilization of the scarcest resource at which its SLAs are
    met, and real over modelled throughput by resource.
    """

    knee: float
    corrections: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Learnt:
    """Corrections of the optimiser's model for each microstore, learnt while it runs.

    By the utilization law, a resource that is busy for a part u of the time, while the model says
    v, carries v / u times the modelled load. Of two classes of disks this is learnt for the class
    that carries more. The highest utilization that met an SLA gives the spare throughput that the
    SLA needs (``knee``), since the model has no queues.
    """

    parameters: MosPlusPlusParameters
    stores: dict[str, OfStore]

    @classmethod
    def from_json(cls, data: Mapping[str, Any], parameters: MosPlusPlusParameters) -> Learnt:
        """Read the data of `to_json`."""
        return cls(parameters, {name: OfStore(**item) for name, item in data.items()})

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return {
            name: {"knee": item.knee, "corrections": dict(item.corrections)}
            for name, item in self.stores.items()
        }

    def of(self, store: str) -> OfStore:
        """Return a microstore's values; at first, SLAs count as met up to 1 / headroom."""
        return self.stores.get(store, OfStore(1 / self.parameters.headroom))

    def see(
        self,
        store: str,
        modelled: Mapping[str, float],
        measured: Mapping[str, float],
        *,
        missed: bool,
    ) -> None:
        """Learn from an epoch of a microstore: utilization by resource as modelled (each class of
        disks as if alone), by measure as measured, and True if it missed an SLA."""
        p = self.parameters
        if p.learn <= 0 or not modelled or not measured:
            return
        before = self.of(store)
        corrections = dict(before.corrections)
        for name, load, busy in _comparable(modelled, measured, corrections):
            target = min(_MOST_CORRECTION, max(_LEAST_CORRECTION, load / busy))
            old = corrections.get(name, 1.0)
            corrections[name] = round(old + p.learn * (target - old), _DIGITS)
        after = replace(before, corrections=corrections)
        self.stores[store] = replace(after, knee=self._knee(before.knee, measured, missed=missed))

    def _knee(self, before: float, measured: Mapping[str, float], *, missed: bool) -> float:
        """Return the new knee. A miss below the band is ignored: resources are not its cause."""
        p = self.parameters
        busy = max(measured.values())
        if missed:
            return before if busy < p.util_low else round(min(before, busy), _DIGITS)
        return round(min(max(before, busy), 1 / p.headroom), _DIGITS)


def _comparable(
    modelled: Mapping[str, float], measured: Mapping[str, float], corrections: Mapping[str, float]
) -> list[tuple[str, float, float]]:
    """Return (resource, modelled, measured utilization) of the sufficiently busy resources."""
    found: list[tuple[str, float, float]] = []
    for name, load in modelled.items():
        busy = measured.get(MEASURE_OF[name], 0.0)
        if name not in _DISKS and busy >= _LEAST_BUSY and load > 0:
            found.append((name, load, busy))
    # Requests per second that each class carries as learnt, in units of the served requests.
    carries = {n: corrections.get(n, 1.0) / modelled[n] for n in _DISKS if modelled.get(n, 0) > 0}
    busy = measured.get("disk", 0.0)
    if carries and busy >= _LEAST_BUSY:
        most = max(carries, key=lambda name: carries[name])
        others = sum(carries.values()) - carries[most]
        if 1 / busy > others:
            found.append((most, modelled[most], 1 / (1 / busy - others)))
    return found


# ---- Fine-tuning: a container more or less of a too busy or too idle resource ----
#
# The listing has one utilization for a microstore and says "a container". Here every resource is
# judged separately, so that network can be given back while cores are added, and a container is a
# step of one resource. A disk container is an SSD, or an HDD if no SSD is free. A microstore of
# only SSDs gets no HDD, as all of its requests would meet the HDD's latency (R6).

_PLACE = {"proxy_cpu": 0, "storage_cpu": 1, "network": 2}
_SSDS, _HDDS = RESOURCE_NAMES.index("ssds"), RESOURCE_NAMES.index("hdds")


def too_busy(store: Microstore, p: MosPlusPlusParameters) -> list[str]:
    """Return the measures above the band."""
    return [m for m in MEASURES if store.utilization.get(m, 0.0) > p.util_high]


def too_idle(store: Microstore, ledger: StepLedger, p: MosPlusPlusParameters) -> list[str]:
    """Return the measures below the band; with `guard`, only if one container less stays in it."""
    found: list[str] = []
    for measure in MEASURES:
        busy = store.utilization.get(measure)
        if busy is None or busy >= p.util_low:
            continue
        count = _count(ledger.held[store.name], measure)
        if count > 1 and (not p.guard or busy * count / (count - 1) <= p.util_high):
            found.append(measure)
    return found


def one_more(measure: str, store: str, ledger: StepLedger) -> Steps:
    """Return a container that helps `measure`."""
    if measure != "disk":
        return _one(_PLACE[measure])
    return _one(_SSDS if ledger.free[_SSDS] > 0 or ledger.held[store][_HDDS] == 0 else _HDDS)


def one_less(measure: str, held: Steps) -> Steps:
    """Return a container that `measure` can spare."""
    if measure != "disk":
        return _one(_PLACE[measure])
    return _one(_HDDS if held[_HDDS] > 0 else _SSDS)


def _one(place: int) -> Steps:
    return tuple(int(index == place) for index in range(len(NONE)))


def _count(held: Steps, measure: str) -> int:
    if measure == "disk":
        return held[_SSDS] + held[_HDDS]
    return held[_PLACE[measure]]


def sample(slots: Sequence[float], low: float, high: float) -> float | None:
    """Return the part of the epoch's time slots (1 % of it each) with utilization between `low` and
    `high`, the listing's sample(); None without slots."""
    if not slots:
        return None
    return sum(low <= slot <= high for slot in slots) / len(slots)


def create(parameters: Mapping[str, object], seed: int) -> MosPlusPlus:
    """Create the policy; `seed` is not used."""
    return MosPlusPlus(read(MosPlusPlusParameters, "mos-pp", parameters))
