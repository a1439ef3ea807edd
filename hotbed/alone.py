"""The lock of a testbed, for verbs that change it: no campaign runs at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from testbed.terminal import is_quiet

if TYPE_CHECKING:
    from testbed.client import AgentClient
    from testbed.sites.contract import Testbed


def alone_on(
    folder: Path, name: str, *, end_holder: bool = False
) -> AbstractContextManager[object]:
    """Return the lock of the testbed `name`; waits are announced on standard error.

    Raises (on entry): see `campaigns.engine.lock.Lock`.
    """
    from campaigns.engine.lock import alone_in

    return alone_in(folder, name, _say, end_holder=end_holder)


def alone(testbed: Testbed) -> AbstractContextManager[object]:
    """Return the lock of a testbed; see `alone_on`."""
    return alone_on(testbed.directory, testbed.name)


def agent_of(testbed: str | None) -> AgentClient:
    """Return the agent of a testbed, not locked; parts of the testbed may be missing."""
    from testbed.choose import choose_partly
    from testbed.client import agent_client

    return agent_client(choose_partly(testbed))


@contextmanager
def agent_alone(testbed: str | None, *, whole: bool = True) -> Iterator[AgentClient]:
    """Yield the agent of a deployed testbed, locked (see `alone_on`); `whole`: refuse a testbed
    with missing parts."""
    from testbed.choose import choose_partly, choose_ready
    from testbed.client import agent_client

    found = choose_ready(testbed)[1] if whole else choose_partly(testbed)
    with alone(found):
        yield agent_client(found)


def _say(text: str) -> None:
    if not is_quiet():
        typer.echo(f"hotbed: {text}", err=True)
