"""The program `cosdrive` on this machine: what a workload's XML means, and running it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from schemas.errors import HotbedError, UserError
from testbed.agent.steady import SteadyClock
from testbed.sites.contract import Progress, silent
from workloads.errors import WorkloadError

PROGRAM = Path(__file__).resolve().parents[2] / "dataplane" / "bin" / "cosdrive"
"""Built by `make setup`."""

NAME = "cosdrive"
EXIT_USER = 2
STOP_S = 60.0  # to end a stage cleanly and to write the archive
CHECK_S = 60.0


@dataclass(frozen=True)
class DriveOptions:
    """How a workload is driven, beyond what its XML says.

    With `rate` operations of normal works begin at that rate (a second, of the whole workload)
    whether earlier ones have ended or not, and latencies count from the intended beginning.
    """

    rate: float | None = None
    arrivals: Literal["poisson", "constant"] = "poisson"
    seed: int | None = None
    only_stages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise UserError(f"an open loop of {self.rate:g} operations a second: give more than 0.")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise UserError(f"seed {self.seed}: give a whole number from 0 to 2^64 - 1.")

    def flags(self) -> list[str]:
        """For the command line."""
        made = []
        if self.rate is not None:
            made += ["--open-loop", f"{self.rate:g}:{self.arrivals}"]
        if self.seed is not None:
            made += ["--seed", str(self.seed)]
        for name in self.only_stages:
            made += ["--only-stage", name]
        return made


@dataclass(frozen=True)
class Driven:
    """What a run of cosdrive printed and took. Times are seconds since the epoch; `cpu_s` is the
    processor time of the driver, None where it is not known. `warnings` tell what of the workload
    has no effect."""

    events: tuple[Mapping[str, Any], ...]
    started_at: float
    ended_at: float
    cpu_s: float | None
    exit_code: int | None
    warnings: tuple[str, ...] = ()


def run_command(program: str, xml: str, archive: str, options: DriveOptions) -> list[str]:
    """The command line. It names files alone: what is secret is in the XML."""
    return [program, "run", xml, "--archive", archive, *options.flags()]


def check(xml: str, where: str, program: Path | None = None) -> dict[str, Any]:
    """What a workload means, with everything inherited and every default filled in.

    Args:
        xml: the workload.
        where: its file's name, for errors.

    Raises:
        UserError: it is no workload, or asks for what is not supported.
        HotbedError: cosdrive is not built, or failed.
    """
    command = [str(_built(program)), "check"]
    with _sealed(xml) as (path, descriptor):
        done = subprocess.run(
            [*command, path],
            capture_output=True,
            text=True,
            pass_fds=(descriptor,),
            timeout=CHECK_S,
            check=False,
        )
    if done.returncode != 0:
        raise said(done.returncode, done.stderr, where, path)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise WorkloadError(f"cosdrive check printed no JSON: {done.stdout[:120]!r}") from error
    return found


def run(
    xml: str,
    where: str,
    archive: Path,
    options: DriveOptions | None = None,
    progress: Progress = silent,
    *,
    program: Path | None = None,
) -> Driven:
    """Drive a workload from this machine.

    An interruption ends the stage that it is in; the archive is written all the same.

    Args:
        xml: the workload, secrets in plain.
        where: its file's name, for errors.
        archive: new folder for the archive.
        options: beyond what the XML says.
        progress: gets the stage and the share of the time.

    Raises:
        UserError: it is no workload, or asks for what is not supported.
        WorkloadError: the driver failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    chosen = options or DriveOptions()
    events: list[Mapping[str, Any]] = []
    with _sealed(xml) as (path, descriptor), tempfile.TemporaryFile() as complaints:
        argv = run_command(str(_built(program)), path, str(archive), chosen)
        clock = SteadyClock()
        began = clock()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            pass_fds=(descriptor,),
            start_new_session=True,  # a Ctrl-C comes to it once, from here
        )
        try:
            assert process.stdout is not None
            follow(process.stdout, events.append, progress)
            code = process.wait()
        except BaseException:
            _end(process)
            raise
        ended = clock()
        complaints.seek(0)
        text = complaints.read().decode(errors="replace")
    if code != 0:
        raise said(code, text, where, path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Driven(tuple(events), began, ended, cpu, code, complaints_of(text, where, path))


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does; what does not end is killed."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=STOP_S)
    except BaseException:
        process.kill()
        process.wait()
        raise


def follow(
    output: IO[bytes], keep: Callable[[Mapping[str, Any]], None], progress: Progress
) -> None:
    """Read events to their end, telling how far it is."""
    share = 0.0
    for line in output:
        event = event_of(line)
        if event is not None:
            keep(event)
            phase, share = told(event, share)
            if not event.get("error"):  # which the caller reports
                progress(phase, share)


def event_of(line: bytes | str) -> Mapping[str, Any] | None:
    """An event; None for a line that is none (one may be cut off where it is read too early)."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def told(event: Mapping[str, Any], before: float = 0.0) -> tuple[str, float]:
    """(what it is at, share of the time that is done) of an event; the share is `before` where the
    driver cannot tell how long it still takes."""
    if event["event"] == "done":
        return "done", 1.0
    passed, left = float(event.get("t_s") or 0.0), event.get("eta_s")
    share = before if left is None else passed / max(passed + float(left), 1e-9)
    words = [str(event.get("stage") or "starting")]
    if event.get("ops"):
        words.append(f"{event['ops']} operations")
    if event.get("errors"):
        words.append(f"{event['errors']} failed")
    return ", ".join(words), min(share, 0.99)


def said(code: int | None, text: str, where: str, path: str) -> HotbedError:
    """The error that cosdrive printed, about the user's file instead of the one that it was
    given."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = (lines[-1] if lines else "it said nothing").removeprefix(f"{NAME}: ")[:500]
    reason = reason.removeprefix(f"{path}: ").replace(path, where)
    if code == EXIT_USER:
        return UserError(reason if where in reason else f"{where}: {reason}")
    what = "was stopped" if code is None else f"failed with exit code {code}"
    return WorkloadError(f"cosdrive {what} on {where}: {reason}")


def complaints_of(text: str, where: str, path: str) -> tuple[str, ...]:
    """What it said besides, about the user's file."""
    lines = (line.strip().removeprefix(f"{NAME}: ") for line in text.splitlines())
    return tuple(line.replace(path, where) for line in lines if line)


def _built(program: Path | None) -> Path:
    path = program or PROGRAM
    if not os.access(path, os.X_OK):
        raise HotbedError(f"{path} is not built: run `make setup`.")
    return path


@contextmanager
def _sealed(xml: str) -> Iterator[tuple[str, int]]:
    """The XML in a file of mode 0600 that has no name any more: (path for a child, descriptor).

    So nothing of it is left whatever ends this process.
    """
    with tempfile.TemporaryFile() as handle:
        handle.write(xml.encode())
        handle.flush()
        descriptor = handle.fileno()
        yield f"/dev/fd/{descriptor}", descriptor


def names(plan: Mapping[str, Any]) -> Sequence[str]:
    """The stages' names of what `check` found."""
    return [str(stage["name"]) for stage in plan.get("stages", ())]
