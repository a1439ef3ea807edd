"""PriorityMeister's simulator against SimPy: the same queue and customers, alternately.

Both must report the same waits to the nanosecond. Both have the customers in memory before their
processor time counts.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy
from frame import Row, against_simpy, answer, not_built, unmeasured

LEAST = 50.0
LOAD = 0.8
MEAN_SERVICE_NS = 10_000_000
PER_BYTE = {"type": "storageConstant", "base": 0, "readBandwidth": 1e9, "writeBandwidth": 1e9}

Times = list[npt.NDArray[np.int64]]


def with_simpy(arrivals: Times, services: Times, *, ranked: bool) -> tuple[int, int, float]:
    """Return the sum of waits and the end in nanoseconds, and processor seconds.

    Each workload has one list of customers. If ranked, an earlier workload goes first (without
    preemption); otherwise service is in order of arrival.
    """
    env = simpy.Environment()
    server = simpy.PriorityResource(env) if ranked else simpy.Resource(env)
    waits = 0

    def customer(rank: int, service: int) -> Iterator[simpy.Event]:
        nonlocal waits
        arrived = env.now
        turn = server.request(priority=rank) if ranked else server.request()
        yield turn
        waits += int(env.now - arrived)
        yield env.timeout(service)
        server.release(turn)

    def source(rank: int, times: list[int], works: list[int]) -> Iterator[simpy.Event]:
        for at, work in zip(times, works, strict=True):
            yield env.timeout(at - env.now)
            env.process(customer(rank, work))

    for rank, (times, works) in enumerate(zip(arrivals, services, strict=True)):
        env.process(source(rank, times.tolist(), works.tolist()))
    started = time.process_time()
    env.run()
    return waits, int(env.now), time.process_time() - started


def scenario(traces: list[Path], *, ranked: bool) -> dict[str, Any]:
    """Return one device on which a byte takes a nanosecond, without a network."""
    names = [trace.stem for trace in traces]
    estimate = {"profile": "ns", "speed": 1}
    return {
        "schema": 1,
        "seed": 1,
        "duration": 0,
        "frame": 0,
        "series": 0,
        "preload": True,
        "profiles": {"ns": PER_BYTE},
        "links": [],
        "devices": [
            {
                "name": "s:d",
                "charged": estimate,
                "service": {**estimate, "noise": 0},
                "parameters": {
                    "policy": "pm" if ranked else "none",
                    "depth": 1,
                    "cake": {},
                    "workloads": [{"name": n, "priority": k} for k, n in enumerate(names, 1)],
                },
            }
        ],
        "workloads": [
            {
                "name": name,
                "trace": str(trace),
                "closed": 0,
                "repeat": False,
                "slo": 0,
                "network": "ns",
                "in": [],
                "device": "s:d",
                "out": [],
            }
            for name, trace in zip(names, traces, strict=True)
        ],
    }


def with_pmsim(arrivals: Times, services: Times, *, ranked: bool) -> tuple[int, int, float]:
    """Return the same values as `with_simpy`."""
    with tempfile.TemporaryDirectory(prefix="hotbed-bench-") as folder:
        traces = []
        for k, (times, works) in enumerate(zip(arrivals, services, strict=True)):
            traces.append(Path(folder) / f"w{k}.csv")
            rows = zip(times.tolist(), works.tolist(), strict=True)
            traces[-1].write_text("".join(f"{at},{work:x},DiskRead\n" for at, work in rows))
        found = answer("pmsim", "run", request=json.dumps(scenario(traces, ranked=ranked)))
    waits = sum(
        round(w["device_wait"]["mean"] * w["device_wait"]["count"] * 1e9)
        for w in found["workloads"]
    )
    return waits, round(found["end"] * 1e9), found["cpu"]


def compare(customers: int, workloads: int, rounds: int, *, ranked: bool) -> list[float]:
    """Return the speed-up of each round."""
    ratios = []
    for seed in range(rounds):
        random = np.random.default_rng(seed)
        arrivals, services = [], []
        for _ in range(workloads):
            count = customers // workloads
            gaps = random.exponential(MEAN_SERVICE_NS / LOAD * workloads, count).astype("<i8")
            gaps[0] = 0  # a trace's time counts from its first request
            arrivals.append(np.cumsum(gaps))
            services.append(random.exponential(MEAN_SERVICE_NS, count).astype("<i8"))
        waits, end, simpy_s = with_simpy(arrivals, services, ranked=ranked)
        ours, our_end, our_s = with_pmsim(arrivals, services, ranked=ranked)
        # A mean is reported as a double, which leaves 15 digits of the sum of all waits.
        if abs(waits - ours) > 1e-12 * waits + workloads or end != our_end:
            raise AssertionError(
                f"seed {seed}: SimPy {waits}, {end}; the simulator {ours}, {our_end}"
            )
        ratios.append(simpy_s / our_s)
    return ratios


def rows(*, small: bool) -> list[Row]:
    """Return the bench's results."""
    cases = (
        ("simulator against SimPy, first come first served", LEAST, 1, False),
        ("simulator against SimPy, three priorities", None, 3, True),
    )
    if why := not_built("pmsim"):
        return [unmeasured(name, why, "times", limit) for name, limit, _, _ in cases]
    customers, rounds = (30_000, 2) if small else (150_000, 5)
    note = f"{customers} customers at {LOAD:.0%} load, the same in both"
    return [
        against_simpy(name, limit, compare(customers, workloads, rounds, ranked=ranked), note)
        for name, limit, workloads, ranked in cases
    ]
