"""Blazar's filters of hosts: read from a spec, and said of a host that is in front of us.

A filter is ``[operator, "$property", value]``, joined by ``["and", ...]``. In a spec it may also be
a mapping, ``{architecture.smt_size: ">=48", node_name: P3-SSD-046}``. Of an ``and`` inside another
one Blazar looks at the first only, and it refuses ``or`` (``blazar/utils/plugins.py``): here an
``and`` never holds another, and specs with an ``or`` are refused (`has_or`).
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_JOIN = {"and": all, "or": any}
NUMBERS = frozenset({"vcpus", "memory_mb", "local_gb", "hypervisor_version"})
"""What Blazar compares as numbers: its own columns. Everything else, which operators gave to their
hosts, it compares as text (``host_get_all_by_queries``), in which "8" is above "48"."""
_SHORT = re.compile(r"^\s*(==|!=|<=|>=|=|<|>)?\s*(.+?)\s*$")

Filter = list[Any]


def read_filter(given: object) -> Filter:
    """A filter as Blazar takes it, of JSON text, a list, or a mapping.

    Raises:
        ValueError: what is wrong, and what a filter looks like.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise ValueError(f"filter {given!r} is not JSON ({error})") from error
    if isinstance(given, Mapping):
        return both(*(_short(str(name), value) for name, value in given.items()))
    if isinstance(given, Sequence):
        return _checked(list(given))
    raise ValueError(f"{given!r} is no filter, which is such as {_EXAMPLE}")


_EXAMPLE = '[">=", "$architecture.smt_size", "48"]'


def both(*filters: Filter) -> Filter:
    """One filter that holds where all do, flat."""
    there: list[Any] = []
    for each in filters:
        if each:
            there += each[1:] if each[0] == "and" else [each]
    if len(there) <= 1:
        return there[0] if there else []
    return ["and", *there]


def has_or(given: Filter) -> bool:
    """Is an ``or`` in it, which Blazar does not take?"""
    if not given or given[0] not in _JOIN:
        return False
    return bool(given[0] == "or") or any(has_or(each) for each in given[1:])


def _short(name: str, value: object) -> Filter:
    match = _SHORT.match(str(value))
    if match is None or not name:
        raise ValueError(f"filter {name!r}: {value!r} is no value, such as '>=48' or 'storage'")
    return [match[1] or "==", f"${name.removeprefix('$')}", match[2]]


def _checked(given: list[Any]) -> Filter:
    if not given:
        return []
    name = str(given[0])
    if name in _JOIN and len(given) > 1:
        joined = [_checked(_list(each)) for each in given[1:]]
        return both(*joined) if name == "and" else [name, *joined]
    is_comparison = len(given) == 3 and name in COMPARE and str(given[2])
    if is_comparison and len(str(given[1])) > 1 and str(given[1]).startswith("$"):
        return [name, str(given[1]), str(given[2])]
    raise ValueError(f"{json.dumps(given)} is no filter, which is such as {_EXAMPLE}")


def _list(given: object) -> list[Any]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    raise ValueError(f"{given!r} is no filter, which is such as {_EXAMPLE}")


def text_of(given: Filter) -> str:
    """As Blazar keeps it: JSON, empty for none."""
    return json.dumps(given) if given else ""


def same(one: str, other: str) -> bool:
    """Do two texts say the same filter? Neither the order of joined ones matters, nor how they are
    nested, as they were in leases of earlier versions."""
    return _normal(one) == _normal(other)


def _normal(text: str) -> object:
    try:
        return _ordered(json.loads(text)) if text else None
    except ValueError:
        return text


def _ordered(given: object) -> object:
    if not isinstance(given, list) or not given:
        return given if isinstance(given, list) else str(given)
    if given[0] in _JOIN:
        joined = [_ordered(each) for each in given[1:]]
        if given[0] == "and":
            joined = both(*(each for each in joined if isinstance(each, list)))
            if not joined or joined[0] != "and":
                return joined
            joined = joined[1:]
        return [given[0], *sorted(joined, key=str)]
    return ["==" if given[0] == "=" else given[0], *(str(each) for each in given[1:])]


def holds(given: Filter, properties: Mapping[str, str]) -> bool:
    """Does a host with these properties pass, as Blazar sees it? A property that it does not have
    never does; see `NUMBERS`."""
    if not given:
        return True
    if given[0] in _JOIN:
        return _JOIN[given[0]](holds(each, properties) for each in given[1:])
    name, wanted = str(given[1]).removeprefix("$"), str(given[2])
    found = properties.get(name)
    if found is None:
        return False
    if name not in NUMBERS:
        return COMPARE[given[0]](str(found), wanted)
    try:
        return COMPARE[given[0]](float(found), float(wanted))
    except ValueError:
        return False
