"""Migration of records of earlier versions of Hotbed: the only place that guesses a kind."""

from __future__ import annotations

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
    "mos": {
        "setup": {"mos-pp": "mos-pp-learning"},
        "policy": {"mos-pp": "mos-pp-learning"},
    },
}
"""Present names of values that versions 1 and 2 of a run called otherwise, by kind and
parameter."""


def current(run: Any) -> Any:
    """Return the content of a run.json in the current version. ValueError: a run of version 1 is of
    no known kind."""
    if not isinstance(run, Mapping) or run.get("schema_version") not in (1, 2):
        return run
    parameters = run.get("parameters")
    names = parameters if isinstance(parameters, Mapping) else {}
    if run["schema_version"] == 2:
        if names:
            run = {**run, "parameters": _renamed(str(run.get("kind")), names)}
        return {**run, "schema_version": 3}
    kinds = [kind for mark, kind in _MARKS.items() if mark in names]
    if len(kinds) != 1:
        raise ValueError("parameters: a run of version 1 has those of one kind of campaign")
    own = cells_of(kinds[0], str(run.get("ground"))).current(_renamed(kinds[0], names))
    return {**run, "schema_version": 3, "kind": kinds[0], "parameters": own}


def _renamed(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    renamed = _RENAMED.get(kind, {})
    return {
        name: renamed[name].get(value, value) if name in renamed else value
        for name, value in parameters.items()
    }
