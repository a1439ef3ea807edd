"""new-controller: directs reads away from the OSDs of busy nodes, by primary affinity.

This controller works; replace `decide` with your own. The rules are in docs/controllers.md. Most
important: `decide` must be pure (no clock, no files, no randomness except from `seed`).
"""

from dataclasses import dataclass

from controllers.common.affinity import changes, sensed
from controllers.common.parameters import mapping, number, read
from testbed.stores.contract import OSDS, PRESSURE, PRIMARY_AFFINITY, Needs


@dataclass(frozen=True)
class NewControllerParameters:
    busy: float = number(60.0, 0, 100, "pressure, percent, above which an OSD gives reads away")
    calm: float = number(30.0, 0, 100, "pressure, percent, below which it gets them back")
    affinity: float = number(0.3, 0, 1, "primary affinity while it is busy")


class NewControllerPolicy:
    name = "new-controller"  # the folder's name, with - for _
    needs = Needs(senses=frozenset({PRESSURE, OSDS}), acts=frozenset({PRIMARY_AFFINITY}))

    def __init__(self, parameters):
        self._p = parameters

    def parameters(self):
        return mapping(self._p)

    def initial(self):
        return {"steps": 0}  # the state before the first step: any JSON value

    def decide(self, state, observation):
        wanted = {}
        for osd, pressure in sensed(observation).values():  # up, in, and the node answered
            if pressure > self._p.busy:
                wanted[osd.id] = self._p.affinity
            elif pressure < self._p.calm:
                wanted[osd.id] = 1.0
        return {"steps": state["steps"] + 1}, changes(observation, wanted)


def create(parameters, seed):
    return NewControllerPolicy(read(NewControllerParameters, "new-controller", parameters))
