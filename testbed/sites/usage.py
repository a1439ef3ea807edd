"""Load on machines from outside the testbed, from two readings of their counters.

Counters are in seconds: ``wall``; ``node:N`` of each node; and of each machine M, ``all:M``,
``busy:M``, ``steal:M``, ``kernel:M`` (kernel threads, which belong to nobody) and those that begin
with ``ours`` (the testbed's own).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.sites.contract import MachineUsage


def of_machines(answers: Mapping[str, Mapping[str, Any]], now: float) -> dict[str, float]:
    """Return the counters from the answers of `inventory.hostside.usage` by node. `now`: time on a
    clock that is never set."""
    found = {"wall": now}
    for node, answer in answers.items():
        parts = ("all", "busy", "steal", "kernel", "ours")
        found |= {f"{part}:{node}": answer[part] for part in parts}
        found |= {f"ours {name}:{node}": used for name, used in answer["containers"].items()}
        found[f"node:{node}"] = answer["busy"]
    return found


def between(before: Mapping[str, float], after: Mapping[str, float]) -> MachineUsage:
    """Return the load between two readings.

    `steal` is the largest share of any machine: one slow node slows a store down. A container that
    ended in between counts as nothing.
    """
    delta = {key: after[key] - before.get(key, 0.0) for key in after}
    interval = max(delta["wall"], 1e-9)
    outside = steal = 0.0
    for machine in _named("all", after):
        end = f":{machine}"
        ours = sum(
            used for key, used in delta.items() if key.startswith("ours") and key.endswith(end)
        )
        outside += max(delta[f"busy{end}"] - delta[f"kernel{end}"] - ours, 0.0)
        if delta[f"all{end}"] > 0:
            steal = max(steal, delta[f"steal{end}"] / delta[f"all{end}"])
    return MachineUsage(
        interval_s=delta["wall"],
        outside_cores=outside / interval,
        steal=min(steal, 1.0),
        node_cores={
            node: max(delta[f"node:{node}"], 0.0) / interval for node in _named("node", after)
        },
    )


def _named(part: str, counters: Mapping[str, float]) -> list[str]:
    return [key.removeprefix(f"{part}:") for key in counters if key.startswith(f"{part}:")]
