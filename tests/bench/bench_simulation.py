"""Speed of the event kernel relative to SimPy.

Both simulate the same queue of the same customers, alternately, and must report the same waits to
the nanosecond.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

ROOT = Path(__file__).resolve().parents[2]
HOTBEDSIM = ROOT / "dataplane" / "bin" / "hotbedsim"
LEAST = 50.0
CUSTOMERS = 20_000
LOAD = 0.8
MEAN_SERVICE_NS = 10_000_000
ROUNDS = 5
REPEAT = 20  # one run of the kernel is too short to be timed alone


def simulate_with_simpy(gaps: list[int], services: list[int]) -> tuple[int, int, float]:
    """Return the sum of waits and the end, in nanoseconds, and the processor time in seconds."""
    env = simpy.Environment()
    server = simpy.Resource(env, capacity=1)
    waits = 0

    def customer(service: int) -> Iterator[simpy.Event]:
        nonlocal waits
        arrived = env.now
        with server.request() as turn:
            yield turn
            waits += int(env.now - arrived)
            yield env.timeout(service)

    def source() -> Iterator[simpy.Event]:
        for gap, service in zip(gaps, services, strict=True):
            yield env.timeout(gap)
            env.process(customer(service))

    started = time.process_time()
    env.process(source())
    env.run()
    return waits, int(env.now), time.process_time() - started


def simulate_with_kernel(
    gaps: npt.NDArray[np.int64], services: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Return the answer of `hotbedsim queue` (simbridge.ServeQueue)."""
    header = {"customers": len(gaps), "servers": 1, "repeat": REPEAT}
    message = json.dumps(header).encode() + b"\n" + gaps.tobytes() + services.tobytes()
    done = subprocess.run([HOTBEDSIM, "queue"], input=message, capture_output=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    row: dict[str, Any] = {"name": "event kernel against SimPy", "unit": "times", "at_least": True}
    row |= {"limit": LEAST, "n": ROUNDS, "value": None}
    if not HOTBEDSIM.exists():
        print(json.dumps([{**row, "note": f"{HOTBEDSIM} is not built: make setup"}]))
        return
    ratios, rates = [], []
    for seed in range(ROUNDS):
        random = np.random.default_rng(seed)
        services = random.exponential(MEAN_SERVICE_NS, CUSTOMERS).astype("<i8")
        gaps = random.exponential(MEAN_SERVICE_NS / LOAD, CUSTOMERS).astype("<i8")
        waits, end, simpy_s = simulate_with_simpy(gaps.tolist(), services.tolist())
        answer = simulate_with_kernel(gaps, services)
        if (waits, end) != (answer["wait_ns"], answer["end_ns"]):
            raise AssertionError(f"seed {seed}: SimPy {waits}, {end}; the kernel {answer}")
        ratios.append(simpy_s / answer["cpu_s"])
        rates.append(answer["events"] / answer["cpu_s"] / 1e6)
    note = (
        f"processor time of SimPy {simpy.__version__} over the kernel's; {CUSTOMERS} customers of "
        f"one M/M/1 queue at {LOAD:.0%} load, the same in both, median of {ROUNDS} runs in turns "
        f"({min(ratios):.0f} to {max(ratios):.0f}); waits equal to the nanosecond; "
        f"{statistics.median(rates):.1f} million events a second"
    )
    print(json.dumps([{**row, "value": round(statistics.median(ratios), 1), "note": note}]))


if __name__ == "__main__":
    main()
