"""Time of COSPerf for the fourteen hours of section 8.2, under the real control loop."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from frame import row, show

from campaigns.papers.mos.profile.simulator import FITTED
from campaigns.papers.mos.simulated import (
    averages,
    constants,
    profiled,
    simulate,
)
from schemas.cells.mos import COSPERF
from testbed.simulated.cosperf.machines import paper_pool, total
from testbed.simulated.cosperf.stages import paper_stages
from testbed.simulated.cosperf.store import SimulatedMicrostores

MOST_S = 5.0
SEEDS = (1, 2, 3)


def once(policy: str, seed: int) -> float:
    """Return the processor seconds of all stages, including decisions and journal."""
    parameters = COSPERF.of(policy=policy)
    judge, model = constants(parameters.profile, "disjoint", seed)
    hosts = paper_pool(seed)
    cospurf = profiled(model, total(hosts), seed)
    with tempfile.TemporaryDirectory() as name:
        started = time.process_time()
        store = SimulatedMicrostores(hosts, paper_stages(seed), constants=judge)
        simulate(store, parameters, cospurf, seed, Path(name))
        took = time.process_time() - started
    assert averages(store.series() | {"minutes": parameters.minutes})["A_requests_s"] > 0
    return took


def main() -> None:
    """Print the results."""
    rows = []
    for policy, name in (("mos", "MOS"), ("mos-pp", "MOS++")):
        seconds = [once(policy, seed) for seed in SEEDS]
        note = (
            f"50 machines, 280 epochs of 100 slots; worst {max(seconds):.2f} s of processor time; "
            f"{len(FITTED)} constants from runs were fitted before"
        )
        about = f"14 hours of COSPerf under {name}"
        rows.append(row(about, statistics.median(seconds), "s", MOST_S, n=len(seconds), note=note))
    show(rows)


if __name__ == "__main__":
    main()
