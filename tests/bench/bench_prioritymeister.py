"""PriorityMeister's planner: the r-b curve against a sweep of rates, plans against the paper's LP.

The planner's times are this process's processor times, so that other load on the machine does not
count. enforcement.py measures the data plane, simulating.py the simulator.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import enforcement
import numpy as np
import numpy.typing as npt
import simulating
from frame import ROOT, SMALL, Row, row, show, unmeasured

from controllers.jit import COMPILED, njit
from controllers.prioritymeister import network_calculus as system
from controllers.prioritymeister import prioritizer as plan
from controllers.prioritymeister.estimators import load_profile
from controllers.prioritymeister.limiters import Limiters, rb_curve
from tests.controllers.prioritymeister import linear_program as lp
from workloads.traces import arrivals
from workloads.traces.reader import load

Floats = npt.NDArray[np.float64]

TRACES = ROOT.parent / "shared" / "traces" / "workloadcompactor"
RATES = 1000
REPEATS = 3
EVERY = 7  # one in so many traces is also swept the slow way


@njit
def sweep(times: Floats, work: Floats, rates: Floats) -> Floats:
    """Replay the trace through a bucket of each rate, literally as in section 4.1."""
    bursts = np.empty(len(rates))
    for i in range(len(rates)):
        fill = peak = 0.0
        last = times[0]
        for k in range(len(times)):
            fill = max(0.0, fill - rates[i] * (times[k] - last)) + work[k]
            peak = max(peak, fill)
            last = times[k]
        bursts[i] = peak
    return bursts


@njit
def sweep_by_map(times: Floats, work: Floats, rates: Floats) -> Floats:
    """Do the same request by request, with buckets in a map by rate, as in WorkloadCompactor."""
    fills, bursts = {0.0: 0.0}, {0.0: 0.0}
    for rate in rates:
        fills[rate] = bursts[rate] = 0.0
    last = times[0]
    for k in range(len(times)):
        gap = times[k] - last
        for rate in rates:
            fills[rate] -= rate * gap
            if fills[rate] < 0:
                fills[rate] = 0.0
            fills[rate] += work[k]
            bursts[rate] = max(bursts[rate], fills[rate])
        last = times[k]
    return np.array([bursts[rate] for rate in rates])


def took(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the least processor time of several calls, in seconds."""
    spans = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        spans.append(time.process_time() - start)
    return min(spans)


def traces() -> tuple[list[tuple[Floats, Floats]], str]:
    """Return (times, work) of traces, and the source of the traces."""
    found = []
    if TRACES.is_dir():
        storage = load_profile(TRACES / "profileSSD.txt")
        paths = sorted(TRACES.glob("trace*.gz"))
        for path in paths[:: 12 if SMALL else 1]:
            block, _ = load(path)
            work = storage.work("storage", block)
            found.append(((block.time_ns - block.time_ns[0]) * 1e-9, work))
        return found, "WorkloadCompactor's traces"
    for c2 in (1.3, 14.0, 145.0):
        count = 10_000 if SMALL else 100_000
        times = arrivals.hyperexponential(100.0, c2, count, seed=1)
        random = np.random.default_rng(1)
        found.append((times, random.choice([1e-3, 4e-3], count)))
    return found, "made traces (../shared/traces is not there)"


def curves() -> list[Row]:
    """Compare the exact curve of every trace with sweeps of 1000 rates."""
    given, source = traces()
    rb_curve(*given[0])
    sweep(*given[0], np.ones(2))
    sweep_by_map(given[0][0][:9], given[0][1][:9], np.ones(2))
    exact, swept, mapped, worst, requests = [], [], [], 0.0, 0
    for place, (times, work) in enumerate(given):
        mean = work.sum() / (times[-1] - times[0])
        rates = np.linspace(1.0, min(mean, 0.999), RATES)
        bursts = sweep(times, work, rates)
        swept.append(took(lambda t=times, w=work, r=rates: sweep(t, w, r), 1))  # type: ignore[misc]
        exact.append(took(lambda t=times, w=work, r=rates: rb_curve(t, w).burst(r)))  # type: ignore[misc]
        if place % EVERY == 0:
            by_map = took(lambda t=times, w=work, r=rates: sweep_by_map(t, w, r), 1)  # type: ignore[misc]
            mapped.append((by_map, exact[-1], len(times)))
        found = rb_curve(times, work).burst(rates)
        worst = max(worst, float(np.max(np.abs(found / bursts - 1))))
        requests += len(times)
    each = [a / b for a, b in zip(swept, exact, strict=True)]
    note = f"{source}: {requests} requests, {1e3 * sum(exact):.3g} ms against {sum(swept):.3g} s"
    note += f"; a trace {min(each):.0f} to {max(each):.0f} times; the quickest such sweep, no limit"
    slow, quick, some = (sum(column) for column in zip(*mapped, strict=True))
    by_map_note = (
        f"{some} requests, {1e3 * quick:.3g} ms against {slow:.3g} s; a std::map that C++ (g++ "
        "-O2) looks up as often took 0.5 to 0.7 of this one's time"
    )
    return [
        row(
            "r-b curve, times faster than a sweep by a map of buckets",
            slow / quick,
            "times",
            200,
            n=len(mapped),
            note=by_map_note,
            at_least=True,
        ),
        row(
            "r-b curve, times faster than a sweep over arrays, rate by rate",
            sum(swept) / sum(exact),
            "times",
            n=len(given),
            note=note,
        ),
        row("r-b curve, largest relative difference", worst, limit=1e-6, n=len(given) * RATES),
    ]


