"""Meaning of the command's exit codes, and the exit code of a campaign."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from campaigns.engine.display import CampaignResult

EXIT_FAILED = 1
EXIT_USER = 2
EXIT_MISSED = 3
"""The command did its work, but missed a goal: a node stays hot, an SLO or SLA is not met."""
EXIT_NOT_COMPARED = 4
"""`hotbed rerun` ran the campaign, but no result could be compared with the bundle."""
EXIT_LEASE = 75
"""A lease ended a campaign before its last cell (EX_TEMPFAIL of sysexits.h: try again later)."""
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


@contextmanager
def resumable() -> Iterator[None]:
    """Print the command that resumes if Ctrl-C or SIGTERM ends the block; repeating is safe."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        again = shlex.join(["hotbed", *sys.argv[1:]])
        typer.echo(f"hotbed: interrupted; the same command resumes: {again}", err=True)
        raise


def stopped(result: CampaignResult) -> int | None:
    """Return the exit code of a campaign that ended before its last cell, else None."""
    if result.interrupted:
        return EXIT_INTERRUPTED
    return None if result.lease is None else EXIT_LEASE


def end_with(result: CampaignResult) -> None:
    """Exit with the exit code of `result`; return if it is 0."""
    code = stopped(result)
    if code is not None:
        raise typer.Exit(code)
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)
