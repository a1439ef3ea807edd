"""Stores modelled on virtual time (dataplane/sim): the senses and changes of a real store, at any
scale, without root. No result is a measurement; every output says ``simulated``."""

from testbed.simulated.benchmark import Benchmark, BenchmarkResult, BenchmarkSecond, SampleRow
from testbed.simulated.clock import SimulatedClock
from testbed.simulated.parameters import (
    MODEL_VERSION,
    ModelParameters,
    load_parameters,
    placement_groups,
    scaled,
)
from testbed.simulated.store import SimulatedCeph

__all__ = [
    "MODEL_VERSION",
    "Benchmark",
    "BenchmarkResult",
    "BenchmarkSecond",
    "ModelParameters",
    "SampleRow",
    "SimulatedCeph",
    "SimulatedClock",
    "load_parameters",
    "placement_groups",
    "scaled",
]
