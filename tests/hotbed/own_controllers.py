"""Student's controller in a folder outside the repository."""

from __future__ import annotations

from pathlib import Path

SHY = '''"""Gives reads away while its node is busier than the others."""

from controllers.common.affinity import changes, sensed
from testbed.stores.contract import OSDS, PRESSURE, PRIMARY_AFFINITY, Needs


class Shy:
    name = "shy"
    needs = Needs(senses=frozenset({PRESSURE, OSDS}), acts=frozenset({PRIMARY_AFFINITY}))

    def parameters(self):
        return {}

    def initial(self):
        return {}

    def decide(self, state, observation):
        seen = sensed(observation)
        if not seen:
            return state, []
        mean = sum(pressure for _, pressure in seen.values()) / len(seen)
        wanted = {
            number: 0.2 if pressure > mean + 20 else 1.0
            for number, (_, pressure) in seen.items()
        }
        return state, changes(observation, wanted)


def create(parameters, seed):
    return Shy()
'''


def write_shy(folder: Path) -> Path:
    """Write the controller `shy` into `folder` and return the value for --controllers-dir."""
    assert len([line for line in SHY.splitlines() if line.strip()]) <= 30
    (folder / "shy").mkdir(parents=True)
    (folder / "shy" / "policy.py").write_text(SHY)
    return folder


SPY = """
import json, os, pathlib, socket, sys

def attempt(what):
    try:
        return str(what())
    except Exception as error:
        return type(error).__name__

FOUND = {
    "uid": os.getuid(),
    "secret": os.environ.get("OS_PASSWORD", "none"),
    "mark": attempt(lambda: pathlib.Path(MARK).write_text("loaded")),
    "home": attempt(lambda: os.listdir(HOME)),
    "fork": attempt(os.fork),
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", PORT), 2)),
}
print("\\x1b[2Jpolicy", file=sys.stderr)
"""


def spy(marked: Path, port: int = 9) -> str:
    """Return a policy that inspects the machine when imported, and declares its findings."""
    head = f"MARK, HOME, PORT = {str(marked)!r}, {str(Path.home())!r}, {port}\n{SPY}"
    return head + SHY.replace("return {}\n", "return dict(FOUND)\n", 1)
