"""Observations for a policy and for the journal, at the cost of the changes only.

A store returns an OSD or PG as the same object while it has not changed. A step of a large cluster
changes few of them, so the results for all others are kept. The results equal those of
`observation_to_json` and `observation_from_json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from controllers.journal import Json, encode, joined
from testbed.stores.contract import (
    Observation,
    observation_from_json,
    observation_to_json,
    osd_from_json,
    osd_to_json,
    pg_from_json,
    pg_to_json,
)

Given = TypeVar("Given")
Made = TypeVar("Made")
Row = tuple[dict[str, Any], Json]


class Each(Generic[Given, Made]):
    """`function` of every item of a sequence, called again only for items that are not the same
    objects as at the previous call. Nobody may change items or results."""

    def __init__(self, function: Callable[[Given], Made]) -> None:
        self._function = function
        self._given: Sequence[Given] = ()
        self._made: list[Made] = []

    def __call__(self, given: Sequence[Given]) -> list[Made]:
        """Return the results, in order. An error in `function` leaves everything as it was."""
        if given is not self._given:
            function = self._function
            before = zip(given, self._given, self._made, strict=False)
            made = [kept if new is old else function(new) for new, old, kept in before]
            made += map(function, given[len(made) :])
            self._given, self._made = given, made
        return self._made


@dataclass(frozen=True)
class Seen:
    """Observation, the same as JSON-able data, and as JSON text."""

    observation: Observation
    data: Mapping[str, Any]
    text: Json


class Encoder:
    """Encoder of a loop's successive observations into `Seen`."""

    def __init__(self) -> None:
        self._osds: Each[Any, Row] = Each(lambda osd: _row(osd_to_json(osd)))
        self._pgs: Each[Any, Row] = Each(lambda pg: _row(pg_to_json(pg)))

    def __call__(self, observation: Observation) -> Seen:
        """Encode `observation`; raise ValueError or TypeError if JSON cannot represent it."""
        osds, pgs = self._osds(observation.osds), self._pgs(observation.pgs)
        data = observation_to_json(observation, [row for row, _ in osds], [row for row, _ in pgs])
        return Seen(observation, data, joined(data | {"osds": _list(osds), "pgs": _list(pgs)}))


def _row(row: dict[str, Any]) -> Row:
    return row, encode(row)


def _list(rows: Sequence[Row]) -> Json:
    return Json("[" + ",".join([text for _, text in rows]) + "]")


class Reader:
    """Decoder of `Seen.data`, on the policy's side."""

    def __init__(self) -> None:
        self._osds = Each(osd_from_json)
        self._pgs = Each(pg_from_json)

    def __call__(self, data: Mapping[str, Any]) -> Observation:
        """Return the same as `observation_from_json`."""
        osds, pgs = tuple(self._osds(data["osds"])), tuple(self._pgs(data["pgs"]))
        return observation_from_json(data, osds, pgs)
