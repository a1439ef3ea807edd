"""Run folders of one campaign: `artifacts/<campaign>/<run-id>/attempt-N/`.

An attempt is made in `.attempt-N.partial` and renamed when it is complete. A folder without the
leading dot is finished and never changes again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.engine.job import RUN_FILE, write_run
from schemas.durable import commit_folder, make_folder
from schemas.run import Run, RunStatus

_ATTEMPT = re.compile(r"attempt-(\d+)")
_PARTIAL = re.compile(r"\.attempt-(\d+)\.partial")


@dataclass(frozen=True)
class AttemptStatuses:
    """Statuses of one run id's attempts. `done` is the number of its first finished attempt."""

    statuses: dict[int, RunStatus] = field(default_factory=dict)

    @property
    def done(self) -> int | None:
        return next((n for n, status in sorted(self.statuses.items()) if status == "done"), None)

    def count(self, status: RunStatus) -> int:
        """Return the number of attempts with this status."""
        return sum(1 for found in self.statuses.values() if found == status)


class RunStore:
    """Store of one campaign's results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the folder."""
        make_folder(self.folder)

    def attempts(self, run_id: str) -> AttemptStatuses:
        """Return the statuses of the finished attempts of one run."""
        statuses: dict[int, RunStatus] = {}
        for number, path in self._numbered(run_id, _ATTEMPT):
            run = read_run(path)
            statuses[number] = run.status if run is not None else "failed"
        return AttemptStatuses(statuses)

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

    def _numbered(self, run_id: str, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
        folder = self.folder / run_id
        if not folder.is_dir():
            return []
        matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
        return sorted((int(match.group(1)), path) for match, path in matches if match is not None)


def read_run(folder: Path) -> Run | None:
    """Return the record in `folder`; None if there is none or it is incomplete."""
    from pydantic import ValidationError

    try:
        return Run.model_validate_json((folder / RUN_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


def amended(run: Run, **changes: Any) -> Run:
    """Return `run` with changed fields, validated again."""
    return Run.model_validate(run.model_dump() | changes)
