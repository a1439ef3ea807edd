"""The provisioning problem of equations 1 to 6 as a mixed-integer program, solved by HiGHS.

Each tenant has whole numbers of steps of each resource. The load that a resource carries is
piecewise linear in them (a variable for each piece, and a binary wherever a piece is steeper than
the piece before). A tenant is served no more than any of its resources carries. Successive solves
keep the order of `problem`: each solve holds the results of the earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from controllers.microstores.performance import CapacityCurve
from controllers.microstores.problem import (
    RATES,
    MicrostorePlan,
    NoPlanError,
    ResourcePool,
    WantedRates,
    disk_choices,
    disks_below_high,
    make_plan,
    rate_steps,
)
from controllers.microstores.shares import LEAST, Steps
from schemas.errors import HotbedError
from testbed.stores.microstores import RESOURCE_NAMES

SOLVER = "highs"
VALUE = "value"
_TOLERANCE = 1e-9
_SLACK = 1e-8
_ROUNDS = 20
_INFINITE = float("inf")

Row = Mapping[int, float]


@dataclass
class _TenantColumns:
    """Columns of a tenant: steps by resource, service in multiples of its need, the same capped at
    1, and 1 if its SLA is given up. An idle tenant has steps only."""

    steps: list[int]
    served: int = -1
    satisfied: int = -1
    violated: int = -1


@dataclass
class _GrowingProgram:
    """HiGHS model that grows."""

    solver: Any
    kinds: Any
    columns: int = 0
    rows: int = 0
    costs: dict[int, float] = field(default_factory=dict)

    def column(self, low: float, high: float, *, integer: bool = False) -> int:
        self.solver.addVar(low, high)
        if integer:
            self.solver.changeColIntegrality(self.columns, self.kinds.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def row(self, cells: Row, low: float, high: float) -> int:
        kept = {column: value for column, value in cells.items() if value}
        index = np.array(list(kept), dtype=np.int32)
        value = np.array(list(kept.values()), dtype=np.float64)
        status = self.solver.addRow(low, high, len(index), index, value)
        if status != self.kinds.HighsStatus.kOk:
            raise HotbedError(f"HiGHS did not take a row of the provisioning problem: {status}")
        self.rows += 1
        return self.rows - 1

    def drop(self, rows: Sequence[int]) -> None:
        """Remove the rows' limits."""
        for row in rows:
            self.solver.changeRowBounds(row, -_INFINITE, _INFINITE)

    def minimum(self, goal: Row) -> list[float] | None:
        """Return the values of all columns at the minimum of `goal`; None if infeasible."""
        for column in self.costs:
            self.solver.changeColCost(column, 0.0)
        self.costs = dict(goal)
        for column, cost in goal.items():
            self.solver.changeColCost(column, cost)
        self.solver.run()
        status = self.solver.getModelStatus()
        if status in {
            self.kinds.HighsModelStatus.kInfeasible,
            self.kinds.HighsModelStatus.kUnboundedOrInfeasible,
        }:
            return None
        if status != self.kinds.HighsModelStatus.kOptimal:
            raise HotbedError(f"HiGHS did not solve the provisioning problem: {status}")
        return list(self.solver.getSolution().col_value)


def solve(
    wanted: Sequence[WantedRates],
    pool: ResourcePool,
    price: Sequence[float],
    objective: str = "cost",
) -> MicrostorePlan:
    """Return the best plan (see `problem`); raise UserError if the pool is too small.

    With the objective ``value``, ties in SLAs and satisfaction are broken by the most performance
    per price instead of the lowest cost: the weighted sum of the tenants' service in multiples of
    their needs, up to their SLA's high.
    """
    model = _ProvisioningModel(wanted, pool, price)
    shares = model.satisfy()
    values = model.value_for_money() if objective == VALUE else model.cheapest(shares)
    given: list[Steps] = [
        tuple(round(values[column]) for column in tenant.steps) for tenant in model.tenants
    ]
    return make_plan(wanted, given, pool, price, SOLVER)


