"""`hotbed ssh`: a shell or a command on a node."""

from __future__ import annotations

from typing import Annotated

import typer

from hotbed.views import TestbedOption


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command(context_settings={"ignore_unknown_options": True})
    def ssh(
        node: Annotated[str, typer.Argument(help="The node's name.")],
        command: Annotated[
            list[str] | None, typer.Argument(help="Run this instead of a shell.")
        ] = None,
        testbed: TestbedOption = None,
    ) -> None:
        """Log in on a node as root, or run one command there; its exit code is handed on.

        Ctrl-C ends the command on the node too.
        """
        import os

        from schemas.errors import UserError
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
