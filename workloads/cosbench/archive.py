"""Archives of workloads: of the real COSBench (0.4.2) and of cosdrive alike.

::

    archive/run-history.csv, workloads.csv          one line per workload, operation
    archive/w1-NAME/w1-NAME.csv                     results, a line per operation of a stage
    archive/w1-NAME/s3-main.csv                     the stage's series, every `interval` seconds
    archive/w1-NAME/w1-NAME-rt-histogram.csv        response times in buckets of 10 ms
    archive/w1-NAME/workload-config.xml, workload.log
    archive/w1-NAME/histograms.json, series.csv     only cosdrive: full histograms, seconds

Times are in seconds, rates per second.
"""

from __future__ import annotations

import csv
import html
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

from pydantic import TypeAdapter, ValidationError

from schemas.errors import UserError
from schemas.names import safe_path
from workloads.cosbench.credentials import masked

SPECIAL = frozenset({"init", "prepare", "cleanup", "dispose", "delay"})
"""Operations that prepare or clean up a store: they do not measure it."""

FOREVER_NS = 2**63 - 1
"""End of a last bucket without an end."""

PERCENTS = (60, 80, 90, 95, 99, 100)
RESULTS = (
    *(
        "Stage",
        "Op-Name",
        "Op-Type",
        "Op-Count",
        "Byte-Count",
        "Avg-ResTime",
        "Avg-ProcTime",
    ),
    *(f"{percent}%-ResTime" for percent in PERCENTS),
    *("Throughput", "Bandwidth", "Succ-Ratio", "Status", "Detailed Status"),
)
MATRIX = ("Id", "Op-Name", "Op-Count", "Byte-Count", "Worker-Count")
GROUPS = (
    *("Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime", "Throughput", "Bandwidth"),
    "Succ-Ratio",
)
SECONDS = (
    *("second", "stage", "op", "tenant", "ops", "bytes", "errors", "mean_s", "p95_s", "work"),
    "measured",
)
HISTOGRAM = "-rt-histogram.csv"
CONFIG, LOG = "workload-config.xml", "workload.log"
FULL_HISTOGRAMS, FULL_SERIES = "histograms.json", "series.csv"
MISSING = "N/A"

_STATUS = RESULTS.index("Status")
_GOOD = frozenset({"completed", "finished"})
_BAD = frozenset({"failed", "terminated", "aborted", "cancelled"})
_WORKLOAD = re.compile(r"^(w\d+)-(.+)$")
_STAGE = re.compile(r"^s\d+-(.+)$")
_BUCKET = re.compile(r"^(\d+)~(\d+|\+INF)$")
_TIME = re.compile(r"^([01]\d|2[0-3]):([0-5]\d):([0-5]\d)$")
_MS = 1_000_000

Buckets = tuple[tuple[int, int, int], ...]
"""(low_ns, high_ns, count): operations with low <= time < high, nanoseconds."""

Key = tuple[str, int]
"""Name of an operation, and its number among operations of this name: names may repeat."""


def quantile_s(buckets: Buckets, share: float) -> float | None:
    """Return the upper end of the bucket that holds the quantile, seconds.

    It is infinity for a last bucket without an end, None without buckets.

    Args:
        buckets: in rising order.
        share: 0 to 1.
    """
    total = sum(count for _, _, count in buckets)
    seen = 0
    for _, high, count in buckets:
        seen += count
        if count and seen >= share * total:
            return math.inf if high == FOREVER_NS else high / 1e9
    return None


@dataclass(frozen=True)
class Failures:
    """Number of failed operations that a percentage of two decimals allows."""

    likely: int
    least: int
    most: int

    @property
    def exact(self) -> int | None:
        """The number, if only one is possible."""
        return self.likely if self.least == self.most else None

    def __str__(self) -> str:
        if self.exact is not None:
            return str(self.exact)
        return f"{self.likely} ({self.least} to {self.most})"


