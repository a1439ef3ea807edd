"""Kernel commands that enforce a host's part of a plan.

The network enforcer of PriorityMeister (section 4.6): a chain of token buckets for each workload
that sends from a host, strict priority among workloads, and DSCP for the switch. Pure: parameters
in, commands out. `netenforcer` runs the commands; `readback` checks that they are in force.

The tree of a device, HTB throughout (a kernel without PRIO has it):

    1:        the link: one class at its rate
      1:100+i a workload: HTB priority level - 1; it may always borrow: only priority decides
        1000+64i ...   its buckets, two per nested HTB (rate/burst, ceil/cburst); the nested class
                       has no parent to borrow from, so both buckets bind
      1:2     all other traffic, after every level
      1:3     ssh: a twentieth of the link guaranteed, the rest of it after every level
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from testbed.stores.nfs.wire import frame_of

LEVELS = 7
TABLE = "hotbed"
MANAGEMENT_PORT = 22
MANAGEMENT_SHARE = 0.05
FRAME = frame_of()
"""Frame of plain Ethernet; a device with another MTU has another frame size (`frame_of`)."""
LONGEST_S = 270.0
"""Longest burst: HTB keeps a burst as a time, in a 32-bit number of 64 ns."""
_LEAST_RATE = 1000.0  # bytes/s guaranteed to a class: 0 would be best, but HTB needs a rate
_LEAST_BURST = float(FRAME)  # under one frame if frames are larger: guaranteed bytes skip priority
_QUEUE_BYTES = 16 * 2**20
_LINK, _OTHER, _MANAGEMENT, _FIRST = 0x1, 0x2, 0x3, 0x100
_CHAIN, _CHAIN_STEP = 0x1000, 64
_MOST_FLOWS = 400


@dataclass(frozen=True)
class ShapedFlow:
    """Traffic of one workload that leaves this host.

    `pairs` are (bytes/s, bytes) of its token buckets, all of them bind; no pairs: no limit.
    `level` counts from 1, served first; `dscp` is the mark of its packets. `between` are (source or
    None, destination) prefixes.
    """

    name: str
    level: int
    dscp: int
    pairs: tuple[tuple[float, float], ...]
    between: tuple[tuple[str | None, str], ...]


@dataclass(frozen=True)
class Class:
    """An HTB class: rates in bytes/s, bursts in bytes."""

    classid: str
    parent: str
    rate: float
    ceil: float
    burst: float
    cburst: float
    prio: int = 0


@dataclass(frozen=True)
class ShapingState:
    """Everything that is installed for a host; order carries no meaning.

    `qdiscs` are (handle, parent, kind), `filters` (protocol, matches, flowid) with the matches as
    the kernel writes them, `marks` (source or "", destination, DSCP).
    """

    qdiscs: frozenset[tuple[str, str, str]]
    classes: frozenset[Class]
    filters: frozenset[tuple[str, str, str]]
    marks: frozenset[tuple[str, str, int]]


def flows_of(host: Mapping[str, Any]) -> tuple[ShapedFlow, ...]:
    """Return the flows of a host's parameters (`rate` and `flows`, see docs/prioritymeister.md).
    ValueError: names in one sentence the flow, its error, and what is allowed."""
    found = tuple(_flow(flow) for flow in host["flows"])
    if len(found) > _MOST_FLOWS:
        raise ValueError(f"{len(found)} flows leave this host; at most {_MOST_FLOWS} can be kept")
    seen: dict[tuple[str | None, str], str] = {}
    for flow in found:
        for pair in flow.between:
            if pair in seen:
                raise ValueError(
                    f"flows {seen[pair]} and {flow.name} go from {pair[0] or 'here'} to {pair[1]}: "
                    "they cannot be distinguished, give their clients an address each"
                )
            seen[pair] = flow.name
    return found


def _flow(data: Mapping[str, Any]) -> ShapedFlow:
    name = f"{data['workload']} {data['stage']}"
    level, dscp = int(data["level"]), int(data["dscp"])
    if not 1 <= level <= LEVELS:
        raise ValueError(f"flow {name}: level is {level}; hosts and switch have 1 to {LEVELS}")
    if not 0 <= dscp < 64:
        raise ValueError(f"flow {name}: dscp is {dscp}; it is a number from 0 to 63")
    if not data["destination"]:
        raise ValueError(f"flow {name}: has no destination; give the address of host {data['to']}")
    pairs = tuple((float(rate), float(burst)) for rate, burst in data["pairs"])
    for rate, burst in pairs:
        if not (0 < rate < math.inf and 0 <= burst < math.inf):
            raise ValueError(
                f"flow {name}: a pair is [{rate:g}, {burst:g}]; write a rate above 0 bytes/s and a "
                "burst of 0 bytes or more"
            )
    sources: Sequence[str | None] = [_prefix(a, name) for a in data["source"]] or [None]
    targets = [_prefix(a, name) for a in data["destination"]]
    return ShapedFlow(name, level, dscp, pairs, tuple(product(sources, targets)))


def _prefix(text: str, name: str) -> str:
    try:
        return str(ipaddress.IPv4Network(text, strict=False))
    except ValueError as error:
        raise ValueError(f"flow {name}: {text!r} is no IPv4 address or prefix") from error


def bucket(rate: float, burst: float, frame: int = FRAME) -> tuple[float, float]:
    """Return a pair within HTB's limits: at least one whole frame, at most `LONGEST_S` of the rate.
    A longer burst gets a higher rate, which lets more through, never less."""
    burst = max(burst, float(frame))
    return max(rate, burst / LONGEST_S, _LEAST_RATE), burst


def wanted(host: Mapping[str, Any], link: float, frame: int = FRAME) -> ShapingState:
    """Return the state to install on a host with a link of `link` bytes/s and frames of at most
    `frame` bytes."""
    flows = flows_of(host)
    qdiscs, classes = [("1:", "root", "htb")], list(_base(link, frame))
    qdiscs += [("2:", "1:2", "bfifo"), ("3:", "1:3", "bfifo")]
    filters = list(_base_filters())
    marks = []
    for index, flow in enumerate(flows):
        top = f"1:{_FIRST + index:x}"
        classes.append(_borrower(top, link, flow.level - 1, link_burst(link, frame)))
        at, handle = top, _CHAIN + _CHAIN_STEP * index
        for inner in _nested(flow.pairs, handle, link, frame):
            qdiscs.append((f"{handle:x}:", at, "htb"))
            classes.append(inner)
            at, handle = inner.classid, handle + 1
        qdiscs.append((f"{handle:x}:", at, "bfifo"))
        filters += [("ip", _addresses(*pair), top) for pair in flow.between]
        if flow.dscp:
            marks += [(source or "", target, flow.dscp) for source, target in flow.between]
    return ShapingState(frozenset(qdiscs), frozenset(classes), frozenset(filters), frozenset(marks))


def _base(link: float, frame: int) -> Iterator[Class]:
    burst = link_burst(link, frame)
    yield Class(f"1:{_LINK:x}", "1:", link, link, burst, burst)
    yield _borrower(f"1:{_OTHER:x}", link, LEVELS, burst)
    share = max(MANAGEMENT_SHARE * link, _LEAST_RATE)
    yield Class(f"1:{_MANAGEMENT:x}", "1:1", share, link, 4 * _LEAST_BURST, burst, LEVELS)


def link_burst(link: float, frame: int = FRAME) -> float:
    """Return the burst of a link's own rate, bytes: a millisecond, at least two frames."""
    return max(link / 1000, 2.0 * frame)


