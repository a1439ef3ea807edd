"""Policy that changes every OSD's affinity in every step: the most that DLR can do in one step."""

from __future__ import annotations

from testbed.stores.contract import OSDS, PRESSURE, PRIMARY_AFFINITY, Needs, SetPrimaryAffinity


class Toggle:
    """Policy that alternates between 0.9 and 1."""

    name = "toggle"
    needs = Needs(frozenset({PRESSURE, OSDS}), frozenset({PRIMARY_AFFINITY}))

    def parameters(self):
        """Return no parameters."""
        return {}

    def initial(self):
        """Return the initial state: the next value is low."""
        return {"low": True}

    def decide(self, state, observation):
        """Change every OSD."""
        value = 0.9 if state["low"] else 1.0
        return {"low": not state["low"]}, [
            SetPrimaryAffinity(osd.id, value) for osd in observation.osds
        ]


def create(parameters, seed):
    """Return the policy."""
    return Toggle()
