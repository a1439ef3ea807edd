"""What runs on a Dask worker: one simulated cell, from its job to the files of its folder.

Nothing is shared with the worker but this code: the ground, the job and the files of a controller
of one's own come with the task, and what the cell wrote goes back with the result.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from campaigns.cell import CellContext, run_cell
from campaigns.job import Job, utc_now, write_error
from campaigns.sameness import Code
from campaigns.services import Ground
from campaigns.sim_ground import SIMULATIONS
from schemas.names import safe_path
from testbed.closure import Closure

_LEVEL = 1  # journals of large stores are megabytes of JSON: the fastest is enough


@dataclass(frozen=True)
class Task:
    """A cell to be made.

    Attributes:
        job: the attempt's, as JSON.
        ground: a ground that can be sent to another process.
        controller: files of the controller's folder by relative path where it is not one of
            Hotbed's own, and the folder's name.
        code: what else the results must be computed with.
    """

    job: str
    ground: Ground
    controller: tuple[str, Mapping[str, bytes]] | None
    code: Code


@dataclass(frozen=True)
class Made:
    """What a cell left: its folder's files, packed, by relative path; and how long it took."""

    files: Mapping[str, bytes]
    seconds: float

    @classmethod
    def of(cls, folder: Path, started: float) -> Made:
        """What lies in `folder`; `started`: when, by the monotonic clock."""
        files = {
            path.relative_to(folder).as_posix(): zlib.compress(path.read_bytes(), _LEVEL)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return cls(files, time.monotonic() - started)

    def unpack(self, folder: Path) -> None:
        """Write the files into `folder`."""
        for name, packed in self.files.items():
            path = folder / safe_path(name, "a Dask worker")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zlib.decompress(packed))


def run_task(task: Task) -> Made:
    """Make the cell in a folder of its own; what it raised is in the file `error.json`.

    Raises:
        WrongWorker: this worker computes with something else.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hotbed-cell-", dir=scratch()) as name:
        folder = Path(name) / "attempt"
        (folder / "logs").mkdir(parents=True)
        job = Job.model_validate_json(task.job)
        own, code = None, job.code
        if task.controller is not None:
            own = str(_unpack(Path(name) / "own", *task.controller))
            code = (code[0], Closure((f"{own}/{task.controller[0]}",), code[1].digest))
        job = job.model_copy(update={"started_at": utc_now(), "controllers_dir": own, "code": code})
        SIMULATIONS.require(task.code, job)
        try:
            run_cell(None, CellContext(job, task.ground, folder))
        except (Exception, SystemExit) as error:
            write_error(folder, error)
        return Made.of(folder, started)


def scratch() -> str | None:
    """The worker's own folder, which goes with it also when it is killed."""
    if "distributed" not in sys.modules:  # called by hand, and it takes seconds to import
        return None
    from distributed import get_worker

    try:
        return str(get_worker().local_directory)
    except ValueError:  # called by hand
        return None


def pack_folder(folder: Path) -> tuple[str, dict[str, bytes]]:
    """A controller's folder as `Task.controller`; what Python has compiled is left out."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return folder.name, files


def _unpack(target: Path, name: str, files: Mapping[str, bytes]) -> Path:
    for relative, content in files.items():
        path = target / name / safe_path(relative, "the engine")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return target
