"""The two wide tables of a COSBench archive: a stage's series, and the response times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from workloads.cosbench.csv_file import Row, lines
from workloads.cosbench.results import FOREVER_NS, Buckets, Point

GROUPS = (
    *("Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime", "Throughput", "Bandwidth"),
    "Succ-Ratio",
)
_MS = 1_000_000
_BUCKET = re.compile(r"^(\d+)~(\d+|\+INF)$")
_TIME = re.compile(r"^([01]\d|2[0-3]):([0-5]\d):([0-5]\d)$")
_HALF_DAY = timedelta(hours=12)


def series(path: Path, begun: datetime | None) -> dict[tuple[str, int], tuple[Point, ...]]:
    """A stage's series by operation: (its name, which of that name).

    Two rows are its heading: the first names groups of columns, the second the operation that each
    column is of. Lines have the time of day alone. An interval in which no operation ended has one
    column a group, for all operations together. A file without lines gives nothing.

    Args:
        path: ``sK-NAME.csv``.
        begun: when the stage began; without it times count from the first line.

    Raises:
        UserError: the file is damaged; where.
    """
    found = lines(path)
    first, names = next(found, (1, ["Timestamp"]))
    second, ops = next(found, (2, []))
    if names[0].strip() != "Timestamp":
        Row(path, first, names, ("Timestamp",)).wrong(0, "Timestamp does not stand there")
    columns = _columns(Row(path, second, ops, ()), names)
    points: dict[tuple[str, int], list[Point]] = {key: [] for key in columns}
    last = begun
    for number, cells in found:
        row = Row(path, number, cells, names)
        row.check_width(len(cells), len(ops))
        idle = len(columns) > 1 and len(cells) == len(ops) - len(GROUPS) * (len(columns) - 1)
        if idle and row.count(1):
            row.wrong(1, f"it counts {cells[1]} operations of an unknown kind")
        at = _after(row, last)
        begun, last = begun or at, at
        t_s = max(0.0, (at - begun).total_seconds())
        for key, places in columns.items():
            points[key].append(
                Point(t_s, 0, 0, None, None, 0.0, 0.0, None) if idle else _point(row, t_s, places)
            )
    return {key: tuple(each) for key, each in points.items() if each}


def _columns(row: Row, names: Sequence[str]) -> dict[tuple[str, int], list[int]]:
    """Columns of each operation, one a group in the order of `GROUPS`."""
    group, seen = "", dict[tuple[str, str], int]()
    found: dict[tuple[str, int], dict[str, int]] = {}
    for place, op in enumerate(row.cells):
        named = names[place].strip() if place < len(names) else ""
        group = named or group
        if group not in GROUPS:
            continue
        number = seen[group, op] = seen.get((group, op), 0) + 1
        found.setdefault((op.strip(), number), {})[group] = place
    for (op, _), places in found.items():
        missing = [name for name in GROUPS if name not in places]
        if missing:
            row.wrong(len(row.cells), f"operation {op!r} has no column {missing[0]}")
    return {key: [places[name] for name in GROUPS] for key, places in found.items()}


def _after(row: Row, last: datetime | None) -> datetime:
    """The row's time: the first such time of day after `last`, as midnight may have passed."""
    text = row.text(0)
    match = _TIME.match(text)
    if match is None:
        row.wrong(0, f"{text!r} is no time of day")
    base = last or datetime(1970, 1, 1)
    hour, minute, second = (int(part) for part in match.groups())
    at = base.replace(hour=hour, minute=minute, second=second, microsecond=0)
    # Clocks of controller and driver differ by a second or two: that is no midnight.
    if at < base - _HALF_DAY:
        return at + timedelta(days=1)
    if at > base + _HALF_DAY and last is not None:
        return at - timedelta(days=1)
    return at


def _point(row: Row, t_s: float, places: Sequence[int]) -> Point:
    count, size, mean, processing, operations_s, bytes_s, success = places

    return Point(
        t_s=t_s,
        operations=row.count(count),
        bytes=row.count(size),
        mean_s=row.seconds(mean),
        processing_s=row.seconds(processing),
        operations_s=row.rate(operations_s),
        bytes_s=row.rate(bytes_s),
        success=row.share(success),
    )


def histograms(
    path: Path, operations: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str, int], Buckets]:
    """Return the buckets with operations by (stage's id, operation, number of that name).

    A file without lines gives nothing.

    Args:
        path: ``wN-NAME-rt-histogram.csv``.
        operations: (stage's id, operation) of the workload: a column is called
            ``STAGE-wN-WORK-OPERATION``, and any of these may have dashes.

    Raises:
        UserError: the file is damaged; where.
    """
    found = lines(path)
    first, names = next(found, (1, ["ResTime"]))
    if names[0].strip() != "ResTime":
        Row(path, first, names, ("ResTime",)).wrong(0, "ResTime does not stand there")
    columns: dict[int, tuple[str, str, int]] = {}
    seen: dict[tuple[str, str], int] = {}
    for place in range(1, len(names), 2):
        stage, op = _owner(Row(path, first, names, names), place, operations)
        number = seen[stage, op] = seen.get((stage, op), 0) + 1
        columns[place] = (stage, op, number)
    buckets: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {
        key: [] for key in columns.values()
    }
    line = first
    for line, cells in found:
        # 50,000 lines, nearly all of them zeros.
        if len(cells) == len(names) and not any(cell != "0" for cell in cells[1::2]):
            continue
        row = Row(path, line, cells, names)
        row.check_width(len(cells), len(names))
        low, high = _bounds(row)
        for place, key in columns.items():
            if count := row.count(place):
                buckets[key].append((low, high, count))
    return {key: tuple(each) for key, each in buckets.items()} if line > first else {}


def _owner(row: Row, place: int, operations: Sequence[tuple[str, str]]) -> tuple[str, str]:
    name = row.text(place)
    fitting = [
        (stage, op)
        for stage, op in operations
        if name.startswith(f"{stage}-w") and name.endswith(f"-{op}")
    ]
    if not fitting:
        row.wrong(place, f"{name!r} is no operation of this workload's results")
    return max(fitting, key=lambda each: len(each[0]) + len(each[1]))


def _bounds(row: Row) -> tuple[int, int]:
    text = row.text(0)
    match = _BUCKET.match(text)
    if match is None:
        row.wrong(0, f"{text!r} is no bucket such as 10~20")
    high = FOREVER_NS if match[2] == "+INF" else int(match[2]) * _MS
    return int(match[1]) * _MS, high
