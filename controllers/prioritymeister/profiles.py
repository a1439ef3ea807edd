"""Reader and checks of a device's profile (JSON); docs/prioritymeister.md gives the format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from controllers.common.numbers import keys_of, number_of
from controllers.prioritymeister.estimators import (
    ConstantProfile,
    DistanceProfile,
    DistanceTable,
    NetworkCost,
    Overhead,
    SizeProfile,
    StageCosts,
    StorageProfile,
)
from schemas.durable import read_json
from schemas.errors import UserError, not_allowed

Floats = npt.NDArray[np.float64]

_NETWORK_KEYS = {
    "dataConstant": "data_constant",
    "dataFactor": "data_factor",
    "nonDataConstant": "other_constant",
    "nonDataFactor": "other_factor",
}
_OVERHEAD_KEYS = {"request": "request", "latency": "latency"}


def load_profile(path: Path) -> StageCosts:
    """Return the profile in a JSON file.

    Raises:
        UserError: it cannot be read, or one sentence on the mistake in it.
    """
    return parse_profile(read_document(path), f"profile {path}")


def read_document(path: Path) -> object:
    """Return the unchecked JSON of a profile's file; raise UserError if it cannot be read."""
    return read_json(path, f"profile {path}")


def parse_profile(document: object, where: str = "profile") -> StageCosts:
    """Return the profile in a JSON document; `where` begins each message."""
    if not isinstance(document, Mapping):
        raise UserError("is not a JSON object with a type and tables", where=where)
    kind = document.get("type")
    parsers = {
        "storageSSD": _by_size,
        "storageConstant": _constant,
        "storageTable": _by_distance,
    }
    if not isinstance(kind, str) or kind not in parsers:
        raise not_allowed(f"{where}: type", kind, ", ".join(parsers))
    return StageCosts(
        parsers[kind](document, where),
        NetworkCost(**_numbers(document, "network", _NETWORK_KEYS, where)),
        Overhead(**_numbers(document, "overhead", _OVERHEAD_KEYS, where)),
    )


def _list(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise UserError("is missing or empty", where=where, allowed="a list")
    return value


def _rising(value: object, where: str) -> Floats:
    points = [number_of(v, f"{where}[{i}]", -math.inf) for i, v in enumerate(_list(value, where))]
    if any(b <= a for a, b in pairwise(points)):
        raise UserError("must rise from entry to entry", where=where)
    return np.array(points)


def _by_size(document: Mapping[str, Any], where: str) -> StorageProfile:
    rows = []
    for index, row in enumerate(_list(document.get("bandwidthTable"), f"{where}: bandwidthTable")):
        place = f"{where}: bandwidthTable[{index}]"
        if not isinstance(row, Mapping):
            raise UserError("is not an object with requestSize and bandwidths", where=place)
        keys = ("requestSize", "readBandwidth", "writeBandwidth")
        rows.append(tuple(number_of(row.get(k), f"{place}.{k}", 0.0, above=True) for k in keys))
    rows.sort()
    sizes, read, write = (np.array(column) for column in zip(*rows, strict=True))
    if (np.diff(sizes) == 0).any():
        raise UserError("bandwidthTable has a requestSize twice", where=where)
    return SizeProfile(sizes, read, write)


def _constant(document: Mapping[str, Any], where: str) -> StorageProfile:
    return ConstantProfile(
        number_of(document.get("base"), f"{where}: base", 0.0),
        number_of(document.get("readBandwidth"), f"{where}: readBandwidth", 0.0, above=True),
        number_of(document.get("writeBandwidth"), f"{where}: writeBandwidth", 0.0, above=True),
    )


def _by_distance(document: Mapping[str, Any], where: str) -> StorageProfile:
    history = document.get("history", 8)
    if not isinstance(history, int) or isinstance(history, bool) or not 1 <= history <= 1024:
        raise not_allowed(f"{where}: history", history, "a whole number from 1 to 1024")
    tables = []
    for kind in ("read", "write"):
        place = f"{where}: {kind}"
        block = document.get(kind)
        if not isinstance(block, Mapping):
            raise UserError(
                "is missing" if block is None else "is no object",
                where=place,
                allowed="an object with offsets and distances",
            )
        offsets = _rising(block.get("offsets"), f"{place}.offsets")
        distances = _rising(block.get("distances"), f"{place}.distances")
        shape = (len(offsets), len(distances))
        base = _grid(block.get("base"), shape, f"{place}.base", above=False)
        bandwidth = _grid(block.get("bandwidth"), shape, f"{place}.bandwidth", above=True)
        tables.append(DistanceTable(offsets, distances, base, bandwidth))
    return DistanceProfile(tables[0], tables[1], history)


def _grid(value: object, shape: tuple[int, int], where: str, *, above: bool) -> Floats:
    rows = _list(value, where)
    if len(rows) != shape[0] or any(not isinstance(r, list) or len(r) != shape[1] for r in rows):
        wanted = f"{shape[0]} rows, one for each offset, of {shape[1]} numbers"
        raise UserError("has another shape", where=where, allowed=wanted)
    cells = [
        [number_of(cell, f"{where}[{i}][{j}]", 0.0, above=above) for j, cell in enumerate(row)]
        for i, row in enumerate(rows)
    ]
    return np.array(cells)


def _numbers(
    document: Mapping[str, Any], name: str, known: Mapping[str, str], where: str
) -> dict[str, float]:
    """Return the numbers of an optional block, by the names of their fields."""
    place = f"{where}: {name}"
    block = keys_of(document.get(name, {}), place, known)
    return {known[k]: number_of(v, f"{place}.{k}", 0.0) for k, v in block.items()}
