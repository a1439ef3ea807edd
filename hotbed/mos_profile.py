"""`hotbed mos profile`: performance models of a store from measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotbed.output import JsonFlag, emit

if TYPE_CHECKING:
    from rich.table import Table

WHAT = {"cospurf": "the optimiser's cospurf", "simulator": "COSPerf"}


def profile(group: typer.Typer) -> None:
    """Add `hotbed mos profile`."""

    @group.command()
    def profile(
        runs: Annotated[
            str,
            typer.Argument(
                help="Folder of a campaign's runs, JSON file of points, or the name of points that "
                "come with Hotbed (local, paper) or were kept."
            ),
        ],
        out: Annotated[
            Path | None, typer.Option(help="New JSON file for the profile.", show_default=False)
        ] = None,
        keep: Annotated[
            str | None,
            typer.Option(help="Keep the points under this name, for cells' profile."),
        ] = None,
        seed: Annotated[
            int, typer.Option(help="Seed that splits the configurations into two halves.", min=0)
        ] = 0,
        as_json: JsonFlag = False,
    ) -> None:
        """Fit cospurf and COSPerf to measured runs, and say how well they predict others.

        They are fitted to disjoint halves of the configurations. Errors are of configurations that
        were held out.
        """
        from campaigns.papers.mos.profile.document import document, points_of, write
        from campaigns.papers.mos.profile.points import keep as keep_points

        points = points_of(runs)
        made = document(points, seed)
        kept = None if keep is None else keep_points(points, keep)
        if out is not None:
            write(made, out)
        emit(made, as_json, lambda: _table(made))
        if not as_json:
            for name, value in made["simulator"].items():
                typer.echo(f"{name}: {value:.4g}")
            if out is not None:
                typer.echo(f"Written: {out.resolve()}")
            if kept is not None:
                typer.echo(f"Kept: {kept}")


def _table(made: dict[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    counts = {name: len(made["runs"][name]) for name in WHAT}
    table = Table(
        *("model", "workload", "configurations", "median error", "95 % interval", "worst"),
        box=box.SIMPLE_HEAD,
        title=f"Profile {made['name']}: errors on configurations held out",
        title_justify="left",
        caption=f"COSPerf is fitted to {counts['simulator']} runs, cospurf of {counts['cospurf']} "
        "others",
        caption_justify="left",
    )
    for name, words in WHAT.items():
        for one in made["errors"][name]:
            interval = one["ci95"]
            table.add_row(
                words,
                one["workload"],
                str(one["configurations"]),
                f"{one['median']:.0%}",
                "" if interval is None else f"{interval[0]:.0%} to {interval[1]:.0%}",
                f"{one['worst']:.0%}",
            )
    return table
