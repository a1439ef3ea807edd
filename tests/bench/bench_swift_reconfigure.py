"""Duration of a reconfiguration of Swift microstores: from the decision until every node reports
the shares in force, as in a step of a controller on the admin node.

The bench needs a running testbed with a deployed Swift; without one the row says how to get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frame import SMALL, row, show, unmeasured, with_store

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

NAME = "Swift microstores, a reconfiguration applied (slowest)"
LIMIT_S = 1.0
TIMES = 6 if SMALL else 40


def changes(testbed: Testbed) -> list[float]:
    """Return the seconds of many changes, ascending."""
    from testbed.client import agent_client

    agent = agent_client(testbed)
    found = agent.call("swift-reconfigure", {"times": TIMES}, timeout_s=TIMES + 60)
    return sorted(found["seconds"])


def main() -> None:
    """Print the row."""
    try:
        seconds = with_store("proxy", changes, "testbed/specs/mos-quick.yaml")
    except LookupError as error:
        show([unmeasured(NAME, str(error), "s", LIMIT_S)])
        return
    note = f"median {seconds[len(seconds) // 2] * 1e3:.0f} ms"
    show([row(NAME, seconds[-1], "s", LIMIT_S, n=len(seconds), note=note)])


if __name__ == "__main__":
    main()
