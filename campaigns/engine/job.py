"""Job of a cell from the engine (`job.json` in the attempt's folder), and the cell's record."""

from __future__ import annotations

import copy
import datetime
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from controllers.journal import Journal
from controllers.registry import code_hash, find
from controllers.replay import replay
from schemas.campaign import Kind, Limits
from schemas.durable import write_file
from schemas.model import Model
from schemas.run import Provenance, Run, RunStatus, Stopping
from testbed import closure
from testbed.closure import Closure

M = TypeVar("M", bound=Model)
JOB_FILE = "job.json"
ERROR_FILE = "error.json"
RUN_FILE = "run.json"
JOURNAL_FILE = "journal.jsonl"
NEXT_FILE = "logs/next-may-start"
"""Empty file of a cell on a store whose benchmark is not near: the next cell's kernel may start."""
REPLAY_S, REPLAY_SHARE = 1.0, 0.05
"""Limits of a cell's replay, in seconds and as a share of the cell's time; the longer one applies.
Only policies that decide for many seconds (MOS++, dlr-pg on 1,000 OSDs) need more."""
CHANGED = "the code changed while the campaign ran"
"""Start of the reason if code other than the plan's may have made an attempt."""


@dataclass(frozen=True)
class Outcome:
    """End of one attempt. `fatal`: no other cell can succeed either (a full disk)."""

    status: RunStatus
    reason: str | None = None
    seconds: float = 0.0
    attempt: int | None = None
    fatal: bool = False


class Job(Model):
    """All facts of an attempt before it runs.

    Attributes:
        code: the planned code that cells share, and the code of this cell's controller; empty for a
            cell that is run by hand.
    """

    kind: Kind
    run_id: str
    campaign: str
    attempt: int
    block: int
    order: int
    seed: int
    ground: str
    parameters: dict[str, Any]
    time_scale: float
    testbed: str
    notebook: str
    spec: str | None = None  # the testbed's file, for a ground that needs nothing else
    model: str | None = None  # constants of the ground sim, if not the default
    timeout_s: float
    started_at: str
    limits: Limits = Limits()
    controllers_dir: str | None = None
    figures: list[str] = Field(default_factory=list)
    osd_count: int | None = None
    stopping: Stopping | None = None
    provenance: Provenance
    code: tuple[Closure, ...] = ()

    def with_settings(self, settings: Mapping[str, Any]) -> Job:
        """Return the job with settings read from the nodes instead of the spec's. Keys are paths in
        the calibration, such as ``groups.osd.disk.bandwidth``."""
        calibration = copy.deepcopy(self.provenance.calibration)
        for path, value in settings.items():
            *above, last = path.split(".")
            place = calibration
            for name in above:
                place = place.setdefault(name, {})
            place[last] = value
        read = self.provenance.model_copy(update={"calibration": calibration})
        return self.model_copy(update={"provenance": read})

    def record(
        self, status: RunStatus, reason: str | None, phases_s: dict[str, float] | None = None
    ) -> Run:
        """Return a record with this status; `checked` checks a finished cell first."""
        return Run.model_validate(
            {
                **self.model_dump(include=Run.model_fields.keys() & type(self).model_fields.keys()),
                "status": status,
                "reason": reason,
                "ended_at": utc_now(),
                "phases_s": phases_s or {},
            }
        )


Make = Callable[[Job, Path], object]
"""Function that makes a cell and writes its folder, `run.json` last; it raises on failure."""


class Phases:
    """Seconds of each phase; repeated phases add up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a block."""
        started = time.monotonic()
        try:
            yield
        finally:
            spent = self.seconds.get(name, 0.0) + time.monotonic() - started
            self.seconds[name] = round(spent, 3)


def checked(job: Job, folder: Path, phases: Phases) -> tuple[str | None, Journal | None]:
    """Return why a finished cell fails: code other than the plan's may have made it, or a replayed
    decision differs. Return its journal too, if there is one, without the PGs that were seen: each
    line is read once and replayed, because the lines of a large store do not fit into memory."""
    wrong, path = _changed(job), folder / JOURNAL_FILE
    if not path.exists():
        return wrong, None
    limit_s = max(REPLAY_S, REPLAY_SHARE * sum(phases.seconds.values()))
    with phases("replay"), path.open(encoding="utf-8", errors="replace") as lines:
        journal = Journal(lines, path, _without_pgs)
        return wrong or _unlike_its_journal(job, journal, limit_s), journal.whole()


def _without_pgs(step: dict[str, Any]) -> dict[str, Any]:
    return step | {"observation": (step["observation"] or {}) | {"pgs": ()}}


def _changed(job: Job) -> str | None:
    """Return a reason if the code is no longer the plan's."""
    for each in job.code:
        if each.changed:
            last = closure.newest(each.entries)
            return f"{CHANGED} (last {last}): give the same command again, under a new run id."
    return None


def _unlike_its_journal(job: Job, journal: Journal, limit_s: float) -> str | None:
    """Return a reason if the journal is of other code or a decision is not repeatable."""
    dirs = [Path(d) for d in [job.controllers_dir] if d]
    controller = find(journal.header["policy"], dirs)
    if journal.header["code_hash"] != code_hash(controller):
        if not job.code:
            return None
        deploy = "" if job.ground == "sim" else "deploy the testbed again, then "
        return (
            f"{CHANGED}: the journal is of another version of the controller {controller.name} "
            f"than the plan: {deploy}give the same command again."
        )
    found = replay(journal, dirs, limit_s=limit_s)
    if found.equal:
        return None
    return (
        f"{found.sentence()}. decide() must depend on its state and observation alone: no clock, "
        "no files, no random numbers but from the seed (docs/controllers.md)."
    )


def write_job(folder: Path, job: Job) -> Path:
    """Write the job into the attempt's folder, and return the file."""
    path = folder / JOB_FILE
    write_file(path, job.model_dump_json(indent=2) + "\n")
    return path


def write_error(folder: Path, error: BaseException) -> None:
    """Write the error of a cell into its folder, where the engine reads it."""
    body = {"kind": type(error).__name__, "message": str(error) or type(error).__name__}
    (folder / ERROR_FILE).write_text(json.dumps(body) + "\n")


def read_complete(model: type[M], path: Path) -> M | None:
    """Return the model in the file; None if there is no file or it is incomplete."""
    from pydantic import ValidationError

    try:
        return model.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


def read_job(folder: Path) -> Job | None:
    """Return the job in `folder`; None if there is none or it is incomplete."""
    return read_complete(Job, folder / JOB_FILE)


def write_run(folder: Path, run: Run) -> None:
    """Write the record; it comes last, so its presence means that the folder is complete."""
    write_file(folder / RUN_FILE, run.model_dump_json(indent=2) + "\n")


def utc_now() -> str:
    """Return the current time: ISO 8601, UTC, milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
