"""Changes the affinity of every OSD in every step: the most that DLR can do in one step."""

from __future__ import annotations

from testbed.stores.contract import OSDS, PRESSURE, PRIMARY_AFFINITY, Needs, SetPrimaryAffinity


class Toggle:
    """0.9 and 1 in turn."""

    name = "toggle"
    needs = Needs(frozenset({PRESSURE, OSDS}), frozenset({PRIMARY_AFFINITY}))

    def parameters(self):
        """None."""
        return {}

    def initial(self):
        """The next one is low."""
        return {"low": True}

    def decide(self, state, observation):
        """Every OSD."""
        value = 0.9 if state["low"] else 1.0
        return {"low": not state["low"]}, [
            SetPrimaryAffinity(osd.id, value) for osd in observation.osds
        ]


def create(parameters, seed):
    """The policy."""
    return Toggle()
