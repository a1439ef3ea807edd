"""The simulator's arrays as the contract's types, kept between calls. Only changes are transferred,
so a policy step on a large cluster costs as much as it changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.simulated.benchmark import Sample
from testbed.simulated.chunks import Changing
from testbed.simulated.process import Answer
from testbed.stores.contract import Osd, Pg

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


def sample_rows(answer: Answer, nodes: Sequence[str]) -> list[Sample]:
    """Return the recorder's samples, one row for each value; unknown values (NaN) are left out."""
    body, blocks = answer.result, answer.blocks
    columns, count, start = body["columns"], body["nodes"], body["bench_start_s"]
    single = count == len(nodes)
    names = list(nodes) if single else ["hot", "calm"]
    values, served = blocks["rows"], blocks["client"]
    rows: list[Sample] = []
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
                    rows.append(Sample(t_s, node, column, value))
        for offset, metric in enumerate(_CLIENT):
            rows.append(Sample(t_s, "client", metric, served[4 * index + offset]))
    return rows
