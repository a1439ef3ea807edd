"""Grounds that run experiments: the simulator, and anything else with the same method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from campaigns.papers.prioritymeister.experiment import Experiment
from campaigns.papers.prioritymeister.machines import Machines
from campaigns.papers.prioritymeister.outcome import Outcome, Result

if TYPE_CHECKING:
    from campaigns.papers.prioritymeister.simulated import Results

TOPOLOGY_FILE = "topology.yaml"


class Ground(Protocol):
    """A ground for experiments."""

    @property
    def name(self) -> str:
        """Name: ``sim`` or ``local``."""

    @property
    def machines(self) -> Machines:
        """The ground's machines."""

    def carry_out(self, experiment: Experiment) -> Outcome:
        """Run an experiment to its end.

        Raises:
            HotbedError: the experiment could not run.
        """


class SimGround:
    """Virtual time: the real enforcers on a modelled disk and network."""

    name = "sim"
    machines = Machines()

    def carry_out(self, experiment: Experiment) -> Outcome:
        """See `Ground.carry_out`."""
        from campaigns.papers.prioritymeister.scenario import Closed, Service, Setting, scenario_of
        from campaigns.papers.prioritymeister.simulate import simulate

        told = experiment.enforcement
        announced = {w.name: experiment.base / w.trace for w in experiment.topology.workloads}
        setting = Setting(
            policy=told.policy,
            mode=told.mode,
            depth=told.depth,
            seed=experiment.seed,
            duration_s=experiment.seconds,
            closed={
                name: Closed(in_flight=one.closed)
                for name, one in experiment.replays.items()
                if one.closed
            },
            traces={
                name: one.file
                for name, one in experiment.replays.items()
                if one.file != announced[name]
            },
            service={queue: Service(profile=file) for queue, file in experiment.serves.items()},
            frame=experiment.frame,
            series_s=experiment.window_s,
            cake=told.cake,
            reservations=told.reservations or None,
        )
        file = experiment.base / TOPOLOGY_FILE
        scenario = scenario_of(experiment.topology, file, experiment.plan, setting)
        return outcome_of(simulate(scenario), experiment.window_s)


def outcome_of(results: Results, window_s: float) -> Outcome:
    """Return the simulator's results in the form of every ground."""
    found = {
        one.name: result_of(one.model_dump(mode="json"), window_s) for one in results.workloads
    }
    extra = {"simulated_cpu_s": results.cpu_s, "events": float(results.events)}
    for device in results.devices:
        extra[f"utilisation {device.name}"] = device.utilisation
    for link in results.links:
        extra[f"utilisation {link.name}"] = link.utilisation
    return Outcome(found, extra=extra)


def result_of(told: Mapping[str, Any], window_s: float) -> Result:
    """Return a workload's result from the simulator's."""
    half, whole = told["second_half"], told["whole"]
    latency = half["latency"]
    buckets = np.array(latency["buckets"], np.int64).reshape(-1, 3)
    misses = half["slo_misses"]
    return Result(
        requests=int(half["requests"]),
        misses=None if misses is None else int(misses),
        mean_s=float(latency["mean"]),
        max_s=float(latency["max"]),
        max_whole_s=float(whole["latency"]["max"]),
        low_ns=buckets[:, 0],
        high_ns=buckets[:, 1],
        count=buckets[:, 2],
        bytes=int(half["bytes"]),
        series=_windows(told.get("series") or (), window_s),
    )


def _windows(rows: Sequence[Sequence[float]], window_s: float) -> tuple[tuple[int, int], ...]:
    """Return requests and misses of every window from 0 on; a missing window had none."""
    told = {round(row[0] / window_s): (int(row[1]), int(row[2])) for row in rows}
    return tuple(told.get(index, (0, 0)) for index in range(max(told, default=-1) + 1))
