"""Load on machines from outside the testbed, from each machine's own counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.sites.contract import MachineUsage

_PARTS = ("all", "busy", "steal", "kernel", "ours")
_CONTAINER = "container "


def counters(answers: Mapping[str, Mapping[str, Any]], now: float) -> dict[str, float]:
    """Return counters in seconds by ``part:node`` (`hostside.usage` of every node), and ``wall``.

    Args:
        answers: answer of every node.
        now: seconds on a clock that is never set.
    """
    found = {"wall": now}
    for node, answer in answers.items():
        found |= {f"{part}:{node}": answer[part] for part in _PARTS}
        found |= {f"{_CONTAINER}{name}:{node}": used for name, used in answer["containers"].items()}
    return found


def between(before: Mapping[str, float], after: Mapping[str, float]) -> MachineUsage:
    """Return the load between two readings of `counters`.

    `steal` is the largest share of any machine: one slow node slows a store down.
    """
    delta = {key: after[key] - before.get(key, 0.0) for key in after}
    interval = max(delta["wall"], 1e-9)
    nodes = [key.removeprefix("all:") for key in after if key.startswith("all:")]
    outside = sum(
        max(delta[f"busy:{node}"] - delta[f"kernel:{node}"] - _ours(delta, node), 0.0)
        for node in nodes
    )
    steal = [
        max(delta[f"steal:{node}"], 0.0) / delta[f"all:{node}"]
        for node in nodes
        if delta[f"all:{node}"] > 0
    ]
    return MachineUsage(
        interval_s=delta["wall"],
        outside_cores=outside / interval,
        steal=min(max(steal, default=0.0), 1.0),
        node_cores={node: max(delta[f"busy:{node}"], 0.0) / interval for node in nodes},
    )


def _ours(delta: Mapping[str, float], node: str) -> float:
    """Return the node's own load; a container that ended in between counts as nothing."""
    inside = (
        used
        for key, used in delta.items()
        if key.startswith(_CONTAINER) and key.endswith(f":{node}")
    )
    return delta[f"ours:{node}"] + sum(inside)
