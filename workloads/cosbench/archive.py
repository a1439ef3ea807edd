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
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from schemas.errors import UserError
from schemas.names import safe_path
from workloads.cosbench.credentials import masked

SPECIAL = frozenset({"init", "prepare", "cleanup", "dispose", "delay"})
"""Operations that prepare or clean up a store: they do not measure it."""

FOREVER_NS = 2**63 - 1
"""End of a last bucket without an end."""

PERCENTS = (60, 80, 90, 95, 99, 100)
RESULTS = (
    *("Stage", "Op-Name", "Op-Type", "Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime"),
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


@dataclass(frozen=True)
class MeasuredOperation:
    """Operation of a stage in cosdrive's own file: full resolution.

    The stage began at `started_at` (seconds since the epoch); the seconds `begin_s` to `end_s` of
    it count (None: to its end). `failed` counts by kind. In an open loop the latency is from the
    intended beginning of each operation.
    """

    stage: str
    work: str
    op: Annotated[str, Field(validation_alias="operation")]
    type: str
    started_at: float
    begin_s: Annotated[float, Field(validation_alias="window_begin_s")]
    end_s: Annotated[float | None, Field(validation_alias="window_end_s")]
    operations: Annotated[int, Field(validation_alias="ops")]
    bytes: int
    failed: Annotated[Mapping[str, int], Field(validation_alias="errors")]
    operations_s: Annotated[float, Field(validation_alias="throughput_s")]
    bytes_s: Annotated[float, Field(validation_alias="bandwidth_bytes_s")]
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
    started_at: Annotated[float, Field(validation_alias="started_unix_s")]
    stopped_at: Annotated[float, Field(validation_alias="stopped_unix_s")]
    seed: int
    rate: Annotated[float | None, Field(validation_alias="rate_s")] = None
    arrivals: str | None = None


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

    @property
    def main(self) -> tuple[CosbenchStage, ...]:
        """Stages that measure: all except special ones."""
        return tuple(stage for stage in self.stages if stage.results and not stage.special)

    @property
    def finished(self) -> bool:
        """True if every stage completed."""
        return all(stage.status == "completed" for stage in self.stages)


_COMMA = (
    "numbers with a decimal comma cannot be read; write them with a point, or run COSBench's "
    "controller again with the Java options -Duser.language=en -Duser.country=US"
)


@dataclass(frozen=True)
class CsvRow:
    """Row of a CSV file; its errors name file, line and column."""

    file: Path
    line: int
    cells: Sequence[str]
    names: Sequence[str]

    def wrong(self, place: int, why: str) -> NoReturn:
        """Raise UserError about a column."""
        name = f" ({self.names[place]})" if place < len(self.names) and self.names[place] else ""
        raise UserError(why, where=f"{self.file}, line {self.line}, column {place + 1}{name}")

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

    def number(self, place: int, end: str = "") -> float | None:
        """Return a number of 0 or more that ends in `end`; None for N/A or nothing."""
        text = self.text(place)
        if text in (MISSING, ""):
            return None
        try:
            value = float(text.removesuffix(end))
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf or not text.endswith(end):
            self.wrong(place, f"{text!r} is no number{f'; {_COMMA}' if ',' in text else ''}")
        return value

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
        value = self.number(place, "%")
        # To seven places: 99.9 / 100 is 0.9990000000000001.
        return None if value is None else round(value / 100, 7)


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
    _check_heading(CsvRow(path, *next(found, (1, [])), heading))
    for number, cells in found:
        yield CsvRow(path, number, cells, heading)


def _check_heading(row: CsvRow) -> None:
    for place, name in enumerate(row.names):
        if row.text(place) != name:
            row.wrong(place, f"{row.cells[place]!r} stands there")


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
    chosen = [stem for stem in found if workload in (None, stem, *stem.split("-", 1))]
    if len(chosen) != 1:
        names = ", ".join(found)
        which = f"{len(chosen)} workloads" + (f" {workload!r}" if workload else "")
        raise UserError(f"holds {which}", where=folder, allowed=names, do="say which one")
    return _read(found[chosen[0]], chosen[0])


def _read(folder: Path, stem: str) -> Archive:
    identity, _, name = stem.partition("-")
    stages = list(_stages(folder / f"{stem}.csv"))
    histogram = folder / f"{stem}{HISTOGRAM}"
    paths = [folder / safe_path(f"{stage.id}.csv", str(folder)) for stage in stages]
    read = {f"{stem}.csv", CONFIG, LOG, FULL_HISTOGRAMS, FULL_SERIES}
    read |= {"run-history.csv", "workloads.csv", ".meta"}  # of the archive, if `folder` is a whole
    read |= {path.name for path in (histogram, *paths)}
    buckets: Mapping[tuple[str, str, int], Buckets] = {}
    warnings: list[str] = []
    empty = "{} is empty: the results of its operations are read without a {}."
    if histogram.exists():
        named = [(stage.id, result.op) for stage in stages for result in stage.results]
        buckets = histograms(histogram, named)
        if not buckets and any(stage.results and not stage.special for stage in stages):
            warnings.append(empty.format(histogram, "histogram"))
    workers = _workers(folder, identity)
    for number, (stage, path) in enumerate(zip(stages, paths, strict=True)):
        points: Mapping[Key, tuple[SeriesPoint, ...]] = {}
        if path.exists():
            begun = stage.at("running") or stage.at("launching") or stage.at("booting")
            points = series(path, begun)
            if stage.results and not points:
                warnings.append(empty.format(path, "series"))
        seen = Counter[str]()
        results = []
        for place, result in enumerate(stage.results, 1):
            seen[result.op] += 1
            key = (result.op, seen[result.op])
            one = replace(result, workers=workers.get((stage.id, place)))
            one = replace(
                one, series=points.get(key, ()), buckets=buckets.get((stage.id, *key), ())
            )
            results.append(one)
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
        history = tuple(_moments(row, place + 1))
        state = row.text(place)
        if state in _GOOD:  # it may have failed before COSBench called it completed
            state = next((one.state for one in history if one.state in _BAD), state)
        name = re.sub(r"^s\d+-(?=.)", "", identity)
        yield CosbenchStage(identity, name, state, history, results)


def _moments(row: CsvRow, first: int) -> Iterator[Moment]:
    """Yield states: they are separated like columns, and are the rest of the row."""
    for place in range(first, len(row.cells)):
        text = row.text(place)
        if text in ("", MISSING):
            continue
        state, _, when = text.partition(" @ ")
        try:
            yield Moment(state, datetime.strptime(when, "%Y-%m-%d %H:%M:%S"))
        except ValueError:
            row.wrong(place, f"{text!r} is no state with a date and time")


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
    _check_heading(CsvRow(path, first, names, ("Timestamp",)))
    second, ops = next(found, (2, []))
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
    group, seen = "", Counter[tuple[str, str]]()
    found: dict[Key, dict[str, int]] = {}
    for place, op in enumerate(row.cells):
        group = (names[place].strip() if place < len(names) else "") or group
        if group in GROUPS:
            seen[group, op] += 1
            found.setdefault((op.strip(), seen[group, op]), {})[group] = place
    for (op, _), places in found.items():
        missing = [name for name in GROUPS if name not in places]
        if missing:
            row.wrong(len(row.cells), f"operation {op!r} has no column {missing[0]}")
    return {key: [places[name] for name in GROUPS] for key, places in found.items()}


def _after(row: CsvRow, last: datetime | None) -> datetime:
    """Return the row's time: the one nearest to `last`, past midnight or not."""
    text = row.text(0)
    if _TIME.match(text) is None:
        row.wrong(0, f"{text!r} is no time of day")
    time = datetime.strptime(text, "%H:%M:%S").time()
    at = datetime.combine(last or datetime(1970, 1, 1), time)
    if last is None:
        return at
    # Clocks of controller and driver differ by a second or two: this is no midnight.
    days = round((last - at) / timedelta(days=1))
    return at + timedelta(days=days)


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
    line, names = next(found, (1, ["ResTime"]))
    _check_heading(CsvRow(path, line, names, ("ResTime",)))
    columns: dict[int, tuple[str, str, int]] = {}
    seen = Counter[tuple[str, str]]()
    for place in range(1, len(names), 2):
        owner = _owner(CsvRow(path, line, names, names), place, operations)
        seen[owner] += 1
        columns[place] = (*owner, seen[owner])
    buckets: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {
        key: [] for key in columns.values()
    }
    empty = True
    for line, cells in found:
        empty = False
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
    return {} if empty else {key: tuple(each) for key, each in buckets.items()}


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


class _MeasuredStage(BaseModel):
    stage: str
    started_unix_s: float
    operations: list[dict[str, Any]]


class _FullHistograms(BaseModel):
    stages: list[_MeasuredStage]


_DRIVER = TypeAdapter(Driver)
_MEASURED = TypeAdapter(tuple[MeasuredOperation, ...])


def _full_histograms(path: Path) -> tuple[Driver | None, tuple[MeasuredOperation, ...]]:
    """Read cosdrive's ``histograms.json``, if there is one."""
    if not path.exists():
        return None, ()
    try:
        text = path.read_bytes()
        operations = [
            {**one, "stage": stage.stage, "started_at": stage.started_unix_s}
            for stage in _FullHistograms.model_validate_json(text).stages
            for one in stage.operations
        ]
        return _DRIVER.validate_json(text), _MEASURED.validate_python(operations)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise UserError(
            f"is not what cosdrive writes: {place} {first['msg']}", where=path
        ) from error


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
