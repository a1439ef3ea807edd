"""Reader and checks of a device's profile (JSON); docs/prioritymeister.md gives the format."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]

_NETWORK_KEYS = {
    "dataConstant": "data_constant",
    "dataFactor": "data_factor",
    "nonDataConstant": "other_constant",
    "nonDataFactor": "other_factor",
}
_OVERHEAD_KEYS = {"request": "request", "latency": "latency"}


_LARGEST = sys.float_info.max  # JSON has whole numbers that no float holds


def load_profile(path: Path) -> StageCosts:
    """Return the profile in a JSON file.

    Raises:
        UserError: it cannot be read, or one sentence on the mistake in it.
    """
    return parse_profile(read_document(path), f"profile {path}")


def read_document(path: Path) -> object:
    """Return the unchecked JSON of a profile's file; raise UserError if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UserError(f"profile {path}: cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"profile {path}: is not JSON: {error}.") from error


def parse_profile(document: object, where: str = "profile") -> StageCosts:
    """Return the profile in a JSON document; `where` begins each message."""
    if not isinstance(document, Mapping):
        raise UserError(f"{where}: is not a JSON object with a type and tables.")
    kind = document.get("type")
    parsers = {
        "storageSSD": _by_size,
        "storageConstant": _constant,
        "storageTable": _by_distance,
    }
    if not isinstance(kind, str) or kind not in parsers:
        known = ", ".join(parsers)
        raise UserError(f"{where}: type is {kind!r}; write one of {known}.")
    return StageCosts(
        parsers[kind](document, where),
        NetworkCost(**_numbers(document, "network", _NETWORK_KEYS, where)),
        Overhead(**_numbers(document, "overhead", _OVERHEAD_KEYS, where)),
    )


def _number(value: object, where: str, *, least: float = 0.0, above: bool = False) -> float:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = fits and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]
    if not fits or value < least or (above and value == least):  # type: ignore[operator]
        wanted = f"a number above {least:g}" if above else f"a number of at least {least:g}"
        raise UserError(f"{where} is {value!r}; write {wanted}.")
    return float(value)  # type: ignore[arg-type]


def _list(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{where} is missing or empty; write a list.")
    return value


def _rising(value: object, where: str) -> Floats:
    points = [
        _number(v, f"{where}[{i}]", least=-math.inf) for i, v in enumerate(_list(value, where))
    ]
    if any(b <= a for a, b in pairwise(points)):
        raise UserError(f"{where} must rise from entry to entry.")
    return np.array(points)


def _by_size(document: Mapping[str, Any], where: str) -> StorageProfile:
    rows = []
    for index, row in enumerate(_list(document.get("bandwidthTable"), f"{where}: bandwidthTable")):
        place = f"{where}: bandwidthTable[{index}]"
        if not isinstance(row, Mapping):
            raise UserError(f"{place} is not an object with requestSize and bandwidths.")
        keys = ("requestSize", "readBandwidth", "writeBandwidth")
        rows.append(tuple(_number(row.get(k), f"{place}.{k}", above=True) for k in keys))
    rows.sort()
    sizes, read, write = (np.array(column) for column in zip(*rows, strict=True))
    if (np.diff(sizes) == 0).any():
        raise UserError(f"{where}: bandwidthTable has a requestSize twice.")
    return SizeProfile(sizes, read, write)


def _constant(document: Mapping[str, Any], where: str) -> StorageProfile:
    return ConstantProfile(
        _number(document.get("base"), f"{where}: base"),
        _number(document.get("readBandwidth"), f"{where}: readBandwidth", above=True),
        _number(document.get("writeBandwidth"), f"{where}: writeBandwidth", above=True),
    )


def _by_distance(document: Mapping[str, Any], where: str) -> StorageProfile:
    history = document.get("history", 8)
    if not isinstance(history, int) or isinstance(history, bool) or not 1 <= history <= 1024:
        raise UserError(f"{where}: history is {history!r}; write a whole number from 1 to 1024.")
    tables = []
    for kind in ("read", "write"):
        place = f"{where}: {kind}"
        block = document.get(kind)
        if not isinstance(block, Mapping):
            raise UserError(f"{place} is missing; write an object with offsets and distances.")
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
        raise UserError(
            f"{where} must have a row for each of {shape[0]} offsets, with a number for each of "
            f"{shape[1]} distances."
        )
    cells = [
        [_number(cell, f"{where}[{i}][{j}]", above=above) for j, cell in enumerate(row)]
        for i, row in enumerate(rows)
    ]
    return np.array(cells)


def _numbers(
    document: Mapping[str, Any], name: str, known: Mapping[str, str], where: str
) -> dict[str, float]:
    """Return the numbers of an optional block, by the names of their fields."""
    block = document.get(name, {})
    if not isinstance(block, Mapping):
        raise UserError(f"{where}: {name} is not an object.")
    unknown = sorted(set(block) - set(known))
    if unknown:
        raise UserError(f"{where}: {name} has {unknown[0]!r}; known are {', '.join(known)}.")
    return {known[k]: _number(v, f"{where}: {name}.{k}") for k, v in block.items()}
