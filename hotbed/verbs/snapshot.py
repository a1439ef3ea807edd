"""`hotbed snapshot`: freeze a testbed's nodes and disks, and bring them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.output import JsonFlag, emit
from hotbed.views import TestbedOption

if TYPE_CHECKING:
    from testbed.sites.contract import SnapshotSite

Label = Annotated[str, typer.Argument(help="Name of the snapshot.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    group = typer.Typer(no_args_is_help=True, help="Freeze nodes with their disks; go back later.")
    app.add_typer(group, name="snapshot")

    @group.command()
    def save(label: Label, testbed: TestbedOption = None) -> None:
        """Shut the nodes down, freeze their state as LABEL and start them again."""
        site, name = _choose(testbed)
        site.snapshot(name, label)
        print(f"saved: {label}")

    @group.command()
    def restore(label: Label, testbed: TestbedOption = None) -> None:
        """Put every node and disk back to LABEL; what was written since is lost."""
        from hotbed.progress import progress

        site, name = _choose(testbed)
        with progress(f"restore {label}") as report:
            site.restore(name, label, report)
        print(f"restored: {label}")

    @group.command("list")
    def list_(testbed: TestbedOption = None, as_json: JsonFlag = False) -> None:
        """List the snapshots, oldest first."""
        site, name = _choose(testbed)
        labels = list(site.snapshots(name))
        emit(labels, as_json, lambda: "\n".join(labels) or "no snapshots")


def _choose(testbed: str | None) -> tuple[SnapshotSite, str]:
    from schemas.errors import UserError
    from testbed.choose import choose
    from testbed.sites.contract import SnapshotSite

    site, name = choose(testbed)
    if not isinstance(site, SnapshotSite):
        raise UserError(f"testbed {name!r} is on site {site.kind}, which has no snapshots.")
    return site, name
