"""Writer process for figure files, in parallel with the drawing of the next figures.

Writing a figure takes as long as drawing it, and one Python process uses one processor. The writer
process takes a figure when it is idle; otherwise the main process writes the figure. A figure that
the writer process cannot write (unpicklable figure, killed process) is written by the main process
in the end. So only time depends on the writer process.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160
_LENGTH = struct.Struct("<Q")
_READY = b"."


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def libraries() -> str:
    """Return the PYTHONPATH for a process of Hotbed: the current path without the current folder.
    Notebooks, and a PYTHONPATH with an empty entry, include the current folder. Its files are the
    user's and must not be imported, whatever their names."""
    root, here = str(Path(__file__).resolve().parents[2]), Path.cwd().resolve()
    kept = [path for path in sys.path if path and (Path(path).resolve() != here or path == root)]
    return os.pathsep.join(dict.fromkeys([*kept, root]))


@dataclass(frozen=True)
class DrawingJob:
    """A figure, its target files (`pdf` None: no PDF), and the settings that it was drawn with."""

    drawn: Figure
    png: Path
    pdf: Path | None
    settings: Mapping[str, Any]


def job_of(drawn: Figure, png: Path, pdf: Path | None) -> DrawingJob:
    """Return a job with the current settings."""
    import matplotlib as mpl

    settings: dict[str, Any] = dict(cast(Any, mpl.rcParams.copy()))
    # The backend is per process. `image.cmap` applies to later images only, and seaborn's style
    # gives it a name that only seaborn knows.
    for name in ("backend", "image.cmap"):
        settings.pop(name, None)
    return DrawingJob(drawn, png, pdf, settings)


def write(job: DrawingJob) -> None:
    """Write a figure's files in the current settings. Layout runs once: the PDF matches the PNG."""
    job.drawn.savefig(job.png, dpi=DPI)
    if job.pdf is not None:
        job.drawn.set_layout_engine("none")
        job.drawn.savefig(job.pdf, metadata={"CreationDate": None})


def write_later(job: DrawingJob) -> None:
    """Write a figure's files in the settings that the figure was drawn with."""
    import matplotlib as mpl

    with mpl.rc_context(cast(Any, dict(job.settings))):
        write(job)


class Aside:
    """The writer process. Call `settle` where files are needed and `kill` in the end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # -P: files in the current folder must not be imported, whatever their names.
            [sys.executable, "-P", "-c", "from analysis.core.aside import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": libraries()},
        )
        self._sent: list[DrawingJob] = []
        self._ready = 0  # ready reports so far: one at the start, then one after each figure

    def write(self, job: DrawingJob) -> None:
        """Write a figure, in the writer process if it is idle, otherwise here."""
        if not self._waits() or not self._send(job):
            write(job)

    def settle(self) -> None:
        """Wait until all files are written."""
        descriptor = self._pipes()[1].fileno()
        while self._sent and self._ready <= len(self._sent):
            answer = os.read(descriptor, 4096)
            if not answer:  # the process has ended
                done = max(0, self._ready - 1)
                lost, self._sent = self._sent[done:], self._sent[:done]
                for job in lost:
                    write_later(job)
                return
            self._ready += len(answer)

    def kill(self) -> None:
        """Kill the process, whatever its state."""
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes():
            with suppress(OSError):
                pipe.close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _waits(self) -> bool:
        """Return True if the writer process is idle."""
        descriptor = self._pipes()[1].fileno()
        if select.select([descriptor], [], [], 0)[0]:
            self._ready += len(os.read(descriptor, 4096))
        return self._ready == len(self._sent) + 1

    def _send(self, job: DrawingJob) -> bool:
        try:
            body = pickle.dumps(job)
        except Exception:  # for example, a formatter that is a lambda
            return False
        stdin, _ = self._pipes()
        try:
            stdin.write(_LENGTH.pack(len(body)) + body)
            stdin.flush()
        except OSError:  # the process is gone
            return False
        self._sent.append(job)
        return True


def main() -> None:
    """Run the writer process: read figures, and write one byte when ready for the next."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_pdf  # noqa: F401  # before the first figure is there

    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # only answers may go to the pipe
    answers.write(_READY)
    answers.flush()
    while header := sys.stdin.buffer.read(_LENGTH.size):
        # Pickle is safe here: the data come from the parent process over a private pipe.
        write_later(pickle.loads(sys.stdin.buffer.read(*_LENGTH.unpack(header))))
        answers.write(_READY)
        answers.flush()
