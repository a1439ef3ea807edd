"""Duration of a reconfiguration of Swift microstores: from the decision until every node reports
the shares in force, as in a step of a controller on the admin node.

The bench needs a running testbed with a deployed Swift; without one the row says how to get it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
NAME = "Swift microstores, a reconfiguration applied (slowest)"
LIMIT_S = 1.0
TIMES = 6 if os.environ.get("HOTBED_BENCH_SMALL") else 40


def main() -> None:
    """Print the rows."""
    row: dict[str, object] = {"name": NAME, "value": None, "unit": "s", "limit": LIMIT_S, "n": 0}
    try:
        row |= measured()
    except LookupError as error:
        row["note"] = str(error)
    print(json.dumps([row]))


def measured() -> dict[str, object]:
    """Return the slowest of many changes, in seconds.

    Raises:
        LookupError: no testbed is available.
    """
    from schemas.errors import HotbedError
    from testbed.choose import existing
    from testbed.client import agent_client

    hint = "hotbed up testbed/specs/mos-quick.yaml && hotbed deploy"
    for site, name in existing():
        testbed = site.find(name)
        if testbed is None or not testbed.with_role("proxy"):
            continue
        try:
            found = agent_client(testbed).call(
                "swift-reconfigure", {"times": TIMES}, timeout_s=TIMES + 60
            )
        except HotbedError as error:
            raise LookupError(f"testbed {name}: {error}") from error
        seconds = sorted(found["seconds"])
        median = seconds[len(seconds) // 2]
        return {"value": seconds[-1], "n": len(seconds), "note": f"median {median * 1e3:.0f} ms"}
    raise LookupError(f"no testbed with Swift is up: {hint}")


if __name__ == "__main__":
    main()
