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


def current(run: Any) -> Any:
    """Return the content of a run.json in the current version. ValueError: a run of version 1 is of
    no known kind."""
    if not isinstance(run, Mapping) or run.get("schema_version") != 1:
        return run
    parameters = run.get("parameters")
    names = parameters if isinstance(parameters, Mapping) else {}
    kinds = [kind for mark, kind in _MARKS.items() if mark in names]
    if len(kinds) != 1:
        raise ValueError("parameters: a run of version 1 has those of one kind of campaign")
    own = cells_of(kinds[0], str(run.get("ground"))).current(names)
    return {**run, "schema_version": 2, "kind": kinds[0], "parameters": own}
