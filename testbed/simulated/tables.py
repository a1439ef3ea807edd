"""The simulator's arrays as the contract's types, kept between calls. Only changes are transferred,
so a policy step on a large cluster costs as much as it changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import sub
from typing import Any, Generic, Literal, TypeVar, overload

from testbed.simulated.benchmark import SampleRow
from testbed.simulated.process import SimulatorAnswer, SimulatorProcess
from testbed.stores.ceph.perf import latency_pressure
from testbed.stores.contract import Activity, OpRates, Osd, OsdLatency, Pg

# ----------------------------------------------------------------------------------------------
# Long sequence with cheap snapshots: a snapshot costs only the changed parts.

Item = TypeVar("Item")

SHIFT = 4
"""A chunk has 2 ** SHIFT items: a step that changes one in a hundred copies about one in ten."""


class ChunkedSnapshot(Sequence[Item]):
    """Snapshot of the items, in chunks; equal to a tuple of the same items."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, chunks: tuple[tuple[Item, ...], ...], length: int) -> None:
        self._chunks = chunks
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._chunks)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"item {index} of {self._length}")
        return self._chunks[place >> SHIFT][place & ((1 << SHIFT) - 1)]

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, (ChunkedSnapshot, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Changing(Generic[Item]):
    """The changing items."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = list(items)
        self._chunks = [self._chunk(number) for number in range(-(-len(self._items) >> SHIFT))]
        self._changed = set[int]()
        self._frozen: ChunkedSnapshot[Item] | None = None

    def put(self, places: Iterable[int], items: Iterable[Item]) -> None:
        """Replace the items at these places."""
        for place, item in zip(places, items, strict=True):
            self._items[place] = item
            self._changed.add(place >> SHIFT)

    def frozen(self) -> ChunkedSnapshot[Item]:
        """Return the current items; the same object until an item is replaced."""
        if self._frozen is None or self._changed:
            for number in self._changed:
                self._chunks[number] = self._chunk(number)
            self._changed.clear()
            self._frozen = ChunkedSnapshot(tuple(self._chunks), len(self._items))
        return self._frozen

    def _chunk(self, number: int) -> tuple[Item, ...]:
        return tuple(self._items[number << SHIFT : (number + 1) << SHIFT])


# ----------------------------------------------------------------------------------------------
# Pressure for a policy, from the simulator's cumulative signals of every node.

Signal = Literal["node", "osd", "op_r_latency"]
SIGNAL_NAMES: Mapping[str, str] = {
    "node": "io_pressure",
    "osd": "osd_pressure",
    "op_r_latency": "op_r_latency",
}
"""Name of each signal in a run's record, as on a real testbed (testbed/agent/sense.py)."""

_NODE, _OSD, _READS, _READ_TIME, _READ_SERVICE, _WRITES, _WRITE_TIME, _OF_NODE = range(8)
"""Offsets of a node's numbers (sim/ceph's ``signals``): seconds in which a task of the node, and
of the OSD, waited for I/O; client reads, the seconds that these took, and those without the OSD's
own queue; client writes, and the seconds that these took."""


def pressure(
    signal: Signal, before: Sequence[float], now: Sequence[float], interval_s: float
) -> dict[int, float]:
    """Return the pressure by OSD, in percent, over the `interval_s` seconds up to `now`."""
    if signal == "op_r_latency":
        reads = _differences(before, now, _READS)
        seconds = _differences(before, now, _READ_TIME)
        pairs = enumerate(zip(seconds, reads, strict=True))
        return latency_pressure({osd: took / count for osd, (took, count) in pairs if count > 0})
    if interval_s <= 0:
        return dict.fromkeys(range(len(now) // _OF_NODE), 0.0)
    scale = 100.0 / interval_s
    waited = _differences(before, now, _NODE if signal == "node" else _OSD)
    shares = [scale * seconds for seconds in waited]
    if min(shares) < 0.0 or max(shares) > 100.0:  # due to rounding
        shares = [min(100.0, max(0.0, share)) for share in shares]
    return dict(enumerate(shares))


def latency(before: Sequence[float], now: Sequence[float]) -> dict[int, OsdLatency]:
    """Return each OSD's client operations from `before` to `now`, and their mean seconds."""
    columns = (_READS, _READ_TIME, _READ_SERVICE, _WRITES, _WRITE_TIME)
    rows = zip(*(_differences(before, now, column) for column in columns), strict=True)
    return {
        osd: OsdLatency(
            reads=round(reads),
            read_s=_mean(took, reads),
            read_service_s=_mean(service, reads),
            writes=round(writes),
            write_s=_mean(wrote, writes),
        )
        for osd, (reads, took, service, writes, wrote) in enumerate(rows)
    }


def _mean(seconds: float, count: float) -> float | None:
    return round(seconds / count, 6) if count else None


def _differences(before: Sequence[float], now: Sequence[float], which: int) -> list[float]:
    if len(now) != len(before):
        raise ValueError(f"{len(now)} numbers after {len(before)}")
    return list(map(sub, now[which::_OF_NODE], before[which::_OF_NODE]))


# ----------------------------------------------------------------------------------------------
# Operations a second of the modelled PGs and OSDs, from the simulator's counters.

_DIGITS = 3


class ActivityTable:
    """Counters of the last call: rates are means since then. They are exact and immediate; a real
    manager gets the PGs' counters every few seconds."""

    def __init__(self, process: SimulatorProcess, pgs: Sequence[str]) -> None:
        self._process = process
        self._names = tuple(pgs)
        self._before: tuple[float, list[int], list[int]] | None = None

    def read(self) -> Activity:
        """Return the rates since the previous call; none at the first call."""
        answer = self._process.ask("activity")
        now_s = float(answer.result["now_s"])
        pgs, osds = list(answer.blocks["pgs"]), list(answer.blocks["osds"])
        before, self._before = self._before, (now_s, pgs, osds)
        unclean = tuple(sorted(self._names[number] for number in answer.blocks["unclean"]))
        if before is None or now_s <= before[0]:
            return Activity(unclean=unclean)
        seconds = now_s - before[0]
        of_pgs = _rates(before[1], pgs, seconds)
        of_osds = _rates(before[2], osds, seconds)
        named = dict(sorted(zip(self._names, of_pgs, strict=True)))
        return Activity(named, dict(enumerate(of_osds)), unclean)


def _rates(before: Sequence[int], now: Sequence[int], seconds: float) -> list[OpRates]:
    each = [round((b - a) / seconds, _DIGITS) for a, b in zip(before, now, strict=True)]
    return [OpRates(reads, writes) for reads, writes in zip(each[::2], each[1::2], strict=True)]


_OF_OSD = frozenset({"osd_pressure", "op_r_latency_s", "primary_affinity", "reweight", "primaries"})
NONE = -1
"""Fills the end of a set with fewer OSDs than the pool has replicas."""

_CLIENT = ("read_mb_s", "write_mb_s", "read_iops", "write_iops")


class MapTable:
    """Last known OSD map and PG map."""

    def __init__(
        self,
        nodes: Sequence[str],
        pool: int,
        pgs: int,
        size: int,
        racks: Mapping[str, str] | None = None,
    ) -> None:
        self._nodes = tuple(nodes)
        self._racks = dict(racks or {})
        self._size = size
        self._osds = [
            Osd(number, node, rack=self._racks.get(node, "")) for number, node in enumerate(nodes)
        ]
        # One object for each OSD's number, not one for each PG that names it; NONE is last.
        self._numbers = (*range(len(nodes)), NONE)
        self._osd_tuple: tuple[Osd, ...] | None = None
        self._ids = tuple(f"{pool}.{number:x}" for number in range(pgs))
        self._pgs = Changing(Pg(name, (), ()) for name in self._ids)

    def osds(self) -> tuple[Osd, ...]:
        """Return every OSD."""
        if self._osd_tuple is None:
            self._osd_tuple = tuple(self._osds)
        return self._osd_tuple

    def pgs(self) -> Sequence[Pg]:
        """Return the current state of every PG of the pool."""
        return self._pgs.frozen()

    def names(self) -> tuple[str, ...]:
        """Return the PGs' ids, in the order of their numbers."""
        return self._ids

    def read_balance(self) -> float:
        """Return Ceph's read balance score: the largest number of primaries of an OSD by the mean
        over OSDs that are up and in. Ceph also corrects it for primary affinities below 1."""
        primaries = Counter(pg.primary for pg in self._pgs.frozen())
        serving = sum(osd.up and osd.in_ for osd in self._osds)
        return max(primaries.values()) * serving / len(self._ids)

    def update(self, blocks: Mapping[str, Sequence[Any]], *, pgs: bool) -> None:
        """Apply the changed entries."""
        ids, weights, flags = blocks["osd_ids"], blocks["osd_weights"], blocks["osd_flags"]
        for index, osd in enumerate(ids):
            self._osd_tuple = None
            self._osds[osd] = Osd(
                id=osd,
                node=self._nodes[osd],
                up=bool(flags[index] & 1),
                in_=bool(flags[index] & 2),
                # The map keeps 16 bits; four decimals are shown, as on a real cluster.
                primary_affinity=round(weights[2 * index], 4),
                reweight=round(weights[2 * index + 1], 4),
                rack=self._racks.get(self._nodes[osd], ""),
            )
        if pgs:
            self._update_pgs(blocks)

    def _update_pgs(self, blocks: Mapping[str, Sequence[Any]]) -> None:
        numbers, sets = blocks["pg_ids"], blocks["pg_sets"]
        if not numbers:
            return
        # Whole columns at a time: a step on a large cluster changes hundreds of PGs.
        osds = map(self._numbers.__getitem__, sets)
        rows = list(zip(*[osds] * self._size, strict=True))
        if NONE in sets:
            rows = [row[: row.index(NONE)] if NONE in row else row for row in rows]
        ups = rows[::2]
        # For most, both sets are equal: one shared tuple halves the memory.
        pairs = zip(ups, rows[1::2], strict=True)
        actings = [up if acting == up else acting for up, acting in pairs]
        ids = map(self._ids.__getitem__, numbers)
        pinned = [flags & 1 == 1 for flags in blocks["pg_flags"]]
        self._pgs.put(numbers, map(Pg, ids, ups, actings, pinned, blocks["pg_bytes"]))


def sample_rows(answer: SimulatorAnswer, nodes: Sequence[str]) -> list[SampleRow]:
    """Return the recorder's samples, one row for each value; unknown values (NaN) are left out."""
    body, blocks = answer.result, answer.blocks
    columns, count, start = body["columns"], body["nodes"], body["bench_start_s"]
    single = count == len(nodes)
    names = list(nodes) if single else ["hot", "calm"]
    values, served = blocks["rows"], blocks["client"]
    rows: list[SampleRow] = []
    at = 0
    for index, time_s in enumerate(blocks["times"]):
        t_s = time_s - start
        for number, name in enumerate(names):
            owner = f"osd.{number}" if single else name
            for column in columns:
                value = values[at]
                at += 1
                if not math.isnan(value):
                    node = owner if column in _OF_OSD else name
                    rows.append(SampleRow(t_s, node, column, value))
        for offset, metric in enumerate(_CLIENT):
            rows.append(SampleRow(t_s, "client", metric, served[4 * index + offset]))
    return rows
