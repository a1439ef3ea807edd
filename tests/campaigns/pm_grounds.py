"""Ground that answers at once with chosen latencies, to test their evaluation."""

from __future__ import annotations

import numpy as np

from campaigns.papers.prioritymeister.experiment import Experiment
from campaigns.papers.prioritymeister.machines import Machines
from campaigns.papers.prioritymeister.outcome import Outcome, Result, histogram

REQUESTS = 20_000


def result_of(latencies_s: np.ndarray, slo_s: float | None) -> Result:
    """Return the result of a workload with these latencies, all in the measured half."""
    ns = np.round(latencies_s * 1e9).astype(np.int64)
    low, high, count = histogram(ns)
    misses = None if slo_s is None else int((latencies_s > slo_s).sum())
    return Result(
        requests=len(ns),
        misses=misses,
        mean_s=float(latencies_s.mean()),
        max_s=float(latencies_s.max()),
        max_whole_s=float(latencies_s.max()),
        low_ns=low,
        high_ns=high,
        count=count,
        bytes=len(ns) << 16,
        series=((len(ns) // 2, 0), (len(ns) // 2, misses or 0)),
    )


class FakeGround:
    """Fake latencies: 1 ms to `longest` for a workload alone, and `factor` times as long with other
    workloads."""

    name = "sim"

    def __init__(self, factor: float = 1.5, machines: Machines | None = None) -> None:
        self.machines = machines or Machines()
        self.factor = factor
        self.carried: list[Experiment] = []

    def carry_out(self, experiment: Experiment) -> Outcome:
        """See `campaigns.papers.prioritymeister.ground.Ground`."""
        self.carried.append(experiment)
        results = {}
        many = len(experiment.replays) > 1
        for index, workload in enumerate(experiment.topology.workloads):
            longest = 0.01 * (1 + index) * (self.factor if many else 1.0)
            latencies = np.linspace(0.001, longest, REQUESTS)
            results[workload.name] = result_of(latencies, workload.slo.latency)
        return Outcome(results, extra={"utilisation": 0.5}, logs={"note.txt": "made up\n"})