def failures_of(operations: int, success: float | None) -> Failures | None:
    """Return the failures that follow from the successful operations and their share of all.

    Args:
        operations: the successful operations.
        success: their share, rounded to 1e-4; None if it was not printed.

    Returns:
        None if nothing succeeded.
    """
    hundredths = round((success or 0.0) * 1e4)
    if not operations or not hundredths:
        return None
    # All operations times 2e4 / operations is within the rounding: half of 1e-4 to both sides.
    least = -(-20_000 * operations // min(2 * hundredths + 1, 20_000)) - operations
    most = max(least, 20_000 * operations // (2 * hundredths - 1) - operations)
    likely = round(operations * 1e4 / hundredths) - operations
    return Failures(min(max(likely, least), most), least, most)


@dataclass(frozen=True)
class Moment:
    """Time at which a stage entered a state, in the controller's local time."""

    state: str
    at: datetime


@dataclass(frozen=True)
class SeriesPoint:
    """Line of a stage's series: the work since the line before.

    `t_s` counts from the stage's beginning to the line's time, whole seconds.
    """

    t_s: float
    operations: int
    bytes: int
    mean_s: float | None
    processing_s: float | None
    operations_s: float
    bytes_s: float
    success: float | None


@dataclass(frozen=True)
class OperationResult:
    """Result of one operation of a stage.

    `operations` were successful; `success` is their share of all. `mean_s` is the time to the last
    byte, `processing_s` the time to the first byte. `percentiles_s` maps 60, 80, 90, 95, 99 and 100
    to the upper edge of COSBench's buckets of 10 ms: infinity beyond the last one. `operations_s`
    is the sum over workers of each worker's operations by its time. `buckets` are COSBench's, of
    normal operations only.
    """

    stage: str
    op: str
    type: str
    operations: int
    bytes: int
    mean_s: float | None
    processing_s: float | None
    percentiles_s: Mapping[int, float | None]
    operations_s: float
    bytes_s: float
    success: float | None
    workers: int | None = None
    series: tuple[SeriesPoint, ...] = ()
    buckets: Buckets = ()

    @property
    def failures(self) -> Failures | None:
        """Failed operations, as far as the share allows; None if nothing succeeded."""
        return failures_of(self.operations, self.success)


@dataclass(frozen=True)
class CosbenchStage:
    """Stage of a workload.

    `id` is COSBench's (``s3-main``), `status` its last state, or the one in which it failed before
    COSBench called it completed.
    """

    id: str
    name: str
    status: str
    history: tuple[Moment, ...]
    results: tuple[OperationResult, ...]

    @property
    def special(self) -> bool:
        """True if it only prepares or cleans up the store."""
        return all(result.type in SPECIAL for result in self.results)

    def at(self, state: str) -> datetime | None:
        """Return the first time in a state; None if it never entered the state."""
        return next((moment.at for moment in self.history if moment.state == state), None)

    def result(self, op: str) -> OperationResult:
        """Return the operation of this name.

        Raises:
            UserError: there is none, or more than one.
        """
        found = [result for result in self.results if result.op == op]
        if len(found) != 1:
            names = ", ".join(result.op for result in self.results) or "none"
            raise UserError(
                f"has {len(found)} operations {op!r}", where=f"stage {self.id}", allowed=names
            )
        return found[0]


@dataclass(frozen=True)
class MeasuredOperation:
    """Operation of a stage in cosdrive's own file: full resolution.

    The stage began at `started_at` (seconds since the epoch); the seconds `begin_s` to `end_s` of
    it count (None: to its end). `failed` counts by kind. In an open loop the latency is from the
    intended beginning of each operation.
    """

    stage: str
    work: str
    op: str
    type: str
    started_at: float
    begin_s: float
    end_s: float | None
    operations: int
    bytes: int
    failed: Mapping[str, int]
    operations_s: float
    bytes_s: float
    mean_s: float | None
    max_s: float | None
    buckets: Buckets

    def quantile_s(self, share: float) -> float | None:
        """Return a quantile of the latency, seconds; None if nothing was measured."""
        found = quantile_s(self.buckets, share)
        # A bucket ends beyond the largest latency in it.
        return found if found is None or self.max_s is None else min(found, self.max_s)


@dataclass(frozen=True)
class OperationSecond:
    """Ended operations of one kind in one second of a run of cosdrive.

    `t_s` is the second's beginning, from the run's. `measured`: all of it counts.
    """

    t_s: float
    stage: str
    work: str
    op: str
    tenant: str
    operations: int
    bytes: int
    failed: int
    mean_s: float | None
    p95_s: float | None
    measured: bool


@dataclass(frozen=True)
class Driver:
    """Run of cosdrive: epochs, seed, and the open loop's rate and arrivals (None: closed)."""

    state: str
    started_at: float
    stopped_at: float
    seed: int
    rate: float | None
    arrivals: str | None


@dataclass(frozen=True)
class Archive:
    """Finished workload.

    `driver`, `measured` and `seconds` come from cosdrive's own files: a real COSBench has none.
    `config` is the workload's XML with its secrets masked. `unread` names files that are not read
    here. `warnings` are sentences about files without content.
    """

    folder: Path
    id: str
    name: str
    stages: tuple[CosbenchStage, ...]
    config: str | None = field(default=None, repr=False)
    driver: Driver | None = None
    measured: tuple[MeasuredOperation, ...] = ()
    seconds: tuple[OperationSecond, ...] = ()
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def stage(self, name: str) -> CosbenchStage:
        """Return a stage by name or id.

        Raises:
            UserError: there is none, or more than one of this name.
        """
        found = [stage for stage in self.stages if name in (stage.id, stage.name)]
        if len(found) != 1:
            ids = ", ".join(stage.id for stage in self.stages)
            raise UserError(f"has {len(found)} stages {name!r}", where=self.folder, allowed=ids)
        return found[0]

    @property
    def main(self) -> tuple[CosbenchStage, ...]:
        """Stages that measure: all except special ones."""
        return tuple(stage for stage in self.stages if stage.results and not stage.special)

    @property
    def finished(self) -> bool:
        """True if every stage completed."""
        return all(stage.status == "completed" for stage in self.stages)

    def _repr_html_(self) -> str:
        rows = []
        for stage in self.main:
            for result in stage.results:
                mean = "" if result.mean_s is None else f"{1e3 * result.mean_s:.1f}"
                rates = (f"{result.operations_s:.1f}", f"{result.bytes_s / 1e6:.2f}")
                cells = (stage.name, result.op, *rates, mean)
                rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
        head = "".join(f"<th>{one}</th>" for one in ("stage", "op", "op/s", "MB/s", "mean [ms]"))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><caption>{html.escape(self.name)}</caption><tr>{head}</tr>{body}</table>"


_COMMA = (
    "numbers with a decimal comma cannot be read; write them with a point, or run COSBench's "
    "controller again with the Java options -Duser.language=en -Duser.country=US"
)


class CsvRow:
    """Row of a CSV file; its errors name file, line and column."""

    def __init__(self, file: Path, line: int, cells: Sequence[str], names: Sequence[str]) -> None:
        self.file = file
        self.line = line
        self.cells = cells
        self.names = names

    def wrong(self, place: int, why: str) -> NoReturn:
        """Raise UserError about a column."""
        name = self.names[place] if place < len(self.names) else ""
        column = f"column {place + 1}" + (f" ({name})" if name else "")
        raise UserError(why, where=f"{self.file}, line {self.line}, {column}")

    def check_width(self, columns: int, most: int) -> None:
        """Raise UserError if the row has more than the `most` columns of its heading."""
        if columns > most:
            self.wrong(most, f"{columns} columns stand where the heading has {most}: {_COMMA}")

    def text(self, place: int) -> str:
        """Return a column's text; raise UserError if the row ends before it."""
        if place >= len(self.cells):
            self.wrong(place, "the row ends before it")
        return self.cells[place].strip()

    def count(self, place: int) -> int:
        """Return a whole number, 0 or more."""
        text = self.text(place)
        if not text.isascii() or not text.isdigit():
            self.wrong(place, f"{text!r} is no count")
        return int(text)

    def number(self, place: int) -> float | None:
        """Return a number, 0 or more; None for N/A or nothing."""
        text = self.text(place)
        return None if text in (MISSING, "") else self._float(place, text)

    def seconds(self, place: int) -> float | None:
        """Return milliseconds as seconds, infinity beyond the last bucket, None for N/A."""
        if self.text(place) == str(FOREVER_NS):
            return math.inf
        value = self.number(place)
        # COSBench writes two places: digits beyond nine are noise of the division.
        return None if value is None else round(value / 1e3, 9)

    def rate(self, place: int) -> float:
        """Return a number, 0 or more; 0 for N/A."""
        return self.number(place) or 0.0

    def share(self, place: int) -> float | None:
        """Return ``99.5%`` as 0.995; None for N/A."""
        text = self.text(place)
        if text == MISSING:
            return None
        if not text.endswith("%"):
            self.wrong(place, f"{text!r} is no percentage")
        # To seven places: 99.9 / 100 is 0.9990000000000001.
        return round(self._float(place, text[:-1]) / 100, 7)

    def _float(self, place: int, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            comma = f"; {_COMMA}" if "," in text else ""
            self.wrong(place, f"{text!r} is no number{comma}")
        if not 0 <= value < math.inf:
            self.wrong(place, f"{text!r} is no number of 0 or more")
        return value


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of a file, without empty lines."""
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            reader = csv.reader(handle, strict=True)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot be read as CSV: {reason}", where=path) from error


def _table(path: Path, heading: Sequence[str]) -> Iterator[CsvRow]:
    """Yield the rows of a file that begins with `heading`; more columns may follow."""
    found = _lines(path)
    number, names = next(found, (1, []))
    for place, name in enumerate(heading):
        if place >= len(names) or names[place].strip() != name:
            stands = repr(names[place]) if place < len(names) else "the line's end"
            CsvRow(path, number, names, heading).wrong(place, f"{stands} stands there")
    for number, cells in found:
        yield CsvRow(path, number, cells, heading)


def folders(root: Path) -> dict[str, Path]:
    """Return the workloads of an archive: name of the results (``w1-NAME``) to folder.

    `root` is the archive, or the folder of one workload.

    Raises:
        UserError: it is neither.
    """
    if not root.is_dir():
        raise UserError(
            "is no folder", where=root, do="name an archive of COSBench, or a workload in it"
        )
    found = {}
    for folder in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        for path in sorted(folder.glob("w*-*.csv")):
            # Other files of the folder have similar names; a workload's name may end like theirs.
            other = path.name.endswith(HISTOGRAM) or path.stem.endswith("-worker")
            if _WORKLOAD.match(path.stem) and (not other or path.stem == folder.name):
                found[path.stem] = folder
    if not found:
        raise UserError(
            "holds no archive of COSBench",
            where=root,
            allowed="a folder such as w1-NAME with w1-NAME.csv in it",
        )
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:].partition("-")[0])))


def read_archive(folder: Path, workload: str | None = None) -> Archive:
    """Read a finished workload.

    Args:
        folder: its folder, or an archive.
        workload: id (``w1``) or name in an archive; may be left out if it has only one.

    Raises:
        UserError: there is none, more than one, or a file is damaged: which, where and how.
    """
    found = folders(folder)
    if workload is not None:
        chosen = [stem for stem in found if workload in (stem, *stem.split("-", 1))]
    else:
        chosen = list(found)
    if len(chosen) != 1:
        names = ", ".join(found)
        which = f"{len(chosen)} workloads {workload!r}" if workload else f"{len(found)} workloads"
        raise UserError(f"holds {which}", where=folder, allowed=names, do="say which one")
    return _read(found[chosen[0]], chosen[0])


def _read(folder: Path, stem: str) -> Archive:
    identity, _, name = stem.partition("-")
    stages = list(_stages(folder / f"{stem}.csv"))
    buckets: Mapping[tuple[str, str, int], Buckets] = {}
    warnings: list[str] = []
    empty = "{} is empty: the results of its operations are read without a {}."
    histogram = folder / f"{stem}{HISTOGRAM}"
    read = {f"{stem}.csv", CONFIG, LOG, histogram.name, FULL_HISTOGRAMS, FULL_SERIES}
    read |= {"run-history.csv", "workloads.csv", ".meta"}  # of the archive, if `folder` is a whole
    if histogram.exists():
        named = [(stage.id, result.op) for stage in stages for result in stage.results]
        buckets = histograms(histogram, named)
        if not buckets and any(stage.results and not stage.special for stage in stages):
            warnings.append(empty.format(histogram, "histogram"))
    workers = _workers(folder, identity)
    for number, stage in enumerate(stages):
        path = folder / safe_path(f"{stage.id}.csv", str(folder))
        points: Mapping[Key, tuple[SeriesPoint, ...]] = {}
        if path.exists():
            read.add(path.name)
            begun = stage.at("running") or stage.at("launching") or stage.at("booting")
            points = series(path, begun)
            if stage.results and not points:
                warnings.append(empty.format(path, "series"))
        seen: dict[str, int] = {}
        results = []
        for place, result in enumerate(stage.results, 1):
            key = (result.op, seen.get(result.op, 0) + 1)
            seen[result.op] = key[1]
            parts = (points.get(key, ()), buckets.get((stage.id, *key), ()))
            count = workers.get((stage.id, place))
            results.append(replace(result, workers=count, series=parts[0], buckets=parts[1]))
        stages[number] = replace(stage, results=tuple(results))
    driver, measured = _full_histograms(folder / FULL_HISTOGRAMS)
    config = None
    with suppress(OSError, UnicodeDecodeError):
        config = masked((folder / CONFIG).read_text())
    return Archive(
        folder=folder,
        id=identity,
        name=name,
        stages=tuple(stages),
        config=config,
        driver=driver,
        measured=measured,
        seconds=tuple(_full_series(folder / FULL_SERIES)),
        unread=tuple(sorted({path.name for path in folder.iterdir() if path.is_file()} - read)),
        warnings=tuple(warnings),
    )


def _stages(path: Path) -> Iterator[CosbenchStage]:
    rows: dict[tuple[str, int], list[CsvRow]] = {}
    for row in _table(path, RESULTS):
        # The history has any length: its first state shows where the numbers end.
        if row.text(1) != MISSING:
            first = next((n for n, cell in enumerate(row.cells) if " @ " in cell), 0)
            row.check_width(first - 1, _STATUS)
        # Stages without operations have no id, only a name, which is not unique.
        alone = row.line if row.text(1) == MISSING else 0
        rows.setdefault((row.text(0), alone), []).append(row)
    for (identity, alone), found in rows.items():
        row, place = found[0], _STATUS
        if alone:
            # The number of N/A differs between releases.
            place = next((p for p in range(1, len(row.cells)) if row.text(p) != MISSING), _STATUS)
        results = () if alone else tuple(_result(one) for one in found)
        history = _moments(row, place + 1)
        state = row.text(place)
        if state in _GOOD:  # it may have failed before COSBench called it completed
            state = next((one.state for one in history if one.state in _BAD), state)
        name = _STAGE.match(identity)
        yield CosbenchStage(identity, name[1] if name else identity, state, history, results)


def _moments(row: CsvRow, first: int) -> tuple[Moment, ...]:
    """Read states: they are separated like columns, and are the rest of the row."""
    found = []
    for place in range(first, len(row.cells)):
        text = row.text(place)
        if text in ("", MISSING):
            continue
        state, at, when = text.partition(" @ ")
        if not at:
            row.wrong(place, f"{text!r} is no state with a time")
        try:
            found.append(Moment(state, datetime.strptime(when, "%Y-%m-%d %H:%M:%S")))
        except ValueError:
            row.wrong(place, f"{when!r} is no date and time")
    return tuple(found)


def _result(row: CsvRow) -> OperationResult:
    return OperationResult(
        stage=row.text(0),
        op=row.text(1),
        type=row.text(2),
        operations=row.count(3),
        bytes=row.count(4),
        mean_s=row.seconds(5),
        processing_s=row.seconds(6),
        percentiles_s={percent: row.seconds(7 + n) for n, percent in enumerate(PERCENTS)},
        operations_s=row.rate(13),
        bytes_s=row.rate(14),
        success=row.share(15),
    )


def _workers(folder: Path, identity: str) -> Mapping[tuple[str, int], int]:
    """Return (stage, place of the operation in it) -> workers, from ``workloads.csv``.

    It belongs to the archive: it is next to the workload's folder.
    """
    found: dict[tuple[str, int], int] = {}
    for path in (folder.parent / "workloads.csv", folder / "workloads.csv"):
        for row in _table(path, MATRIX) if path.exists() else ():
            stage, dash, place = row.text(0).removeprefix(f"{identity}-").rpartition("-")
            if row.text(0).startswith(f"{identity}-") and dash and place.isdigit():
                found[stage, int(place)] = row.count(4)
    return found


def series(path: Path, begun: datetime | None) -> dict[Key, tuple[SeriesPoint, ...]]:
    """Read a stage's series by operation.

    Two rows are its heading: the first names groups of columns, the second the operation of each
    column. Lines have only the time of day. An interval in which no operation ended has one
    column per group, for all operations together. A file without lines gives nothing.

    Args:
        path: ``sK-NAME.csv``.
        begun: start of the stage; without it times count from the first line.

    Raises:
        UserError: the file is damaged; where.
    """
    found = _lines(path)
    first, names = next(found, (1, ["Timestamp"]))
    second, ops = next(found, (2, []))
    if names[0].strip() != "Timestamp":
        CsvRow(path, first, names, ("Timestamp",)).wrong(0, "Timestamp does not stand there")
    columns = _columns(CsvRow(path, second, ops, ()), names)
    points: dict[Key, list[SeriesPoint]] = {key: [] for key in columns}
    last = begun
    for number, cells in found:
        row = CsvRow(path, number, cells, names)
        row.check_width(len(cells), len(ops))
        idle = len(columns) > 1 and len(cells) == len(ops) - len(GROUPS) * (len(columns) - 1)
        if idle and row.count(1):
            row.wrong(1, f"it counts {cells[1]} operations of an unknown kind")
        last = _after(row, last)
        begun = begun or last
        t_s = max(0.0, (last - begun).total_seconds())
        for key, (count, size, mean, processing, rate, bandwidth, success) in columns.items():
            points[key].append(
                SeriesPoint(t_s, 0, 0, None, None, 0.0, 0.0, None)
                if idle
                else SeriesPoint(
                    *(t_s, row.count(count), row.count(size), row.seconds(mean)),
                    *(row.seconds(processing), row.rate(rate), row.rate(bandwidth)),
                    row.share(success),
                )
            )
    return {key: tuple(each) for key, each in points.items() if each}


def _columns(row: CsvRow, names: Sequence[str]) -> dict[Key, list[int]]:
    """Return the columns of each operation, one per group in the order of `GROUPS`."""
    group, seen = "", dict[tuple[str, str], int]()
    found: dict[Key, dict[str, int]] = {}
    for place, op in enumerate(row.cells):
        named = names[place].strip() if place < len(names) else ""
        group = named or group
        if group in GROUPS:
            number = seen[group, op] = seen.get((group, op), 0) + 1
            found.setdefault((op.strip(), number), {})[group] = place
    for (op, _), places in found.items():
        missing = [name for name in GROUPS if name not in places]
        if missing:
            row.wrong(len(row.cells), f"operation {op!r} has no column {missing[0]}")
    return {key: [places[name] for name in GROUPS] for key, places in found.items()}


def _after(row: CsvRow, last: datetime | None) -> datetime:
    """Return the row's time: the first such time of day after `last`, past midnight or not."""
    text = row.text(0)
    match = _TIME.match(text)
    if match is None:
        row.wrong(0, f"{text!r} is no time of day")
    base = last or datetime(1970, 1, 1)
    hour, minute, second = (int(part) for part in match.groups())
    at = base.replace(hour=hour, minute=minute, second=second, microsecond=0)
    # Clocks of controller and driver differ by a second or two: this is no midnight.
    if at < base - timedelta(hours=12):
        return at + timedelta(days=1)
    if at > base + timedelta(hours=12) and last is not None:
        return at - timedelta(days=1)
    return at


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
    found = _lines(path)
    first, names = next(found, (1, ["ResTime"]))
    if names[0].strip() != "ResTime":
        CsvRow(path, first, names, ("ResTime",)).wrong(0, "ResTime does not stand there")
    columns: dict[int, tuple[str, str, int]] = {}
    seen: dict[tuple[str, str], int] = {}
    for place in range(1, len(names), 2):
        owner = _owner(CsvRow(path, first, names, names), place, operations)
        seen[owner] = seen.get(owner, 0) + 1
        columns[place] = (*owner, seen[owner])
    buckets: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {
        key: [] for key in columns.values()
    }
    line = first
    for line, cells in found:
        # 50,000 lines, nearly all zeros.
        if len(cells) == len(names) and not any(cell != "0" for cell in cells[1::2]):
            continue
        row = CsvRow(path, line, cells, names)
        row.check_width(len(cells), len(names))
        match = _BUCKET.match(row.text(0))
        if match is None:
            row.wrong(0, f"{row.text(0)!r} is no bucket such as 10~20")
        high = FOREVER_NS if match[2] == "+INF" else int(match[2]) * _MS
        for place, key in columns.items():
            if count := row.count(place):
                buckets[key].append((int(match[1]) * _MS, high, count))
    return {key: tuple(each) for key, each in buckets.items()} if line > first else {}


def _owner(row: CsvRow, place: int, operations: Sequence[tuple[str, str]]) -> tuple[str, str]:
    name = row.text(place)
    fitting = [
        (stage, op)
        for stage, op in operations
        if name.startswith(f"{stage}-w") and name.endswith(f"-{op}")
    ]
    if not fitting:
        row.wrong(place, f"{name!r} is no operation of this workload's results")
    return max(fitting, key=lambda each: len(each[0]) + len(each[1]))


_RENAMED = {
    **{"operation": "op", "ops": "operations", "errors": "failed", "throughput_s": "operations_s"},
    **{"bandwidth_bytes_s": "bytes_s", "window_begin_s": "begin_s", "window_end_s": "end_s"},
    **{"started_unix_s": "started_at", "stopped_unix_s": "stopped_at", "rate_s": "rate"},
}
"""Fields of `MeasuredOperation` and `Driver` with other names in cosdrive."""

_DRIVER = TypeAdapter(Driver)
_MEASURED = TypeAdapter(tuple[MeasuredOperation, ...])


def _full_histograms(path: Path) -> tuple[Driver | None, tuple[MeasuredOperation, ...]]:
    """Read cosdrive's ``histograms.json``, if there is one."""
    if not path.exists():
        return None, ()

    def renamed(document: Mapping[str, object]) -> dict[str, object]:
        return {_RENAMED.get(key, key): value for key, value in document.items()}

    try:
        document = json.loads(path.read_text())
        driver = {"rate": None, "arrivals": None, **renamed(document)}
        measured = [
            {**renamed(one), "stage": stage["stage"], "started_at": stage["started_unix_s"]}
            for stage in document["stages"]
            for one in stage["operations"]
        ]
        return _DRIVER.validate_python(driver), _MEASURED.validate_python(measured)
    except json.JSONDecodeError as error:
        raise UserError(
            f"no JSON ({error.msg})", where=f"{path}, line {error.lineno}, column {error.colno}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=path) from error
    except KeyError as error:
        raise UserError(f"{error.args[0]!r} is missing", where=path) from error
    except (TypeError, AttributeError, ValidationError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
        raise UserError(f"is not what cosdrive writes: {reason}", where=path) from error


def _full_series(path: Path) -> Iterator[OperationSecond]:
    """Read cosdrive's ``series.csv``, if there is one."""
    for row in _table(path, SECONDS) if path.exists() else ():
        if row.text(10) not in ("true", "false"):
            row.wrong(10, f"{row.text(10)!r} is neither true nor false")
        yield OperationSecond(
            t_s=float(row.count(0)),
            stage=row.text(1),
            work=row.text(9),
            op=row.text(2),
            tenant=row.text(3),
            operations=row.count(4),
            bytes=row.count(5),
            failed=row.count(6),
            mean_s=row.number(7),
            p95_s=row.number(8),
            measured=row.text(10) == "true",
        )