def _borrower(classid: str, link: float, prio: int, burst: float) -> Class:
    return Class(classid, "1:1", _LEAST_RATE, link, _LEAST_BURST, burst, prio)


def _nested(
    pairs: Sequence[tuple[float, float]], first: int, link: float, frame: int
) -> Iterator[Class]:
    """Put two buckets into each class, slowest first: the slower as rate, the faster as ceiling.

    A bucket as fast as the link delays nothing that the link does not delay. HTB cannot keep a
    burst that takes less than its tick of 64 ns.
    """
    kept = sorted(bucket(*pair, frame) for pair in pairs if pair[0] < link)
    for place in range(0, len(kept), 2):
        slow = kept[place]
        fast = kept[place + 1] if place + 1 < len(kept) else slow
        handle = first + place // 2
        yield Class(f"{handle:x}:1", f"{handle:x}:", slow[0], fast[0], slow[1], fast[1])


def _base_filters() -> Iterator[tuple[str, str, str]]:
    management = f"1:{_MANAGEMENT:x}"
    yield "arp", "00000000/00000000 at 0", management
    tcp, port = "00060000/00ff0000 at 8", MANAGEMENT_PORT
    yield "ip", f"{tcp}, {port << 16:08x}/ffff0000 at 20", management
    yield "ip", f"{tcp}, {port:08x}/0000ffff at 20", management


