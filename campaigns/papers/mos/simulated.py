"""The ground ``sim`` of MOS's campaigns: a cell of COSPerf, from its job to its folder.

The judge and the model that MOS++ plans with come from disjoint halves of the same measurements.
One half gives the simulator's constants, the other those of a second simulator that profiles
cospurf. The block's seed draws pool, loads, halves and errors."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from campaigns.engine.job import Job, Phases
from campaigns.engine.write_cell import write_cell
from campaigns.papers.mos.profile.fit import cospurf_rate, fit
from campaigns.papers.mos.profile.points import halves, reference
from campaigns.papers.mos.profile.simulator import (
    calibrated,
    configurations,
    predict,
    relative_error,
    simulated_runs,
)
from controllers.decide import InProcessDecider
from controllers.journal import JournalWriter
from controllers.loop import EXIT_STOPPED, Loop, LoopPlan
from controllers.microstores.performance import CURVES, PiecewiseLinear
from controllers.registry import code_hash, create, find, refuse_unoffered
from controllers.saved import Saved
from schemas.cells.mos import COSPERF, LearntModel, Modelled, PerfCell
from schemas.errors import HotbedError
from schemas.run import Run
from testbed.simulated.clock import SimulatedClock
from testbed.simulated.cosperf.machines import (
    CLASSES,
    Constants,
    ReconfigurationCosts,
    paper_pool,
    total,
)
from testbed.simulated.cosperf.stages import paper_stages, stage_of
from testbed.simulated.cosperf.store import START_PART, SimulatedMicrostores
from testbed.stores.microstores import Resources

SERIES_FILE = "microstores.json"
CONFIGURATIONS = 12
"""Random configurations of each workload on which cospurf is compared with the judge."""

# Approximate seconds of a cell.
FIXED_S = 1.5
EPOCH_S = {"static": 0.005, "mos": 0.012, "mos-at-once": 0.012}
MODELLED_EPOCH_S = 0.02


def make(job: Job, folder: Path) -> Run:
    """Simulate a cell and write its folder."""
    parameters = COSPERF.check(job.parameters, f"run {job.run_id}")
    phases = Phases()
    with phases("profile"):
        usual = Modelled(policy="mos-pp")
        modelled = parameters if isinstance(parameters, Modelled) else usual
        judge, model = constants(parameters.profile, modelled.runs, job.seed)
        hosts = paper_pool(job.seed, parameters.pools)
        pool = total(hosts)
        cospurf = made_wrong(profiled(model, pool, job.seed), modelled.model_error, job.seed)
    with phases("simulate"):
        store = SimulatedMicrostores(
            hosts,
            paper_stages(job.seed, minutes=parameters.minutes),
            constants=judge,
            costs=ReconfigurationCosts(factor=parameters.cost_factor),
            start_part=1.0 if parameters.policy == "static" else START_PART,
            epoch_s=parameters.epoch_s,
        )
        simulate(store, parameters, cospurf, job.seed, folder)
    series = store.series() | {"minutes": parameters.minutes}
    (folder / SERIES_FILE).write_text(json.dumps(series) + "\n")
    numbers = averages(series)
    if isinstance(parameters, Modelled):
        numbers |= errors(cospurf, judge, pool, job.seed)
    return write_cell(folder, job, numbers, phases)


@lru_cache(maxsize=8)
def _constants(profile: str, side: int) -> tuple[Constants, Constants]:
    points = reference(profile)
    first, second = (calibrated(half, points.replicas) for half in halves(points.runs, side))
    # The pool's objects have three replicas, whatever the measured store had.
    return tuple(one.model_copy(update={"replicas": 3}) for one in (first, second))  # type: ignore[return-value]


def constants(profile: str, runs: str, seed: int) -> tuple[Constants, Constants]:
    """Return the judge's constants, and those of the simulator for profiling cospurf."""
    judge, other = _constants(profile, seed % 2)
    return judge, judge if runs == "same" else other


def profiled(model: Constants, pool: Resources, seed: int) -> PiecewiseLinear:
    """Return the cospurf from runs on a simulator."""
    runs = simulated_runs(model, pool, seed)
    return fit(runs, pool, f"{len(runs)} runs on a simulator fitted to measured runs")


def made_wrong(cospurf: PiecewiseLinear, error: float, seed: int) -> PiecewiseLinear:
    """Return curves that are `error` too high or too low; `seed` draws the signs for all errors."""
    if not error:
        return cospurf
    rng = random.Random(f"error-{seed}")
    data = cospurf.to_json()
    for name in sorted(data["classes"]):
        curves = data["classes"][name]["curves"]
        for curve in CURVES:
            factor = 1 + rng.choice((-1, 1)) * error
            curves[curve] = [[amount, factor * value] for amount, value in curves[curve]]
    return PiecewiseLinear.from_json(data)


