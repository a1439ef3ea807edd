"""`hotbed snapshot`: freeze a testbed's nodes and disks, and restore them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from hotbed.alone import alone_on
from hotbed.exit_codes import resumable
from hotbed.options import argument
from hotbed.output import Output, Verbs
from hotbed.progress import progress
from hotbed.views import TestbedOption
from schemas.errors import UserError

if TYPE_CHECKING:
    from testbed.sites.contract import SnapshotSite

Label = Annotated[str, argument("Name of the snapshot.")]


group = Verbs(help="Take snapshots of all nodes and restore them.")


@group.command()
def save(label: Label, testbed: TestbedOption = None) -> Output:
    """Stop the store, freeze nodes and disks as LABEL, and start all again; refused while the
    store is steered or loaded."""
    from testbed.choose import ready
    from testbed.deploy.lifecycle import save_snapshot
    from testbed.faults import refuse_faults

    site, name = _choose(testbed)
    refuse_faults(site.folder(name), name)
    with alone_on(site.folder(name), name), progress(f"save {label}") as report:
        save_snapshot(site, ready(site, name), label, report)
    return Output({"saved": label, "testbed": name}, lambda: f"saved: {label}")


@group.command()
def restore(label: Label, testbed: TestbedOption = None) -> Output:
    """Put every node and disk back to LABEL and wait until the store is healthy; what was
    written since is lost."""
    from testbed.deploy.lifecycle import restore_snapshot
    from testbed.faults import FaultMaker

    site, name = _choose(testbed)
    held = alone_on(site.folder(name), name)
    with held, resumable(), progress(f"restore {label}") as report:
        FaultMaker.on(site, restore_snapshot(site, name, label, report)).clear()
    return Output({"restored": label, "testbed": name}, lambda: f"restored: {label}")


@group.command()
def delete(label: Label, testbed: TestbedOption = None) -> Output:
    """Delete the snapshot LABEL; the testbed stays as it is."""
    site, name = _choose(testbed)
    with alone_on(site.folder(name), name):
        site.delete_snapshot(name, label)
    return Output({"deleted": label, "testbed": name}, lambda: f"deleted: {label}")


@group.command("list")
def list_(testbed: TestbedOption = None) -> Output:
    """List the snapshots, oldest first."""
    site, name = _choose(testbed)
    labels = list(site.snapshots(name))
    return Output(labels, lambda: "\n".join(labels) or "no snapshots")


def _choose(testbed: str | None) -> tuple[SnapshotSite, str]:
    from testbed.choose import choose
    from testbed.sites.contract import SnapshotSite

    site, name = choose(testbed)
    if not isinstance(site, SnapshotSite):
        raise UserError(f"testbed {name!r} is on site {site.kind}, which has no snapshots")
    return site, name
