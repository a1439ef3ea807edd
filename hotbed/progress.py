"""Progress of long work: a bar with the time left on a terminal or in a notebook, or plain log
lines, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from testbed.html import bar, in_kernel, live
from testbed.terminal import console, is_quiet

if TYPE_CHECKING:
    from testbed.sites.contract import Progress

_QUIET_S = 5.0  # seconds between two lines of a log


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Yield a `testbed.sites.contract.Progress` that is shown while the block runs."""
    if is_quiet():
        yield lambda phase, share: None
    elif sys.stderr.isatty():
        with _bar(title) as report:
            yield report
    elif in_kernel():
        yield _in_page(title)
    else:
        yield _lines(title)


@contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[phase]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=1.0, phase="", left="")
        clock = _TimeLeft()

        def report(phase: str, share: float) -> None:
            shown.update(task, completed=share, phase=phase, left=clock.left(phase, share))

        yield report


def _in_page(title: str) -> Progress:
    clock, show = _TimeLeft(), live()

    def report(phase: str, share: float) -> None:
        show(bar(share, f"{title}: {phase} {clock.left(phase, share)}".rstrip()))

    return report


def _lines(title: str) -> Progress:
    clock = _TimeLeft()
    last_phase, last = "", 0.0

    def report(phase: str, share: float) -> None:
        nonlocal last_phase, last
        now = time.monotonic()
        if phase == last_phase and now - last < _QUIET_S:
            return
        last_phase, last = phase, now
        print(f"{title}: {phase} {clock.left(phase, share)}".rstrip(), file=sys.stderr, flush=True)

    return report


class _TimeLeft:
    """Estimates the time left from the finished share; restarts if the share falls."""

    def __init__(self) -> None:
        self._start, self._share = time.monotonic(), 0.0

    def left(self, phase: str, share: float) -> str:
        """Return ``(12 s left)``, or nothing if no estimate is possible."""
        now = time.monotonic()
        if share < self._share:
            self._start = now
        self._share = share
        if not 0.05 < share < 1.0:
            return ""
        return f"({(now - self._start) * (1 - share) / share:.0f} s left)"
