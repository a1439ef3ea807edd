"""Files of one campaign: run folders, ledger, and the disk space for them.

`RunStore`: `artifacts/<campaign>/<run-id>/attempt-N/`. An attempt is made in `.attempt-N.partial`
and renamed when it is complete. A folder without the leading dot is finished and never changes
again.

`Ledger`: append-only record of the engine's actions, one JSON line per event. The run folders are
the truth about results. The ledger records the attempts (started, spoiled, failed, interrupted,
adopted), including attempts that left nothing else.

`Reserve`: a file that is deleted when the disk is full, so that the failure can still be recorded.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from campaigns.engine.job import RUN_FILE, read_complete, utc_now, write_run
from schemas.durable import append_line, commit_folder, json_lines, make_folder
from schemas.errors import UserError
from schemas.run import Run, Summary
from testbed.closure import ROOT
from testbed.spec.quantities import format_bytes

RESULTS = ROOT if (ROOT / "Makefile").is_file() else Path()
"""Folder of a notebook's relative paths of results: the clone, or else the current folder."""
_ATTEMPT = re.compile(r"attempt-(\d+)")
_PARTIAL = re.compile(r"\.attempt-(\d+)\.partial")


class RunStore:
    """Store of one campaign's results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folder."""
        make_folder(self.folder)

    def done(self, run_id: str) -> int | None:
        """Return the number of a run's first finished attempt; None without one."""
        for number, path in self._numbered(run_id, _ATTEMPT):
            run = read_run(path)
            if run is not None and run.status == "done":
                return number
        return None

    def begin(self, run_id: str) -> tuple[int, Path]:
        """Return the number and the new, empty working folder of the next attempt."""
        taken = [number for number, _ in self._numbered(run_id, _ATTEMPT)]
        taken += [number for number, _ in self._numbered(run_id, _PARTIAL)]
        number = max(taken, default=0) + 1
        partial = self.folder / run_id / f".attempt-{number}.partial"
        make_folder(partial / "logs")
        return number, partial

    def commit(self, partial: Path) -> Path:
        """Give a complete attempt its final name."""
        match = _PARTIAL.fullmatch(partial.name)
        assert match is not None, partial
        final = partial.parent / f"attempt-{match.group(1)}"
        commit_folder(partial, final)
        return final

    def close(self, partial: Path, run: Run) -> Path:
        """Write `run` as the attempt's record (over the cell's record, if any) and commit it."""
        write_run(partial, run)
        return self.commit(partial)

    def leftovers(self) -> Iterator[tuple[str, int, Path]]:
        """Yield (run id, attempt, folder) of the unfinished attempts of a dead engine."""
        if not self.folder.is_dir():
            return
        for run_folder in sorted(self.folder.iterdir()):
            if run_folder.is_dir():
                for number, path in self._numbered(run_folder.name, _PARTIAL):
                    yield run_folder.name, number, path

    def runs(self) -> Iterator[Run]:
        """Yield the record of every finished attempt."""
        if not self.folder.is_dir():
            return
        for run_folder in sorted(self.folder.iterdir()):
            if run_folder.is_dir():
                for _, path in self._numbered(run_folder.name, _ATTEMPT):
                    run = read_run(path)
                    if run is not None:
                        yield run

    def summary(self, run_id: str) -> Summary | None:
        """Return the results of a run's first finished attempt; None without one."""
        number = self.done(run_id)
        return None if number is None else read_summary(self.folder / run_id / f"attempt-{number}")

    def results(self) -> Iterator[tuple[Run, Summary]]:
        """Yield every finished run with its results, oldest first."""
        found = []
        for path in self.folder.glob("*/attempt-*"):
            run = read_run(path)
            if run is not None and run.status == "done":
                found.append((run, path))
        for run, path in sorted(found, key=lambda one: (one[0].started_at, one[0].run_id)):
            summary = read_summary(path)
            if summary is not None:
                yield run, summary

    def _numbered(self, run_id: str, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
        folder = self.folder / run_id
        if not folder.is_dir():
            return []
        matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
        return sorted((int(match.group(1)), path) for match, path in matches if match is not None)


def read_run(folder: Path) -> Run | None:
    """Return the record in `folder`; None if there is none or it is incomplete."""
    return read_complete(Run, folder / RUN_FILE)


def read_summary(folder: Path) -> Summary | None:
    """Return the results in `folder`; None if there are none or they are incomplete."""
    return read_complete(Summary, folder / "summary.json")


def amended(run: Run, **changes: Any) -> Run:
    """Return `run` with changed fields, validated again."""
    return Run.model_validate(run.model_dump() | changes)


Event = Literal[
    "campaign-started",
    "precision",
    "started",
    "done",
    "failed",
    "spoiled",
    "interrupted",
    "adopted",
    "campaign-ended",
]


class Ledger:
    """`ledger.jsonl` of one campaign. Its only writer is the holder of the campaign's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Event, **facts: Any) -> None:
        """Write one line and sync it to the disk. OSError: the line cannot be written; the file is
        unchanged."""
        record = {"at": utc_now(), "event": event, **facts}
        line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
        append_line(self.path, line)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield every complete record, oldest first; skip torn lines."""
        if not self.path.is_file():
            return
        for record in json_lines(self.path.read_bytes()):
            if isinstance(record, dict) and "event" in record:
                yield record


RUN_BYTES = 3 * 2**20
"""Size of an attempt with samples, journal, logs and notebook (measured: about 1 MiB a minute)."""

RESERVE_BYTES = 2**20
RESERVE_NAME = ".reserve"


def need_bytes(runs: int, finished: Iterable[Path] = ()) -> int:
    """Return the bytes that `runs` more attempts need, from the largest finished one if any."""
    sizes = [_size(folder) for folder in finished]
    each = max([RUN_BYTES // 4, *sizes]) if sizes else RUN_BYTES
    return runs * each + RESERVE_BYTES


def require_room(folder: Path, runs: int, finished: Iterable[Path] = ()) -> None:
    """Raise UserError unless `runs` more attempts fit under `folder` (which must exist)."""
    need = need_bytes(runs, finished)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UserError(
            f"has {format_bytes(free)} free, and {runs} runs need about {format_bytes(need)}",
            where=folder,
            do="free some space, or give --artifacts another folder",
        )


class Reserve:
    """A file that is deleted when the disk is full, so that the failure can still be recorded."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RESERVE_NAME

    def take(self) -> None:
        """Fill the reserve; raise OSError if it does not fit."""
        if not self.path.is_file() or self.path.stat().st_size < RESERVE_BYTES:
            self.path.write_bytes(b"\0" * RESERVE_BYTES)

    def release(self) -> None:
        """Delete the reserve."""
        self.path.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Return True if `error` means that the disk (or a quota) is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def nearly_full(folder: Path) -> bool:
    """Return True if the free space is too small for a small attempt."""
    return shutil.disk_usage(folder).free < RESERVE_BYTES // 4


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
