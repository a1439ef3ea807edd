"""Speed of simulated write bursts: compared with SimPy on the paper's case, for the whole of figure
3, and for ten thousand servers with a million processes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from typing import Any

import simpy
from frame import ROOT, Row, against_simpy, answer, equal, not_built, row, show, unmeasured

LEAST = 100.0
MOST_S = 120.0
SEEDS = 5
BURSTS = 100  # one burst is too short to be timed alone

# Paper's case (section III.A), in nanoseconds.
SERVICE, HALF, LINK, PER_NODE = 20_000_000, 2_500_000, 250_000, 8
CASE = {"scheduler": "two-choice", "servers": 1000, "processes": 10_000, "straggler_ratio": 0.1}
LARGE = {"scheduler": "both", "servers": 10_000, "processes": 1_000_000, "straggler_ratio": 0.1}


def simulate(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of `tcsim run`."""
    found: dict[str, Any] = answer("tcsim", "run", request=json.dumps(request))
    return found


def simulate_with_simpy(trace: dict[str, Any]) -> tuple[int, int, float]:
    """Simulate one burst under native two-choice and return three numbers. They are the time of the
    last acknowledgement and the sum over writes, in nanoseconds, and the processor time in seconds.
    `trace`: the servers' loads, and the servers that each node's processes probe, two each."""
    started = time.process_time()
    env = simpy.Environment()
    held = list(trace["loads"])  # pending writes of a server
    servers = [simpy.Resource(env, capacity=1) for _ in held]
    ends: list[int] = []

    def earlier(server: int) -> Generator[simpy.Event, None, None]:
        with servers[server].request() as turn:
            yield turn
            for _ in range(trace["loads"][server]):
                yield env.timeout(SERVICE)
                held[server] -= 1

    def process(first: int, second: int, place: int) -> Generator[simpy.Event, None, None]:
        yield env.timeout(HALF)  # the probes
        loads = held[first], held[second]
        yield env.timeout(HALF)  # the answers
        target = first if loads[0] <= loads[1] else second
        yield env.timeout(place * LINK + HALF)  # the data
        held[target] += 1
        with servers[target].request() as turn:
            yield turn
            yield env.timeout(SERVICE)
        held[target] -= 1
        yield env.timeout(HALF)  # the acknowledgement
        ends.append(int(env.now))

    for server, load in enumerate(trace["loads"]):
        if load:
            env.process(earlier(server))
    for probes in trace["probes"]:
        for place in range(len(probes) // 2):
            env.process(process(probes[2 * place], probes[2 * place + 1], place + 1))
    env.run()
    return max(ends), sum(ends), time.process_time() - started


def against() -> Row:
    """Run the same burst in both, which must agree to the nanosecond."""
    ratios, rates = [], []
    for seed in range(SEEDS):
        one = simulate(CASE | {"seed": seed, "trace": True})
        last, total, simpy_s = simulate_with_simpy(one["trace"])
        ours = one["rounds"][0]
        writes = ours["messages"]["writes"]
        reported = round(ours["response_s"] * 1e9), round(ours["mean_s"] * 1e9)
        equal(seed, (last, round(total / writes)), reported)
        cost = simulate(CASE | {"seed": seed, "rounds": BURSTS})["cost"]
        ratios.append(simpy_s / (cost["cpu_s"] / BURSTS))
        rates.append(1000 * cost["cpu_s"] / BURSTS)
    note = (
        "10,000 processes write 1 MB each to 1,000 servers under native two-choice, the same loads "
        f"and probes in both; {statistics.median(rates):.2f} ms a burst"
    )
    return against_simpy("bursts of writes against SimPy", LEAST, ratios, note)


def figure_3() -> Row:
    """Run the campaign's cells for figure 3 at the paper's size, by the command line."""
    with tempfile.TemporaryDirectory(prefix="hotbed-bench-") as folder:
        words = ["run", "twochoice-full", "--figure", "3", "--artifacts", folder, "--json"]
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "hotbed.cli", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        took = time.monotonic() - started
    runs = json.loads(done.stdout)["result"]["ran"]
    note = (
        f"hotbed run twochoice-full --figure 3: {runs} runs of 10 bursts, after 20 to learn in, on "
        f"{len(os.sched_getaffinity(0))} processors"
    )
    return row("figure 3 of the two-choice paper", round(took, 1), "s", MOST_S, note=note)


def large() -> Row:
    """Simulate a burst of the largest cluster, without a limit."""
    cost = simulate(LARGE | {"seed": 1, "rounds": 2})["cost"]
    note = f"processor time, both strategies; {cost['peak_mib']:.0f} MiB"
    name = "burst of 1,000,000 processes on 10,000 servers"
    return row(name, round(cost["cpu_s"] / 2, 2), "s", note=note)


def main() -> None:
    """Print the rows."""
    if why := not_built("tcsim"):
        show([unmeasured("bursts of writes", why, "times", LEAST)])
    else:
        show([against(), figure_3(), large()])


if __name__ == "__main__":
    main()
