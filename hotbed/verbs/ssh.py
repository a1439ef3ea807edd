"""`hotbed ssh`: a shell or a command on a node."""

from __future__ import annotations

from typing import Annotated

from hotbed.options import argument
from hotbed.views import TestbedOption
from schemas.errors import UserError

CONTEXT = {"ignore_unknown_options": True}


def verb(
    node: Annotated[str, argument("The node's name.")],
    command: Annotated[list[str] | None, argument("Run this instead of a shell.")] = None,
    testbed: TestbedOption = None,
) -> None:
    """Log in on a node as root, or run one command there; its exit code is handed on.

    Ctrl-C ends the command on the node too.
    """
    import os

    from testbed import reach
    from testbed.choose import choose_partly, select
    from testbed.ssh import attended

    found = choose_partly(testbed)
    nodes = select(found, node)
    if len(nodes) != 1:
        names = ", ".join(each.name for each in nodes)
        raise UserError(f"{node!r} is more than one node ({names})", do="name one")
    target = reach.target_of(found, nodes[0])
    if command:
        shell = ["sh", "-c", 'exec "${SHELL:-sh}" -c "$0"', " ".join(command)]
        os.execvp("ssh", target.command(attended(shell)))
    os.execvp("ssh", ["ssh", *target.options(), f"{target.user}@{target.address}"])
