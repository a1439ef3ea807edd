"""Reads an archive: of the real COSBench (0.4.2) and of cosdrive alike.

::

    archive/run-history.csv, workloads.csv          one line a workload, an operation
    archive/w1-NAME/w1-NAME.csv                     results, a line an operation of a stage
    archive/w1-NAME/s3-main.csv                     the stage's series, every `interval` seconds
    archive/w1-NAME/w1-NAME-rt-histogram.csv        response times in buckets of 10 ms
    archive/w1-NAME/workload-config.xml, workload.log
    archive/w1-NAME/histograms.json, series.csv     cosdrive alone, see `detail`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from schemas.errors import UserError
from schemas.names import safe_path
from workloads.cosbench import detail, tables_of_stages, xml_text
from workloads.cosbench.csv_file import MISSING, Row, table
from workloads.cosbench.results import Archive, Buckets, Moment, Result, Run, Stage, with_parts

PERCENTS = (60, 80, 90, 95, 99, 100)
RESULTS = (
    *("Stage", "Op-Name", "Op-Type", "Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime"),
    *(f"{percent}%-ResTime" for percent in PERCENTS),
    *("Throughput", "Bandwidth", "Succ-Ratio", "Status", "Detailed Status"),
)
MATRIX = ("Id", "Op-Name", "Op-Count", "Byte-Count", "Worker-Count")
HISTORY = (
    *("Id", "Name", "Submitted-At", "Started-At", "Stopped-At", "Op-Info", "State"),
    "Detailed State",
)
HISTOGRAM = "-rt-histogram.csv"
CONFIG, LOG = "workload-config.xml", "workload.log"

_STATUS = RESULTS.index("Status")
_GOOD = frozenset({"completed", "finished"})
_BAD = frozenset({"failed", "terminated", "aborted", "cancelled"})
_WORKLOAD = re.compile(r"^(w\d+)-(.+)$")
_STAGE = re.compile(r"^s\d+-(.+)$")


def folders(root: Path) -> dict[str, Path]:
    """The workloads of an archive, name of the folder by its file of results: ``w1-NAME``.

    `root` is the archive, or the folder of one workload.

    Raises:
        UserError: it is neither.
    """
    if not root.is_dir():
        raise UserError(f"{root} is no folder: name an archive of COSBench, or a workload in it.")
    found = {}
    for folder in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        for path in sorted(folder.glob("w*-*.csv")):
            # Beside it are files of the same beginning, the stages' are called otherwise.
            beside = path.name.endswith(HISTOGRAM) or path.stem.endswith("-worker")
            # A workload may be called so itself: then its folder is.
            if _WORKLOAD.match(path.stem) and (not beside or path.stem == folder.name):
                found[path.stem] = folder
    if not found:
        raise UserError(
            f"{root} holds no archive of COSBench: a folder such as w1-NAME with w1-NAME.csv in it "
            "is looked for."
        )
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:].partition("-")[0])))


def read_archive(folder: Path, workload: str | None = None) -> Archive:
    """A finished workload.

    Args:
        folder: its folder, or an archive.
        workload: which of an archive, by id (``w1``) or by name; may be left out if it has one.

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
        raise UserError(f"{folder} holds {which}: say which one; there are {names}.")
    return _read(found[chosen[0]], chosen[0])


def read_history(root: Path) -> tuple[Run, ...]:
    """The lines of an archive's ``run-history.csv``.

    Raises:
        UserError: it is not there, or damaged.
    """
    return tuple(_run(row) for row in table(root / "run-history.csv", HISTORY))


def _run(row: Row) -> Run:
    def moment(place: int) -> datetime | None:
        return None if row.text(place) in ("", MISSING) else row.moment(place)

    history = _moments(row, 7)
    return Run(
        id=row.text(0),
        name=row.text(1),
        submitted=moment(2),
        started=moment(3),
        stopped=moment(4),
        operations=tuple(row.text(5).split()),
        state=_ended(row.text(6), history),
        history=history,
    )


