"""Figures written to files by a process beside this one, while the next ones are drawn.

Writing a figure takes as long as drawing it, and one Python has one processor. Whoever is free
writes: a figure goes to the other process when that waits for one, else it is written here. What
the other could not write (a figure that cannot be sent, a process that was killed) is written here
at the end, so that nothing depends on it but time.
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
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def libraries() -> str:
    """PYTHONPATH of a process of Hotbed's own: as here but for the current folder, which a notebook
    and a PYTHONPATH with nothing between two colons have among theirs. What lies in it is the
    user's, whatever its name."""
    root, here = str(Path(__file__).resolve().parents[1]), Path.cwd().resolve()
    told = [path for path in sys.path if path and (Path(path).resolve() != here or path == root)]
    return os.pathsep.join(dict.fromkeys([*told, root]))


@dataclass(frozen=True)
class Job:
    """A figure, where it goes (`pdf` None: not as PDF), and the settings that it was drawn in."""

    drawn: Figure
    png: Path
    pdf: Path | None
    settings: Mapping[str, Any]


def job_of(drawn: Figure, png: Path, pdf: Path | None) -> Job:
    """A job in the settings of now."""
    import matplotlib as mpl

    settings: dict[str, Any] = dict(cast(Any, mpl.rcParams.copy()))
    # Each process's own; and the colours of images to come, which seaborn's style names by a name
    # that only it knows (those that are drawn have theirs).
    for name in ("backend", "image.cmap"):
        settings.pop(name, None)
    return Job(drawn, png, pdf, settings)


def write(job: Job) -> None:
    """Write a figure's files, in the settings of now. It is laid out once: the PDF is the PNG's."""
    job.drawn.savefig(job.png, dpi=DPI)
    if job.pdf is not None:
        job.drawn.set_layout_engine("none")
        job.drawn.savefig(job.pdf, metadata={"CreationDate": None})


def write_later(job: Job) -> None:
    """As `write`, in the settings that the figure was drawn in."""
    import matplotlib as mpl

    with mpl.rc_context(cast(Any, dict(job.settings))):
        write(job)


class Aside:
    """The other process; `settle` where files are needed, `kill` in the end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # -P: what lies in the current folder is no library, whatever its name.
            [sys.executable, "-P", "-c", "from analysis.aside import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": libraries()},
        )
        self._sent: list[Job] = []
        self._ready = 0  # times that it has said so: once when it begins, and after each figure

    def write(self, job: Job) -> None:
        """Have a figure written, there or here."""
        if not self._waits() or not self._send(job):
            write(job)

    def settle(self) -> None:
        """Wait until all files are there."""
        descriptor = self._pipes()[1].fileno()
        while self._sent and self._ready <= len(self._sent):
            answer = os.read(descriptor, 4096)
            if not answer:  # it has ended
                done = max(0, self._ready - 1)
                lost, self._sent = self._sent[done:], self._sent[:done]
                for job in lost:
                    write_later(job)
                return
            self._ready += len(answer)

    def kill(self) -> None:
        """End it, whatever it does."""
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
        """Whether it has nothing to do."""
        descriptor = self._pipes()[1].fileno()
        if select.select([descriptor], [], [], 0)[0]:
            self._ready += len(os.read(descriptor, 4096))
        return self._ready == len(self._sent) + 1

    def _send(self, job: Job) -> bool:
        try:
            body = pickle.dumps(job)
        except Exception:  # a formatter that is a lambda, say
            return False
        stdin, _ = self._pipes()
        try:
            stdin.write(_LENGTH.pack(len(body)) + body)
            stdin.flush()
        except OSError:  # it is gone
            return False
        self._sent.append(job)
        return True


def main() -> None:
    """The other process: figures come in, and a byte goes out when the next may come."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_pdf  # noqa: F401  # before the first figure is there

    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # nobody else writes among the answers
    answers.write(_READY)
    answers.flush()
    while header := sys.stdin.buffer.read(_LENGTH.size):
        # From the process that started this one, over a pipe of their own.
        write_later(pickle.loads(sys.stdin.buffer.read(*_LENGTH.unpack(header))))
        answers.write(_READY)
        answers.flush()