def tenants(
    count: int, buckets: int, seed: int
) -> tuple[list[plan.PlannedWorkload], dict[str, float]]:
    """Return workloads: a quarter as many clients, a twentieth as many servers, varied SLOs."""
    random = np.random.default_rng(seed)
    servers, clients = max(1, count // 20), max(1, count // 4)
    queues = {f"s{s}:d": 1.0 for s in range(servers)}
    for host in [*(f"s{s}" for s in range(servers)), *(f"c{c}" for c in range(clients))]:
        queues |= {f"{host}->sw": 125e6, f"sw->{host}": 125e6}
    made = []
    for k in range(count):
        server, client = f"s{k % servers}", f"c{k % clients}"
        routes = {
            "network-in": (f"{client}->sw", f"sw->{server}"),
            "storage": (f"{server}:d",),
            "network-out": (f"{server}->sw", f"sw->{client}"),
        }
        shapes = {}
        for stage, scale in (("network-in", 125e6), ("storage", 1.0), ("network-out", 125e6)):
            steps = np.cumprod(np.append(1.0, random.uniform(1.2, 3, buckets - 1)))
            rates = scale * 0.8 * servers / count * random.uniform(0.5, 1) * steps[::-1]
            bursts = scale * random.uniform(1e-3, 5e-3) * steps
            shapes[stage] = Limiters(rates, bursts, 0.0)
        slo = float(random.choice([5.0, 20.0, 60.0, 200.0])) * random.uniform(0.5, 2)
        made.append(plan.PlannedWorkload(f"w{k}", slo, routes, shapes, dict.fromkeys(shapes, 1.0)))
    return made, queues


def plans() -> list[Row]:
    """Time a whole plan, and compare its bounds with linear programs."""
    count, programs = (40, 6) if SMALL else (200, 30)
    given, queues = tenants(count, 8, seed=1)
    plan.make_plan(*tenants(8, 3, seed=2))
    asked: list[tuple[system.System, int, npt.NDArray[np.bool_]]] = []
    bound = system.System.bound

    def recorded(
        self: system.System, flow: int, others: npt.NDArray[np.bool_], *, blocking: bool = False
    ) -> float:
        if not blocking:
            asked.append((self, flow, others.copy()))
        return bound(self, flow, others, blocking=blocking)

    system.System.bound = recorded  # type: ignore[method-assign]
    try:
        made = plan.make_plan(given, queues)
    finally:
        system.System.bound = bound  # type: ignore[method-assign]
    span = took(lambda: plan.make_plan(given, queues), 1)
    random = np.random.default_rng(3)
    chosen = [asked[k] for k in random.choice(len(asked), min(programs, len(asked)), replace=False)]
    spans, ratios = [], []
    for where, flow, others in chosen:
        start = time.process_time()
        exact = lp.bound(where, flow, others)
        spans.append(time.process_time() - start)
        if np.isfinite(exact):
            ratios.append(bound(where, flow, others) / exact - 1)
    met = sum(w.met for w in made.workloads)
    note = f"{met} of {count} SLOs met, {len(asked)} bounds"
    mean_s = statistics.mean(spans)
    return [
        row(f"plan of {count} workloads, 8 buckets, 3 stages", span, "s", 2.0, note=note),
        row(
            "plan, times faster than with the LP",
            mean_s * len(asked) / span,
            "times",
            50,
            n=len(spans),
            note=f"{1e3 * mean_s:.3g} ms a program",
            at_least=True,
        ),
        row(
            "bounds, least excess over the LP",
            min(ratios),
            limit=-1e-7,
            n=len(ratios),
            note=f"largest {max(ratios):.2g}",
            at_least=True,
        ),
    ]


def main() -> None:
    """Print the results."""
    planner = [unmeasured("PriorityMeister's planner", "numba is not installed")]
    if COMPILED:
        planner = curves() + plans()
    show(planner + enforcement.rows() + simulating.rows(small=SMALL))


if __name__ == "__main__":
    main()