def _read(folder: Path, stem: str) -> Archive:
    match = _WORKLOAD.match(stem)
    assert match is not None
    stages = list(_stages(folder / f"{stem}.csv"))
    buckets: Mapping[tuple[str, str, int], Buckets] = {}
    warnings: list[str] = []
    histogram = folder / f"{stem}{HISTOGRAM}"
    read = {f"{stem}.csv", CONFIG, LOG}
    if histogram.exists():
        read.add(histogram.name)
        named = [(stage.id, result.op) for stage in stages for result in stage.results]
        buckets = tables_of_stages.histograms(histogram, named)
        if not buckets and any(stage.results and not stage.special for stage in stages):
            warnings.append(_without(histogram, "histogram"))
    workers = _workers(folder, match[1])
    full = []
    for stage in stages:
        path = folder / safe_path(f"{stage.id}.csv", str(folder))
        series = {}
        if path.exists():
            read.add(path.name)
            begun = stage.at("running") or stage.at("launching") or stage.at("booting")
            series = tables_of_stages.series(path, begun)
            if stage.results and not series:
                warnings.append(_without(path, "series"))
        results = []
        for place, (key, result) in enumerate(_numbered(stage), 1):
            results.append(
                with_parts(
                    result,
                    workers=workers.get((stage.id, place)),
                    series=series.get(key, ()),
                    buckets=buckets.get((stage.id, *key), ()),
                )
            )
        full.append(Stage(stage.id, stage.name, stage.status, stage.history, tuple(results)))
    driver, measured, seconds = detail.read(folder)
    read |= {detail.HISTOGRAMS, detail.SERIES}
    config = None
    with suppress(OSError, UnicodeDecodeError):
        config = xml_text.masked((folder / CONFIG).read_text())
    unread = sorted(path.name for path in folder.iterdir() if path.is_file() and _alien(path, read))
    return Archive(
        folder=folder,
        id=match[1],
        name=match[2],
        stages=tuple(full),
        config=config,
        driver=driver,
        measured=measured,
        seconds=seconds,
        unread=tuple(unread),
        warnings=tuple(warnings),
    )


def _without(path: Path, what: str) -> str:
    return f"{path} is empty: the results of its operations are read without a {what}."


def _alien(path: Path, read: set[str]) -> bool:
    # In the folder of a whole archive lie that archive's own files.
    return path.name not in read | {"run-history.csv", "workloads.csv", ".meta"}


def _numbered(stage: Stage) -> Iterator[tuple[tuple[str, int], Result]]:
    """Results with ((name, which of that name), ...): names need not be unique."""
    seen: dict[str, int] = {}
    for result in stage.results:
        number = seen[result.op] = seen.get(result.op, 0) + 1
        yield (result.op, number), result


def _stages(path: Path) -> Iterator[Stage]:
    rows: dict[tuple[str, int], list[Row]] = {}
    for row in table(path, RESULTS):
        # The history is as long as it likes: its first state tells where the numbers end.
        if row.text(1) != MISSING:
            first = next((n for n, cell in enumerate(row.cells) if " @ " in cell), 0)
            row.check_width(first - 1, _STATUS)
        # Stages without operations have no id, only a name, which others may have too.
        alone = row.line if row.text(1) == MISSING else 0
        rows.setdefault((row.text(0), alone), []).append(row)
    for (identity, _), found in rows.items():
        results = tuple(_result(row) for row in found if row.text(1) != MISSING)
        status, history = _state(found[0])
        name = _STAGE.match(identity)
        yield Stage(identity, name[1] if name else identity, status, history, results)


def _state(row: Row) -> tuple[str, tuple[Moment, ...]]:
    place = _STATUS
    if row.text(1) == MISSING:
        # A stage without operations; how many N/A stand there differs between releases.
        place = next((p for p in range(1, len(row.cells)) if row.text(p) != MISSING), _STATUS)
    history = _moments(row, place + 1)
    return _ended(row.text(place), history), history


def _ended(state: str, history: tuple[Moment, ...]) -> str:
    """Return `state`, or the one in which it failed before COSBench called it completed."""
    bad = (moment.state for moment in history if moment.state in _BAD)
    return next(bad, state) if state in _GOOD else state


def _moments(row: Row, first: int) -> tuple[Moment, ...]:
    """States are separated like columns: all that is left of the row."""
    found = []
    for place in range(first, len(row.cells)):
        text = row.text(place)
        if text in ("", MISSING):
            continue
        state, at, when = text.partition(" @ ")
        if not at:
            row.wrong(place, f"{text!r} is no state with a time")
        found.append(Moment(state, row.when(place, when)))
    return tuple(found)


def _result(row: Row) -> Result:
    return Result(
        stage=row.text(0),
        op=row.text(1),
        type=row.text(2),
        operations=row.count(3),
        bytes=row.count(4),
        mean_s=row.seconds(5),
        processing_s=row.seconds(6),
        percentiles_s={percent: row.percentile(7 + n) for n, percent in enumerate(PERCENTS)},
        operations_s=row.rate(13),
        bytes_s=row.rate(14),
        success=row.share(15),
    )


def _workers(folder: Path, identity: str) -> Mapping[tuple[str, int], int]:
    """(stage, place of the operation in it) -> workers, from the archive's ``workloads.csv``,
    which lies beside the workload's folder."""
    found: dict[tuple[str, int], int] = {}
    for path in (folder.parent / "workloads.csv", folder / "workloads.csv"):
        if not path.exists():
            continue
        for row in table(path, MATRIX):
            stage, dash, place = row.text(0).removeprefix(f"{identity}-").rpartition("-")
            if row.text(0).startswith(f"{identity}-") and dash and place.isdigit():
                found[stage, int(place)] = row.count(4)
    return found
