"""COSPerf (MOS, section 8.2): microstores on a pool of unequal machines, modelled analytically on
virtual time. The real control loop and the real policies drive it, like any simulated store. No
result is a measurement."""

from testbed.simulated.cosperf.machines import (
    CLASSES,
    Constants,
    ObjectClass,
    ReconfigurationCosts,
    SimulatedHost,
    paper_pool,
)
from testbed.simulated.cosperf.stages import LoadCurve, paper_stages
from testbed.simulated.cosperf.store import SimulatedMicrostores

__all__ = [
    "CLASSES",
    "Constants",
    "LoadCurve",
    "ObjectClass",
    "ReconfigurationCosts",
    "SimulatedHost",
    "SimulatedMicrostores",
    "paper_pool",
    "paper_stages",
]
