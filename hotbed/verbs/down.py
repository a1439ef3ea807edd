"""`hotbed down`: remove a testbed and everything made for it."""

from __future__ import annotations

from typing import Annotated

import typer

from hotbed.output import JsonFlag, emit


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def down(
        name: Annotated[str | None, typer.Argument(help="May be left out if there is one.")] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="Every testbed, and leftovers of crashed ones.")
        ] = False,
        as_json: JsonFlag = False,
    ) -> None:
        """Remove a testbed, whatever state it is in; safe to repeat."""
        from hotbed.progress import progress
        from schemas.errors import UserError
        from testbed.choose import choose, existing

        if everything and name is not None:
            raise UserError("give a testbed's name or --all, not both.")
        doomed = existing() if everything else [choose(name)]
        for site, each in doomed:
            with progress(f"down {each}") as report:
                site.release(each, report)
        removed = [each for _, each in doomed]
        emit(
            {"removed": removed},
            as_json,
            lambda: f"removed: {', '.join(removed)}" if removed else "nothing to remove",
        )
