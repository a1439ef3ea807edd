"""`hotbed new controller`: a template for your own controller."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.options import argument, named
from hotbed.output import JsonFlag, emit

if TYPE_CHECKING:
    from campaigns.new_controller import NewController


group = typer.Typer(no_args_is_help=True, help="Write a template.")


@group.command()
def controller(
    name: Annotated[str, argument("Name, such as my-controller.")],
    *,
    directory: Annotated[
        Path, named("--dir", "Folder of your controllers; created if missing.")
    ] = Path("my-controllers"),
    as_json: JsonFlag = False,
) -> None:
    """Write a controller that works, and a test of it; nothing is overwritten."""
    from campaigns.new_controller import new_controller

    made = new_controller(name, directory)
    emit(made, as_json, lambda: _next(made))


def _next(made: NewController) -> str:
    return "\n".join(
        [
            f"written: {made.policy}",
            f"         {made.test}",
            "next:",
            f"  python -m pytest {made.test}",
            f"  hotbed compare --controllers {made.name},dlr --controllers-dir {made.directory}",
        ]
    )
