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
microstores and this microstore's holdings (`containers`). The plan is made for the missed bound:
getContainers(perf - sla_high) leaves what sla_high needs (``remove_to``). What the free pool lacks
comes from microstores that hold more than the plan gives them. If the SLA is missed but the plan
adds nothing, the too busy resource gets a container. Fine-tuning is by resource (`tuning`). An
epoch first serves those that give back, then those with a missed SLA, then fine-tuning; among
equals the first microstore changes every epoch. A microstore with several tenants misses if any
tenant does, and exceeds if all do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.common.parameters import mapping, read
from controllers.contract import State
from controllers.microstores import detect_map
from controllers.microstores.monitor import sample
from controllers.microstores.optimiser import check_solver
from controllers.microstores.performance import PiecewiseLinear
from controllers.microstores.price import prices_from_json
from controllers.microstores.problem import Plan
from controllers.microstores.shares import Ledger, Steps, changes, clipped, ledger
from controllers.microstores.shares import added as plus
from controllers.microstores.tenants import offered_by, promises_from_json
from controllers.mos_pp import containers, tuning
from controllers.mos_pp.learning import Learnt
from controllers.mos_pp.parameters import INTENT, LOW, PLAN, Parameters
from schemas.errors import UserError
from testbed.stores.contract import Action, Needs, Observation
from testbed.stores.microstores import (
    MICROSTORES,
    RESOURCES,
    TENANTS,
    Microstore,
    Microstores,
    resources_to_json,
)

MISSED, WITHIN, EXCEEDED = "missed", "within", "exceeded"


@dataclass
class _Epoch:
    """Working data of an epoch."""

    seen: Microstores
    book: Ledger
    learnt: Learnt
    why: dict[str, str] = field(default_factory=dict)
    planned: Plan | None = None
    asked: bool = False


class MosPlusPlus:
    """MOS++. Its memory: learnt corrections (`learning`), the turn, and for the journal the last
    plan and the reasons for the last epoch's changes."""

    name = "mos-pp"

    def __init__(self, parameters: Parameters) -> None:
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
        self._optimiser = containers.Optimiser(
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
        told = state["plan"]
        if epoch.planned is not None:
            told = {n: resources_to_json(held) for n, held in epoch.planned.stores.items()}
        after: dict[str, Any] = dict(state) | {
            "learnt": epoch.learnt.to_json(),
            "turn": state["turn"] + 1,
            "begun": True,
            "why": epoch.why,
            "plan": told,
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
            epoch.book = epoch.book.take(name, containers.to_remove(planned, name, epoch.book))
        for name in names:
            epoch.book = epoch.book.give(name, containers.to_add(planned, name, epoch.book))
            epoch.why[name] = "begins with the optimiser's plan"

    def _pass(self, epoch: _Epoch, turn: int) -> None:
        stores = _from(epoch.seen.stores, turn)
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

    def _plan(self, epoch: _Epoch) -> Plan | None:
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
        unwanted = containers.to_remove(planned, store.name, epoch.book)
        self._give_back(epoch, store.name, unwanted, "performance above the SLA's high")

    def _less(self, epoch: _Epoch, store: Microstore) -> None:
        for measure in tuning.too_idle(store, epoch.book, self._p):
            one = tuning.one_less(measure, epoch.book.held[store.name])
            self._give_back(epoch, store.name, one, f"{measure} below the band")

    def _add(self, epoch: _Epoch, store: Microstore) -> None:
        planned = self._plan(epoch)
        wanted = containers.to_add(planned, store.name, epoch.book)
        if self._p.reclaim:
            epoch.book = containers.reclaimed(planned, store.name, wanted, epoch.book)
        before = epoch.book.held[store.name]
        self._take(epoch, store.name, wanted, "performance below the SLA's low")
        if epoch.book.held[store.name] == before:
            # The model grants enough, but the SLA is missed: add what is too busy.
            self._more(epoch, store)

    def _more(self, epoch: _Epoch, store: Microstore) -> None:
        for measure in tuning.too_busy(store, self._p):
            one = tuning.one_more(measure, store.name, epoch.book)
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
        gained = sum(clipped(plus(epoch.book.held[name], before, -1)))
        lost = sum(clipped(plus(before, epoch.book.held[name], -1)))
        said = f"{why}: {f'+{gained}' if gained else f'-{lost}' if lost else 'nothing to be had'}"
        epoch.why[name] = f"{epoch.why[name]}; {said}" if name in epoch.why else said


def _from(stores: Sequence[Microstore], turn: int) -> list[Microstore]:
    """Return all microstores, beginning with another one every turn."""
    if not stores:
        return []
    start = turn % len(stores)
    return [*stores[start:], *stores[:start]]


def create(parameters: Mapping[str, object], seed: int) -> MosPlusPlus:
    """Create the policy; `seed` is not used."""
    return MosPlusPlus(read(Parameters, "mos-pp", parameters))
