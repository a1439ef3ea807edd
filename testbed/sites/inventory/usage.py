"""Load on machines from outside the testbed, from each machine's own counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.sites.contract import MachineUsage

_PARTS = ("all", "busy", "steal", "kernel", "ours")
_CONTAINER = "container "


def counters(answers: Mapping[str, Mapping[str, Any]], now: float) -> dict[str, float]:
    """Return counters in seconds by ``part:node``, from the answers of `hostside.usage` by node,
    and ``wall``: `now` on a clock that is never set."""
    found = {"wall": now}
    for node, answer in answers.items():
        found |= {f"{part}:{node}": answer[part] for part in _PARTS}
        found |= {f"{_CONTAINER}{name}:{node}": used for name, used in answer["containers"].items()}
    return found


def between(before: Mapping[str, float], after: Mapping[str, float]) -> MachineUsage:
    """Return the load between two readings of `counters`.

    `steal` is the largest share of any machine: one slow node slows a store down. A container that
    ended in between counts as nothing.
    """
    delta = {key: after[key] - before.get(key, 0.0) for key in after}
    interval = max(delta["wall"], 1e-9)
    outside, steal, cores = 0.0, 0.0, {}
    for node in (key.removeprefix("all:") for key in after if key.startswith("all:")):
        ours = delta[f"ours:{node}"] + sum(
            used
            for key, used in delta.items()
            if key.startswith(_CONTAINER) and key.endswith(f":{node}")
        )
        outside += max(delta[f"busy:{node}"] - delta[f"kernel:{node}"] - ours, 0.0)
        if delta[f"all:{node}"] > 0:
            steal = max(steal, delta[f"steal:{node}"] / delta[f"all:{node}"])
        cores[node] = max(delta[f"busy:{node}"], 0.0) / interval
    return MachineUsage(
        interval_s=delta["wall"],
        outside_cores=outside / interval,
        steal=min(steal, 1.0),
        node_cores=cores,
    )
