"""Parser of the output of `rados bench`, as text or JSON, from Ceph 16 to 19 (and older ones).

The tool's own ``cur MB/s`` and ``last lat`` columns are not used. After a stall the former spreads
the operations over the stalled seconds a second time, and the latter is the latency of a single
operation. Throughput and mean latency of each second follow exactly from the cumulative columns
``finished`` and ``avg lat``, on the clock of ``--show-time`` if it is there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from workloads.errors import WorkloadError

CLOCK_SET_S = 60.0  # no status line is this late: the wall clock was set
MIN_TAIL_S = 0.5  # a shorter rest after the last status line belongs to the sample before it
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_ROW = re.compile(
    r"(?:^|\s)(?P<sec>\d+)\s+(?P<in_flight>\d+)\s+(?P<started>\d+)\s+(?P<finished>\d+)\s+"
    rf"{_NUMBER}\s+{_NUMBER}\s+(?:{_NUMBER}|-)\s+(?P<avg_lat>{_NUMBER})\s*$"
)
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+[+-]\d\d:?\d\d)\s")
_TOTALS = {
    "seconds": r"Total time run",
    "operations": r"Total (?:reads|writes) made",
    "op_size": r"(?:Read|Write) size|Maintaining \d+ concurrent writes of",
    "object_size": r"Object size",
    "latency_mean_s": r"Average Latency(?:\(s\))?",
    "latency_sd_s": r"Stddev Latency(?:\(s\))?",
    "latency_max_s": r"Max latency(?:\(s\))?",
    "latency_min_s": r"Min latency(?:\(s\))?",
}
_TOTAL_LINES = {
    key: re.compile(rf"(?:^|\s)(?:{name}):?\s+({_NUMBER})(?:\s*$| bytes )")
    for key, name in _TOTALS.items()
}
_JSON_TOTALS = {
    "seconds": ("total_time_run",),
    "operations": ("total_reads_made", "total_writes_made"),
    "op_size": ("read_size", "write_size"),
    "object_size": ("object_size",),
    "latency_mean_s": ("average_latency",),
    "latency_sd_s": ("stddev_latency",),
    "latency_max_s": ("max_latency", "max_latency:"),  # up to 12 the key had a colon
    "latency_min_s": ("min_latency",),
}


@dataclass(frozen=True)
class StatusLine:
    """Status line: `finished` operations and their mean latency since the start."""

    second: float
    wall: float | None  # epoch seconds, from --show-time
    in_flight: int
    started: int
    finished: int
    latency_mean_s: float | None  # None: not printed


@dataclass(frozen=True)
class RadosSample:
    """Sample of one second of a benchmark.

    `t_s` is the second's end, from the benchmark's start. The last sample ends with the benchmark
    and lasts 0.5 s or longer, if the benchmark does. `throughput_mb_s` is in 10^6 bytes per second;
    `latency_s` is the mean of the operations that finished within the second, None without any."""

    t_s: float
    wall: float | None
    throughput_mb_s: float
    iops: float
    latency_s: float | None
    in_flight: int


@dataclass(frozen=True)
class BenchOutput:
    """Output of one `rados bench`. Totals are None if it ended before it printed them."""

    rows: tuple[StatusLine, ...]
    seconds: float | None
    operations: int | None
    op_size: int | None
    object_size: int | None
    latency_mean_s: float | None
    latency_sd_s: float | None  # printed for writes only
    latency_max_s: float | None
    latency_min_s: float | None
    incorrect: int = 0  # objects with wrong content

    @property
    def complete(self) -> bool:
        """True if the benchmark ended by itself and printed its totals."""
        return self.seconds is not None and self.operations is not None

    @property
    def started_wall(self) -> float | None:
        """Epoch of the first status line, None without --show-time."""
        return self.rows[0].wall if self.rows else None


def parse_rados_bench(text: str) -> BenchOutput:
    """Parse standard output (standard error may be mixed in) of one `rados bench`.

    Raises:
        WorkloadError: the text is no rados bench output; the message has its last line.
    """
    document = _json_document(text)
    output = _from_text(text) if document is None else _from_json(document)
    if not output.rows and not output.complete:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if line != "hints = 1"), "no output")
        raise WorkloadError(f"rados bench did not run: {last[:300]}")
    return output


def samples(output: BenchOutput, op_size: int | None = None) -> list[RadosSample]:
    """Return the per-second series.

    The operations of a complete benchmark sum to its total; those of a benchmark that was cut off
    end with its last status line.

    Args:
        output: a parsed benchmark.
        op_size: bytes of an operation, for output that was cut off before it printed them.

    Raises:
        WorkloadError: the size is unknown, or the total is below the last status line.
    """
    size = output.op_size or op_size
    if size is None:
        raise WorkloadError("rados bench was cut off and its operation size is not known.")
    start_wall = output.started_wall
    rows = [
        StatusLine(0, start_wall, 0, 0, 0, 0.0),
        *(row for row in output.rows if row.second > 0),
    ]
    if output.seconds is not None and output.operations is not None:
        _append_end(rows, output, output.seconds - _elapsed(rows[-1], start_wall))
    return [_sample(before, row, size, start_wall) for before, row in pairwise(rows)]


def _elapsed(row: StatusLine, start_wall: float | None) -> float:
    if row.wall is None or start_wall is None:
        return float(row.second)
    return row.wall - start_wall


def _append_end(rows: list[StatusLine], output: BenchOutput, rest: float) -> None:
    # Operations after the last status line, `rest` seconds before the end.
    last = rows[-1]
    assert output.operations is not None
    if output.operations < last.finished:
        raise WorkloadError(
            f"rados bench printed {output.operations} operations in all, but {last.finished} after "
            f"{last.second:g} s: its output is damaged; run it again."
        )
    if len(rows) == 1 and rest <= 0:
        return  # nothing was done
    end = replace(
        last,
        second=last.second + max(0.0, rest),
        wall=None if last.wall is None else last.wall + max(0.0, rest),
        in_flight=0,
        finished=output.operations,
        latency_mean_s=output.latency_mean_s,
    )
    if rest < MIN_TAIL_S and len(rows) > 1:
        rows[-1] = replace(end, in_flight=last.in_flight)
    else:
        rows.append(end)


def _sample(
    before: StatusLine, row: StatusLine, size: int, start_wall: float | None
) -> RadosSample:
    t_s = _elapsed(row, start_wall)
    interval = t_s - _elapsed(before, start_wall)
    finished = row.finished - before.finished
    latency = None
    if finished > 0 and row.latency_mean_s is not None:
        # Both means are printed with six digits: rounding may leave a tiny negative rest.
        earlier = (before.latency_mean_s or 0.0) * before.finished
        total = row.latency_mean_s * row.finished - earlier
        latency = max(0.0, total / finished)
    return RadosSample(
        t_s=t_s,
        wall=row.wall,
        throughput_mb_s=finished * size / interval / 1e6,
        iops=finished / interval,
        latency_s=latency,
        in_flight=row.in_flight,
    )


def _in_order(rows: Iterator[StatusLine]) -> tuple[StatusLine, ...]:
    """Return the consecutive rows, on the wall clock of the first row. rados bench counts its
    seconds by a clock that is never set, but prints the wall clock, which may be set meanwhile."""
    kept: list[StatusLine] = []
    shift = 0.0
    for row in rows:
        last = kept[-1] if kept else None
        # A log line that looks like a status line would run backwards.
        if last and (row.second <= last.second or row.finished < last.finished):
            continue
        wall = None if row.wall is None else row.wall + shift
        if last and last.wall is not None and wall is not None:
            step = wall - last.wall - (row.second - last.second)
            if abs(step) > CLOCK_SET_S:
                shift, wall = shift - step, wall - step
            elif wall <= last.wall:
                continue
        kept.append(replace(row, wall=wall))
    return tuple(kept)


def _from_text(text: str) -> BenchOutput:
    def rows(lines: Sequence[str]) -> Iterator[StatusLine]:
        for line in lines:
            found = _ROW.search(line)
            if found is None:
                continue
            stamp = _STAMP.match(line)
            mean = float(found["avg_lat"])
            yield StatusLine(
                second=int(found["sec"]),
                wall=None if stamp is None else datetime.fromisoformat(stamp[1]).timestamp(),
                in_flight=int(found["in_flight"]),
                started=int(found["started"]),
                finished=int(found["finished"]),
                latency_mean_s=mean if math.isfinite(mean) else 0.0,
            )

    lines = text.splitlines()
    totals: dict[str, str] = {}
    for line in lines:
        for key, pattern in _TOTAL_LINES.items():
            found = pattern.search(line)
            if found is not None:
                totals[key] = found[1]
    incorrect = sum(1 for line in lines if line.rstrip().endswith("is not correct!"))
    return _output(_in_order(rows(lines)), totals, incorrect)


def _json_document(text: str) -> dict[str, Any] | None:
    # `hints = 1` and log lines may precede the document on standard output.
    for found in re.finditer(r'^\{(?=\s*")', text, flags=re.MULTILINE):
        try:
            document, _ = json.JSONDecoder().raw_decode(text, found.start())
        except ValueError:
            continue
        if isinstance(document, dict) and "datas" in document:
            return document
    return None


def _from_json(document: dict[str, Any]) -> BenchOutput:
    # Up to 19 every number is a string.
    rows = (
        StatusLine(
            second=int(item["sec"]),
            wall=None,
            in_flight=int(item["cur_ops"]),
            started=int(item["started"]),
            finished=int(item["finished"]),
            latency_mean_s=float(item["avg_lat"]),
        )
        for item in document["datas"]
    )
    totals = {
        key: str(document[name])
        for key, names in _JSON_TOTALS.items()
        for name in names
        if name in document
    }
    return _output(_in_order(rows), totals, 0)


def _output(rows: tuple[StatusLine, ...], totals: dict[str, str], incorrect: int) -> BenchOutput:
    def number(key: str) -> float | None:
        value = float(totals[key]) if key in totals else None
        return value if value is None or math.isfinite(value) else None

    def whole(key: str) -> int | None:
        value = number(key)
        return None if value is None else int(value)

    return BenchOutput(
        rows=rows,
        seconds=number("seconds"),
        operations=whole("operations"),
        op_size=whole("op_size"),
        object_size=whole("object_size"),
        latency_mean_s=number("latency_mean_s"),
        latency_sd_s=number("latency_sd_s"),
        latency_max_s=number("latency_max_s"),
        latency_min_s=number("latency_min_s"),
        incorrect=incorrect,
    )
