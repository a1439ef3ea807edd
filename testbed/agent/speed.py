"""Verb: the speed of the admin node's processor, by a fixed unit of work."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from testbed.agent.contract import AgentConfig

MEASURED_S = 0.25
"""Processor seconds of a measurement. 24 on one busy machine gave 534 to 575 units a second; on the
same machine, quiet, 646 to 728."""
REFERENCE_UNITS_S = 550.0
"""Speed of a spec's nominal core: the middle of the busy ones (docs/mos.md)."""


def work() -> str:
    """Do a unit of work like a server's: parse and print JSON, and hash; return the hash."""
    data = {str(number): number * 1.5 for number in range(200)}
    found = ""
    for _ in range(20):
        text = json.dumps(data)
        found = hashlib.sha256(text.encode() * 20).hexdigest()
        data = json.loads(text)
    return found


def core_speed(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, float]:
    """Measure the speed: {} -> {units_s}; see `measured_units_s`."""
    return {"units_s": measured_units_s()}


def measured_units_s() -> float:
    """Return the measured speed of this machine: units of work in a second of one core. A limit on
    the node's cores changes the time that it takes, not the result."""
    work()
    units, began = 0, time.process_time()
    while (spent := time.process_time() - began) < MEASURED_S:
        work()
        units += 1
    return units / spent
