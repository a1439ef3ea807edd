"""`hotbed ssh`: a shell or a command on a node."""

from __future__ import annotations

from typing import Annotated

import typer

from hotbed.options import argument
from hotbed.views import TestbedOption

CONTEXT = {"ignore_unknown_options": True}


def verb(
    node: Annotated[str, argument("The node's name.")],
    command: list[str] | None = argument("Run this instead of a shell.", None),
    forward: int | None = typer.Option(
        None, min=1, max=65535, help="Bring this port of the node's loopback here."
    ),
    testbed: TestbedOption = None,
) -> None:
    """Log in on a node as root, or run one command there; its exit code is handed on.

    Ctrl-C ends the command on the node too.
    """
    import os

    from testbed import reach
    from testbed.choose import choose_partly, select_one
    from testbed.ssh import attended

    found = choose_partly(testbed)
    target = reach.target_of(found, select_one(found, node))
    # A shared connection would keep the port after the login.
    options = target.options(multiplex=forward is None)
    if forward is not None:
        options += ["-L", f"127.0.0.1:{forward}:127.0.0.1:{forward}"]
    if command:
        shell = ["sh", "-c", 'exec "${SHELL:-sh}" -c "$0"', " ".join(command)]
        os.execvp("ssh", target.command(attended(shell)))
    os.execvp("ssh", ["ssh", *options, f"{target.user}@{target.address}"])
