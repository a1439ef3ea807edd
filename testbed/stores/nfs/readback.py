"""Read-back of the state that the kernel reports for a device, and its differences from a plan.

The network enforcer is checked after it was applied. The outputs of `tc` and `nft` are compared
with the `ShapingState` that produced the commands. Pure: texts in, words out.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.stores.nfs.shaping import Class, ShapingState, order_of

_UNITS = {"bit": 1, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}
_SIZES = {"b": 1, "Kb": 1024, "Mb": 2**20, "Gb": 2**30}
_CLASS = re.compile(  # a class with child classes has no leaf and no prio
    r"^class htb (?P<classid>\S+) (?:root|parent (?P<parent>\S+)) (?:leaf \S+ )?"
    r"(?:prio (?P<prio>\d+) )?(?:quantum \S+ )?"
    r"rate (?P<rate>\S+) ceil (?P<ceil>\S+) burst (?P<burst>\S+) cburst (?P<cburst>\S+)"
)
_NAMES = {f"cs{n}": 8 * n for n in range(8)} | {"ef": 46, "be": 0, "lephb": 1, "va": 44}
_NAMES |= {f"af{a}{b}": 8 * a + 2 * b for a in range(1, 5) for b in range(1, 4)}


def installed(qdiscs: str, classes: str, filters: str, table: str) -> ShapingState:
    """Return the state in the outputs of ``tc -j qdisc show``, ``tc class show``, ``tc filter
    show`` of the device and ``nft -j list table`` (empty without a table). ValueError: an output is
    not of these commands."""
    found = [
        (q["handle"], "root" if q.get("root") else q["parent"], q["kind"])
        for q in json.loads(qdiscs or "[]")
    ]
    return ShapingState(
        frozenset(found),
        frozenset(_parse_class(line) for line in classes.splitlines() if line.strip()),
        frozenset(_parse_filters(filters)),
        frozenset(_parse_marks(json.loads(table)) if table.strip() else ()),
    )


def _parse_class(line: str) -> Class:
    found = _CLASS.match(line.strip())
    if found is None:
        raise ValueError(f"tc shows a class that is not ours: {line.strip()!r}")
    fields = found.groupdict()
    classid = fields["classid"]
    return Class(
        classid,
        fields["parent"] or f"{classid.split(':')[0]}:",
        _scaled(fields["rate"], _UNITS) / 8,
        _scaled(fields["ceil"], _UNITS) / 8,
        _scaled(fields["burst"], _SIZES),
        _scaled(fields["cburst"], _SIZES),
        int(fields.get("prio") or 0),
    )


def _scaled(text: str, units: Mapping[str, float]) -> float:
    match = re.match(r"^([\d.]+)([A-Za-z]+)$", text)
    if match is None or match.group(2) not in units:
        raise ValueError(f"tc shows {text!r}, which is no rate or size")
    return float(match.group(1)) * units[match.group(2)]


def _parse_filters(text: str) -> Iterator[tuple[str, str, str]]:
    protocol, flowid, matches = "", "", list[str]()
    for line in [*text.splitlines(), "filter end"]:
        words = line.split()
        if words[:1] == ["match"]:
            matches.append(" ".join(words[1:]))
        elif words[:1] == ["filter"]:
            if flowid:
                yield protocol, ", ".join(matches), flowid
            flowid, matches = "", []
            if "protocol" in words:
                protocol = words[words.index("protocol") + 1]
            if any(word.lstrip("*") == "flowid" for word in words):
                flowid = words[[word.lstrip("*") for word in words].index("flowid") + 1]


def _parse_marks(listing: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    for entry in listing["nftables"]:
        source, target, dscp = "", "", 0
        for part in entry.get("rule", {}).get("expr", ()):
            if "match" in part:
                where = part["match"]["left"]["payload"]["field"]
                source = _address(part["match"]["right"]) if where == "saddr" else source
                target = _address(part["match"]["right"]) if where == "daddr" else target
            if "mangle" in part:
                value = part["mangle"]["value"]
                dscp = value if isinstance(value, int) else _NAMES[value]
        if "rule" in entry:
            yield source, target, dscp


def _address(right: Any) -> str:
    if isinstance(right, str):
        return str(ipaddress.IPv4Network(right))
    return f"{right['prefix']['addr']}/{right['prefix']['len']}"


# --- compared ----------------------------------------------------------------------------------


def differences(want: ShapingState, found: ShapingState) -> list[str]:
    """Return the differences in words; empty if there are none."""
    said = []
    for kind in ("qdiscs", "filters", "marks"):
        wanted_ones, there = getattr(want, kind), getattr(found, kind)
        said += [f"{kind[:-1]} {_words(one)} is missing" for one in sorted(wanted_ones - there)]
        said += [f"{kind[:-1]} {_words(one)} is not ours" for one in sorted(there - wanted_ones)]
    have = {one.classid: one for one in found.classes}
    for one in sorted(want.classes, key=lambda c: order_of(c.classid)):
        other = have.pop(one.classid, None)
        said += [f"class {one.classid} is missing"] if other is None else _changed(one, other)
    return said + [f"class {classid} is not ours" for classid in sorted(have)]


def _words(one: tuple[object, ...]) -> str:
    return " ".join(str(part) for part in one if part != "")


def _changed(want: Class, found: Class) -> list[str]:
    said = []
    if (want.parent, want.prio) != (found.parent, found.prio):
        said.append(
            f"class {want.classid} is at {found.parent} with priority {found.prio}, not at "
            f"{want.parent} with {want.prio}"
        )
    for what in ("rate", "ceil", "burst", "cburst"):
        wish, fact = getattr(want, what), getattr(found, what)
        # The kernel keeps bursts as times, and tc rounds what it prints.
        if abs(wish - fact) > 0.01 * wish + 64:
            said.append(f"class {want.classid} has {what} {fact:.6g}, not {wish:.6g}")
    return said
