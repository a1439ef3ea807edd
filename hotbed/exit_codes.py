"""Meaning of the command's exit codes (docs/exit-codes.md), and the exit code of a campaign."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from hotbed.output import Output
from testbed.terminal import is_quiet

if TYPE_CHECKING:
    from campaigns.engine.display import CampaignResult

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USER = 2
EXIT_MISSED = 3
EXIT_NOT_COMPARED = 4
EXIT_LEASE = 75  # EX_TEMPFAIL of sysexits.h: try again later
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
MEANINGS = {
    EXIT_DONE: "Done.",
    EXIT_FAILED: "Failed: a run is missing, a check found a difference, or a step did not succeed.",
    EXIT_USER: "Mistake in the command, in a file or in a name; nothing was started.",
    EXIT_MISSED: "Done, but a goal is missed: a node stays hot, an SLO or SLA is not met.",
    EXIT_NOT_COMPARED: "`hotbed rerun` ran, but no result could be compared with the bundle.",
    EXIT_LEASE: "The lease ended before the campaign's last cell; the same command resumes.",
    EXIT_INTERRUPTED: "Ctrl-C; most commands resume if repeated, and say so.",
    EXIT_TERMINATED: "Terminated by SIGTERM.",
}


@contextmanager
def resumable() -> Iterator[None]:
    """Print the command that resumes if Ctrl-C or SIGTERM ends the block; repeating is safe."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        again = this_command()
        typer.echo(f"hotbed: interrupted; the same command resumes: {again}", err=True)
        raise


def this_command() -> str:
    """Return the command line of this process."""
    return shlex.join(["hotbed", *sys.argv[1:]])


def stopped(result: CampaignResult) -> int | None:
    """Return the exit code of a campaign that ended before its last cell, else None."""
    if result.interrupted:
        return EXIT_INTERRUPTED
    return None if result.lease is None else EXIT_LEASE


def code_of(result: CampaignResult) -> int:
    """Return the exit code of a campaign; with -q, print why it is not 0."""
    if is_quiet() and not result.ok:
        typer.echo(f"hotbed: {result.sentence}", err=True)
    code = stopped(result)
    return int(not result.ok) if code is None else code


def unfinished(result: CampaignResult) -> Output:
    """Return the output of a verb that ends because its campaign has no results to show."""
    return Output({"ok": False, "sentence": result.sentence}, lambda: None, code_of(result))