def _addresses(source: str | None, target: str) -> str:
    parts = [] if source is None else [_match(source, 12)]
    return ", ".join([*parts, _match(target, 16)])


def _match(prefix: str, offset: int) -> str:
    network = ipaddress.IPv4Network(prefix)
    return f"{int(network.network_address):08x}/{int(network.netmask):08x} at {offset}"


# --- commands ----------------------------------------------------------------------------------


def tc_commands(state: ShapingState, device: str, frame: int = FRAME) -> list[str]:
    """Return lines for ``tc -batch`` that install `state` on a device that has no root of ours yet
    with frames of at most `frame` bytes."""
    lines = [f"qdisc replace dev {device} root handle 1: htb default {_OTHER:x}"]
    classes: dict[str, list[Class]] = {}
    for found in sorted(state.classes, key=lambda one: order_of(one.classid)):
        classes.setdefault(found.parent, []).append(found)
    below = {parent: (handle, kind) for handle, parent, kind in state.qdiscs}

    def descend(parent: str) -> None:
        for one in classes.get(parent, ()):
            lines.append(_class_line(one, device, frame))
            if one.classid in below:
                handle, kind = below[one.classid]
                options = "default 1" if kind == "htb" else f"limit {_QUEUE_BYTES}"
                where = f"dev {device} parent {one.classid} handle {handle}"
                lines.append(f"qdisc add {where} {kind} {options}")
                descend(handle)
            descend(one.classid)

    descend("1:")
    # ssh goes before the workloads' addresses: it connects the same hosts.
    order = {"arp": 1, "ip": 2}
    for protocol, matches, flowid in sorted(state.filters, key=lambda f: (order[f[0]], *f)):
        pref = 10 if flowid == f"1:{_MANAGEMENT:x}" else 20
        pref = 5 if protocol == "arp" else pref
        words = " ".join(f"match {_word(match)}" for match in matches.split(", "))
        lines.append(
            f"filter add dev {device} parent 1: protocol {protocol} prio {pref} u32 {words} "
            f"flowid {flowid}"
        )
    return lines


def _word(match: str) -> str:
    value, mask, offset = re.split(r"/| at ", match)
    return f"u32 0x{value} 0x{mask} at {offset}"


def _class_line(one: Class, device: str, frame: int) -> str:
    return (
        f"class add dev {device} parent {one.parent} classid {one.classid} htb "
        f"rate {round(8 * one.rate)}bit burst {math.ceil(one.burst)} "
        f"ceil {round(8 * one.ceil)}bit cburst {math.ceil(one.cburst)} "
        f"prio {one.prio} quantum {frame}"
    )


def order_of(classid: str) -> tuple[int, ...]:
    """Return a sort key for class ids, which have hexadecimal parts."""
    return tuple(int(part, 16) for part in classid.split(":") if part)


def nft_commands(state: ShapingState) -> str:
    """Return a script for ``nft -f`` that replaces our table atomically, with any contents."""
    rules = [
        f"    {f'ip saddr {source} ' if source else ''}ip daddr {target} counter ip dscp set {dscp}"
        for source, target, dscp in sorted(state.marks)
    ]
    body = "\n".join(rules)
    return (
        f"table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n"
        "  chain classify {\n    type filter hook postrouting priority mangle; policy accept;\n"
        f"{body}\n  }}\n}}\n"
    )
