"""Speed of the event kernel relative to SimPy.

Both simulate the same queue of the same customers, alternately, and must report the same waits to
the nanosecond.
"""

from __future__ import annotations

import json
import statistics

import numpy as np
from frame import against_simpy, answer, equal, not_built, show, unmeasured
from simulating import LEAST, LOAD, MEAN_SERVICE_NS, with_simpy

NAME = "event kernel against SimPy"
CUSTOMERS = 20_000
ROUNDS = 5
REPEAT = 20  # one run of the kernel is too short to be timed alone


def main() -> None:
    """Print the result of `hotbedsim queue` (serveQueue)."""
    if why := not_built("hotbedsim"):
        show([unmeasured(NAME, why, "times", LEAST)])
        return
    header = json.dumps({"customers": CUSTOMERS, "servers": 1, "repeat": REPEAT}).encode()
    ratios, rates = [], []
    for seed in range(ROUNDS):
        random = np.random.default_rng(seed)
        services = random.exponential(MEAN_SERVICE_NS, CUSTOMERS).astype("<i8")
        gaps = random.exponential(MEAN_SERVICE_NS / LOAD, CUSTOMERS).astype("<i8")
        waits, end, simpy_s = with_simpy([np.cumsum(gaps)], [services], ranked=False)
        request = header + b"\n" + gaps.tobytes() + services.tobytes()
        found = answer("hotbedsim", "queue", request=request)
        equal(seed, (waits, end), (found["wait_ns"], found["end_ns"]))
        ratios.append(simpy_s / found["cpu_s"])
        rates.append(found["events"] / found["cpu_s"] / 1e6)
    note = (
        f"{CUSTOMERS} customers of one M/M/1 queue at {LOAD:.0%} load, the same in both; "
        f"{statistics.median(rates):.1f} million events a second"
    )
    show([against_simpy(NAME, LEAST, ratios, note)])


if __name__ == "__main__":
    main()
