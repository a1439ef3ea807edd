"""What the command's exit codes mean, and which one a campaign ends with."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from campaigns.result import CampaignResult

EXIT_FAILED = 1
EXIT_USER = 2
EXIT_MISSED = 3
"""The command did its work, and a goal is missed: a node stays hot, an SLO or SLA is not met."""
EXIT_NOT_COMPARED = 4
"""`hotbed rerun` ran the campaign, and no result could be compared with the bundle."""
EXIT_LEASE = 75
"""A lease ended a campaign before its last cell (EX_TEMPFAIL of sysexits.h: try again later)."""
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


@contextmanager
def resumable() -> Iterator[None]:
    """Say how to resume if Ctrl-C or SIGTERM ends the block, which is safe to repeat."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        again = shlex.join(["hotbed", *sys.argv[1:]])
        typer.echo(f"hotbed: interrupted; the same command resumes: {again}", err=True)
        raise


def stopped(result: CampaignResult) -> int | None:
    """The exit code of a campaign that was ended before its last cell; None of one that was not."""
    if result.interrupted:
        return EXIT_INTERRUPTED
    return None if result.lease is None else EXIT_LEASE


def end_with(result: CampaignResult) -> None:
    """Leave the command by the exit code of `result`; return when it is 0."""
    code = stopped(result)
    if code is not None:
        raise typer.Exit(code)
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)