class _ProvisioningModel:
    def __init__(
        self, wanted: Sequence[WantedRates], pool: ResourcePool, price: Sequence[float]
    ) -> None:
        self._wanted = wanted
        self._pool = pool
        self._most = pool.steps
        self._price = price
        self._program = _empty()
        self.tenants = [self._tenant(item) for item in wanted]
        for index, most in enumerate(self._most):
            self._program.row({t.steps[index]: 1.0 for t in self.tenants}, -_INFINITE, most)

    def _tenant(self, item: WantedRates) -> _TenantColumns:
        program = self._program
        steps = [
            program.column(self._least(name), most, integer=True)
            for name, most in zip(RESOURCE_NAMES, self._most, strict=True)
        ]
        if any(self._most[3:]):
            program.row({steps[3]: 1.0, steps[4]: 1.0}, 1.0, _INFINITE)
        tenant = _TenantColumns(steps)
        if item.need <= 0:
            return tenant
        most = max(1.0, min(item.high, item.ceiling) / item.need)
        tenant.served = program.column(0.0, most)
        tenant.satisfied = program.column(0.0, 1.0)
        # An SLA that no resources meet is violated, however its tenant is served.
        tenant.violated = program.column(0.0 if item.attainable else 1.0, 1.0, integer=True)
        program.row({tenant.satisfied: 1.0, tenant.served: -1.0}, -_INFINITE, 0.0)
        program.row({tenant.served: 1.0, tenant.violated: 1.0}, 1.0, _INFINITE)
        for index, name in enumerate(RATES):
            self._carried(tenant, item, {steps[index]: name})
        self._carried(tenant, item, {steps[3]: "ssds", steps[4]: "hdds"})
        return tenant

    def _least(self, name: str) -> float:
        disk = name in ("ssds", "hdds")
        return 0.0 if disk or getattr(self._pool.step, name) <= 0 else float(getattr(LEAST, name))

    def _carried(
        self, tenant: _TenantColumns, item: WantedRates, columns: Mapping[int, str]
    ) -> None:
        """Limit the tenant's service to what these resources carry together (equation 3)."""
        cells, base = {tenant.served: 1.0}, 0.0
        for column, name in columns.items():
            curve: CapacityCurve = getattr(item.table, name)
            base += curve.points[0][1] / item.need
            size = float(getattr(self._pool.step, name))
            if size > 0:
                cells |= self._pieces(curve, column, size, item.need)
        self._program.row(cells, -_INFINITE, base)

    def _pieces(
        self, curve: CapacityCurve, column: int, size: float, need: float
    ) -> dict[int, float]:
        """Return the columns of a curve's pieces, in steps, with minus the load per step."""
        program, cells = self._program, dict[int, float]()
        together: dict[int, float] = {column: -1.0}
        group: list[tuple[int, float]] = []  # pieces since the last steeper one
        opened: int | None = None
        before = _INFINITE
        for (x0, y0), (x1, y1) in pairwise(curve.points):
            width, slope = (x1 - x0) / size, (y1 - y0) / (x1 - x0) * size / need
            if slope > before * (1 + 1e-12):
                opened = program.column(0.0, 1.0, integer=True)
                for earlier, full in group:
                    program.row({earlier: 1.0, opened: -full}, 0.0, _INFINITE)
                group = []
            piece = program.column(0.0, width)
            if opened is not None:
                program.row({piece: 1.0, opened: -width}, -_INFINITE, 0.0)
            group.append((piece, width))
            together[piece] = 1.0
            cells[piece] = -slope
            before = slope
        program.row(together, -_INFINITE, 0.0)
        return cells

    def satisfy(self) -> list[float]:
        """Fix which SLAs are met and how far the others are; return each tenant's satisfaction."""
        program = self._program
        busy = [
            (item, tenant)
            for item, tenant in zip(self._wanted, self.tenants, strict=True)
            if tenant.served >= 0
        ]
        weights = {t.violated: item.demand.weight for item, t in busy}
        values = self._minimum(weights)
        lost = math.fsum(weight * round(values[column]) for column, weight in weights.items())
        if weights:
            program.row(weights, -_INFINITE, lost + _SLACK)
        if lost <= _SLACK:
            return [1.0] * len(self.tenants)
        self._raise_least([t for _, t in busy])
        for _, tenant in sorted(busy, key=lambda it: (-it[0].demand.weight, it[0].demand.tenant)):
            values = self._minimum({tenant.satisfied: -1.0})
            found = values[tenant.satisfied]
            program.row({tenant.satisfied: 1.0}, found - _SLACK, _INFINITE)
        return [1.0 if t.served < 0 else values[t.satisfied] for t in self.tenants]

    def _raise_least(self, tenants: Sequence[_TenantColumns]) -> None:
        program = self._program
        least = program.column(0.0, 1.0)
        for tenant in tenants:
            program.row({tenant.satisfied: 1.0, least: -1.0}, 0.0, _INFINITE)
        found = self._minimum({least: -1.0})[least]
        program.row({least: 1.0}, found - _SLACK, _INFINITE)

    def _cost(self) -> dict[int, float]:
        return {
            column: price
            for tenant in self.tenants
            for column, price in zip(tenant.steps, self._price, strict=True)
        }

    def cheapest(self, shares: Sequence[float]) -> list[float]:
        """Minimise equation 2, with the SLAs' upper bounds (equation 3) if they can be kept."""
        bounds = [
            row
            for item, tenant, share in zip(self._wanted, self.tenants, shares, strict=True)
            if tenant.served >= 0 and share >= 1 - _SLACK
            for row in self._below_high(item, tenant)
        ]
        values = self._program.minimum(self._cost())
        if values is None and bounds:
            self._program.drop(bounds)
            values = self._program.minimum(self._cost())
        assert values is not None
        return values

    def _below_high(self, item: WantedRates, tenant: _TenantColumns) -> list[int]:
        """Add rows that keep a tenant below its SLA's high by its disks, if cores and network in
        whole steps cannot."""
        steps = rate_steps(item, item.need, self._pool)
        choices = disk_choices(item, item.need, self._pool)
        below = [] if steps is None else disks_below_high(item, steps, choices, self._pool)
        if not below:
            return []
        program = self._program
        taken = [program.column(0.0, 1.0, integer=True) for _ in below]
        rows = [program.row(dict.fromkeys(taken, 1.0), 1.0, 1.0)]
        for kind in (0, 1):
            cells = {tenant.steps[3 + kind]: -1.0}
            cells |= {c: float(pair[kind]) for c, pair in zip(taken, below, strict=True)}
            rows.append(program.row(cells, 0.0, 0.0))
        return rows

    def value_for_money(self) -> list[float]:
        """Maximise performance per price by Dinkelbach's method (Management Science 13(7), 1967):
        the largest performance - ratio x price, with the ratio of the plan before."""
        cost = self._cost()
        gain = {
            tenant.served: item.demand.weight
            for item, tenant in zip(self._wanted, self.tenants, strict=True)
            if tenant.served >= 0
        }
        values = self._minimum(cost)
        for _ in range(_ROUNDS):
            price = math.fsum(cost[column] * values[column] for column in cost)
            performance = math.fsum(gain[column] * values[column] for column in gain)
            if price <= 0 or performance <= 0:
                return values
            ratio = performance / price
            goal = {column: ratio * each for column, each in cost.items()}
            goal |= {column: -weight for column, weight in gain.items()}
            found = self._minimum(goal)
            better = -math.fsum(goal[column] * found[column] for column in goal)
            if better <= 1e-7 * performance:
                return values
            values = found
        return values

    def _minimum(self, goal: Row) -> list[float]:
        values = self._program.minimum(goal)
        if values is None:
            raise NoPlanError.small(len(self._wanted))
        return values


def _empty() -> _GrowingProgram:
    import highspy

    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in {
        "output_flag": False,
        "threads": 1,
        "random_seed": 1,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": _TOLERANCE,
        "mip_feasibility_tolerance": _TOLERANCE,
        "primal_feasibility_tolerance": _TOLERANCE,
    }.items():
        solver.setOptionValue(name, value)
    return _GrowingProgram(solver, highspy)