def simulate(
    store: SimulatedMicrostores,
    parameters: PerfCell,
    cospurf: PiecewiseLinear,
    seed: int,
    folder: Path,
) -> None:
    """Run all stages, under the policy's real control loop if the policy has one."""
    ends_s = 60 * parameters.minutes
    # The monitors must have seen an epoch before the first decision.
    store.advance_to(parameters.epoch_s)
    if parameters.policy == "static":
        while store.now_s < ends_s:
            store.advance_to(min(ends_s, store.now_s + parameters.epoch_s))
        return
    controller = find(parameters.policy)
    policy = create(controller, policy_parameters(store, parameters, cospurf), seed)
    refuse_unoffered(controller.name, policy.needs, store.offers(), "modelled microstores")
    plan = LoopPlan(
        policy=policy.name,
        needs=policy.needs,
        parameters=policy.parameters(),
        seed=seed,
        interval_s=parameters.epoch_s,
        signal="microstores",
        code_hash=code_hash(controller),
    )
    with JournalWriter(folder / "journal.jsonl", sync=False) as journal:
        outcome = Loop(
            plan,
            decider=InProcessDecider(policy),
            store=store,
            journal=journal,
            saved=Saved(folder / "logs" / "saved.json"),
            clock=SimulatedClock(store, stop_at_s=ends_s),
        ).run()
    if outcome.code != EXIT_STOPPED:
        raise HotbedError(f"the controller {policy.name} failed: {outcome.reason}")


def policy_parameters(
    store: SimulatedMicrostores, parameters: PerfCell, cospurf: PiecewiseLinear
) -> dict[str, Any]:
    """Return the policy's parameters. MOS++ gets its model and the tenants' SLAs: a part of their
    result on an idle pool, as a latency (A, B) or a bandwidth per worker (C, D)."""
    if not isinstance(parameters, Modelled):
        return {}
    blind = isinstance(parameters, LearntModel) and not parameters.learns
    learning = {"learn": 0.0} if blind else {}
    return learning | {
        "model": cospurf.to_json(),
        "tenants": {
            tenant: {"workload": tenant, "sla": _sla(store, tenant, parameters.sla)}
            for tenant in store.tenants
        },
    }


def _sla(store: SimulatedMicrostores, tenant: str, part: float) -> dict[str, Any]:
    alone, objects = store.alone[tenant], CLASSES[tenant]
    if not objects.large:
        return {"latency_ms": 1000 * alone.response_s / part}
    return {
        "bandwidth_mb_s": part * objects.payload / alone.response_s / 1e6,
        "per_worker": True,
    }


def averages(series: Mapping[str, Any]) -> dict[str, float]:
    """Return numbers of the summary by tenant: requests and bytes a second and mean latency over
    all stages, and requests a second by stage."""
    seconds = series["seconds"]
    stages = [
        stage_of((end - each / 2) / 60, series["minutes"])
        for end, each in zip(series["t_s"], seconds, strict=True)
    ]
    found: dict[str, float] = {}
    for tenant, its in series["tenants"].items():
        rates = its["requests_s"]
        for name in ("requests_s", "bytes_s", "failed_s", "workers"):
            found[f"{tenant}_{name}"] = statistics.fmean(its[name], weights=seconds)
        done = [rate * each for rate, each in zip(rates, seconds, strict=True)]
        found[f"{tenant}_latency_s"] = statistics.fmean(its["latency_s"], weights=done)
        for stage in range(1, 5):
            weights = [
                each if at == stage else 0.0 for at, each in zip(stages, seconds, strict=True)
            ]
            found[f"{tenant}_stage_{stage}_requests_s"] = statistics.fmean(rates, weights=weights)
    return found


def errors(
    cospurf: PiecewiseLinear, judge: Constants, pool: Resources, seed: int
) -> dict[str, float]:
    """Return the median relative error of cospurf against the judge by workload, on configurations
    that cospurf was not fitted to."""
    rng = random.Random(f"held-out-{seed}")
    found = {}
    for letter in CLASSES:
        asked = list(configurations(letter, pool, rng, mixes=CONFIGURATIONS, alone=()))
        truth = predict(asked, judge)
        found[f"cospurf_error_{letter}"] = statistics.median(
            relative_error(cospurf_rate(cospurf, point), float(rate))
            for point, rate in zip(asked, truth, strict=True)
        )
    return found


def planned_s(parameters: PerfCell) -> float:
    """Return the estimated seconds of a cell."""
    epochs = 60 * parameters.minutes / parameters.epoch_s
    epoch_s = EPOCH_S.get(parameters.policy, MODELLED_EPOCH_S)
    return FIXED_S + epochs * epoch_s * (1 + 0.3 * (parameters.pools - 1))
