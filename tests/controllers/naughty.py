"""Controllers that misbehave, written as folders outside the repository."""

from __future__ import annotations

from pathlib import Path

HEAD = """
import time, os
from testbed.stores.contract import *

class Policy:
    name = "{name}"
    needs = Needs(frozenset({{PRESSURE, OSDS}}), frozenset({{PRIMARY_AFFINITY}}))
    def parameters(self): return {{}}
    def initial(self): return {{"n": 0}}
    def decide(self, state, observation):
        n = state["n"]
        if n < {good}:
            return {{"n": n + 1}}, [SetPrimaryAffinity(n, 0.5)]
        {bad}

def create(parameters, seed):
    return Policy()
"""


def write(folder: Path, name: str, bad: str, good: int = 2) -> Path:
    """Write a controller with `good` correct decisions followed by `bad`; return its directory."""
    home = folder / name.replace("-", "_")
    home.mkdir(parents=True)
    (home / "policy.py").write_text(HEAD.format(name=name, bad=bad, good=good))
    return folder
