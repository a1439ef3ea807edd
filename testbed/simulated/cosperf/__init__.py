"""COSPerf (MOS, section 8.2): microstores on a pool of unequal machines, modelled analytically on
virtual time. The real control loop and the real policies drive it, like any simulated store. No
result is a measurement."""

from testbed.simulated.cosperf.classes import CLASSES, ObjectClass
from testbed.simulated.cosperf.constants import Constants, Costs
from testbed.simulated.cosperf.machines import Host, paper_pool
from testbed.simulated.cosperf.stages import Load, paper_stages
from testbed.simulated.cosperf.store import SimulatedMicrostores

__all__ = [
    "CLASSES",
    "Constants",
    "Costs",
    "Host",
    "Load",
    "ObjectClass",
    "SimulatedMicrostores",
    "paper_pool",
    "paper_stages",
]
