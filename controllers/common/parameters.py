"""Typed, validated parameters of a policy, declared as the fields of a frozen dataclass.

@dataclass(frozen=True)
class DlrParameters:
    theta_i: float = number(0.2, 0, 1, "imbalance above which an affinity is decreased")

parameters = read(DlrParameters, "dlr", {"theta_i": 0.3})
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, field, fields
from typing import Any, TypeVar

from controllers.common.numbers import finite
from schemas.errors import UserError, not_allowed, unknown
from schemas.numbers import plain

_T = TypeVar("_T")


def number(default: float, low: float, high: float, doc: str) -> Any:
    """Declare a float in [`low`, `high`]."""
    return field(default=default, metadata={"type": float, "low": low, "high": high, "doc": doc})


def integer(default: int, low: int, high: int, doc: str) -> Any:
    """Declare a whole number in [`low`, `high`]."""
    return field(default=default, metadata={"type": int, "low": low, "high": high, "doc": doc})


def choice(default: str, allowed: Sequence[str], doc: str) -> Any:
    """Declare one of `allowed`."""
    return field(default=default, metadata={"type": str, "allowed": tuple(allowed), "doc": doc})


def text(default: str, pattern: str, doc: str) -> Any:
    """Declare a text that matches a regular expression as a whole."""
    return field(default=default, metadata={"type": str, "pattern": pattern, "doc": doc})


def flag(default: bool, doc: str) -> Any:
    """Declare a boolean; as text also yes and no, on and off."""
    return field(default=default, metadata={"type": bool, "doc": doc})


def structure(doc: str) -> Any:
    """Declare a mapping that the policy itself checks; the default is {}, as text it is JSON."""
    return field(default_factory=dict, metadata={"type": dict, "doc": doc})


def read(cls: type[_T], controller: str, given: Mapping[str, object]) -> _T:
    """Return `given` over the defaults of `cls`. UserError: an unknown parameter, a wrong type, a
    value out of range."""
    known: dict[str, Field[Any]] = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in known:
            raise unknown("parameter", name, sorted(known), where=f"controller {controller}")
        values[name] = _checked(controller, known[name], value)
    for name, declared in known.items():
        missing = declared.default is MISSING and declared.default_factory is MISSING
        if name not in values and missing:
            raise UserError(f"parameter {name!r} is required", where=f"controller {controller}")
    return cls(**values)


def mapping(parameters: Any) -> dict[str, object]:
    """Return a parameters dataclass as the mapping that the journal holds."""
    return asdict(parameters)


def _checked(controller: str, declared: Field[Any], value: object) -> object:
    meta = declared.metadata
    where = f"controller {controller}: parameter {declared.name!r}"
    if meta.get("type") is bool:
        return _truth(where, value)
    if meta.get("type") is dict:
        return _data(where, value)
    if "pattern" in meta:
        if not re.fullmatch(meta["pattern"], str(value)):
            raise not_allowed(where, value, f"a text that matches {meta['pattern']}")
        return value
    if meta.get("type") is str:
        if value not in meta["allowed"]:
            raise not_allowed(where, value, ", ".join(meta["allowed"]))
        return value
    value = plain(value)
    if not finite(value):
        raise not_allowed(where, value, "a number")
    if meta["type"] is int and value != int(value):
        raise not_allowed(where, value, "a whole number")
    if not meta["low"] <= value <= meta["high"]:
        raise not_allowed(where, value, f"{meta['low']} to {meta['high']}")
    result: float | int = meta["type"](value)
    return result


def _data(where: str, value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UserError(f"is no JSON: {error}", where=where) from None
    if not isinstance(value, Mapping):
        raise not_allowed(where, value, "a mapping, or the JSON of one")
    return dict(value)


def _truth(where: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    known = words.get(str(value).lower())
    if known is None:
        raise not_allowed(where, value, "true, false")
    return known
