"""`hotbed new controller`: a template for your own controller."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hotbed.options import argument, named
from hotbed.output import Output, Verbs

if TYPE_CHECKING:
    from campaigns.new_controller import NewController


group = Verbs(help="Write a template.")


@group.command()
def controller(
    name: Annotated[str, argument("Name, such as my-controller.")],
    *,
    directory: Path = named(
        "--dir", "Folder of your controllers; created if missing.", Path("my-controllers")
    ),
) -> Output:
    """Write a controller that works, and a test of it; nothing is overwritten."""
    from campaigns.new_controller import new_controller

    made = new_controller(name, directory)
    return Output(made, lambda: _next(made))


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
