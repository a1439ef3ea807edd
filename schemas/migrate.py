"""Migration of records of earlier versions of Hotbed: the only place that guesses a kind."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from schemas.campaign import Kind
from schemas.cells import cells_of

_MARKS: dict[str, Kind] = {
    "op": "dlr",
    "partitions": "ursa",
    "processes_per_node": "twochoice",
    "schedulers": "twochoice-objects",
    "slo_percentile": "prioritymeister",
    "slim_mbit": "mos",
    "cost_factor": "mos",
}
"""Kind by a parameter that every version-1 run of the kind has, and no other kind."""


_RENAMED: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    # The controller `ursa` took the nearest OSD with room unless a programme found a cheaper plan.
    "dlr": {"controller": {"ursa": "nearest"}},
    "mos": {
        "setup": {"mos-pp": "mos-pp-learning"},
        "policy": {"mos-pp": "mos-pp-learning"},
    },
    "ursa": {
        "method": {"alp": "alp-fast", "algorithm1": "algorithm1-pruned", "greedy": "nearest"},
    },
}
"""Present names of values that versions 1 and 2 of a run called otherwise, by kind and
parameter."""

_OF_POLICY: Mapping[str, Mapping[str, str]] = {"prioritymeister": {"cake_upper": "cake"}}
"""Parameters of one policy whose default changed after version 2, by kind: runs of other policies
recorded the former default, which had no effect."""


def current(run: Any) -> Any:
    """Return the content of a run.json in the current version. ValueError: a run of version 1 is of
    no known kind."""
    if not isinstance(run, Mapping) or run.get("schema_version") not in (1, 2):
        return run
    parameters = run.get("parameters")
    names = parameters if isinstance(parameters, Mapping) else {}
    if run["schema_version"] == 2:
        if names:
            run = {**run, "parameters": _present(str(run.get("kind")), names)}
        return {**run, "schema_version": 3}
    kinds = [kind for mark, kind in _MARKS.items() if mark in names]
    if len(kinds) != 1:
        raise ValueError("parameters: a run of version 1 has those of one kind of campaign")
    own = cells_of(kinds[0], str(run.get("ground"))).current(_present(kinds[0], names))
    return {**run, "schema_version": 3, "kind": kinds[0], "parameters": own}


def _present(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    renamed, of_policy = _RENAMED.get(kind, {}), _OF_POLICY.get(kind, {})
    policy = parameters.get("policy")
    return {
        name: renamed[name].get(value, value) if name in renamed else value
        for name, value in parameters.items()
        if of_policy.get(name, policy) == policy
    }


_OLD_EFFECTS = {
    "reproduced": "confirmed",
    "direction": "confirmed",
    "not reproduced": "contradicted",
}
_OLD_KINDS = {"s": "seconds", "ms": "seconds", "rank correlation": "order", "share": "share"}
_OLD_RANGES = {"share": (0.0, 1.0), "ratio": (0.0, math.inf), "ms": (0.0, math.inf)}
"""Ranges that intervals of older claims left, by unit."""


def current_claim(entry: Any) -> Any:
    """Return an entry of claims.json in the current form. Entries with a ``verdict`` name the rule
    ``kind``, and ``size`` is True if a size was judged; they do not say who makes the statement, so
    that only those with the paper's value count as stated."""
    if not isinstance(entry, Mapping) or "verdict" not in entry:
        return entry
    found = dict(entry)
    verdict, sized = found.pop("verdict"), bool(found.pop("size", False))
    unit, stated = str(found["unit"]), found["paper_value"]
    effect = _OLD_EFFECTS.get(verdict, verdict)
    found |= {"rule": found["kind"], "effect": effect, "sized": sized, "stated": stated is not None}
    found["size"] = _old_size(found, verdict)
    if unit.startswith("share") and "difference" not in unit:
        unit = "share"
    found |= {"unit": unit, "kind": _OLD_KINDS.get(unit, "ratio")}
    if (interval := found.get("ci95")) is not None:
        least, most = _OLD_RANGES.get(unit, (-math.inf, math.inf))
        interval = [max(least, interval[0]), min(most, interval[1])]
        found["ci95"] = interval if interval[0] < interval[1] else None
    if found.get("baseline") is not None:
        found["baseline"] = re.sub(r"[^A-Za-z0-9.+-]+", "-", found["baseline"]).strip("-+.")
    return found


def _old_size(found: Mapping[str, Any], verdict: str) -> str:
    """Return the size of an entry with a verdict."""
    sized = found["sized"] and found["paper_value"] is not None
    if verdict == "reproduced":
        return "within tolerance" if sized else "not stated"
    if not sized:  # without a size, only a simulated claim was a direction
        return "not comparable" if verdict == "direction" else "not stated"
    if verdict == "not run" or found.get("ground") != "chameleon":
        return "not comparable"
    none = found.get("no_effect") or 0.0
    larger = abs(found["measured"] - none) > abs(found["paper_value"] - none)
    return "larger" if larger else "smaller"
