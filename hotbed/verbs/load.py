"""`hotbed load`: load the disks of nodes by hand, as campaigns disturb them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from hotbed.alone import alone
from hotbed.options import argument, option
from hotbed.output import Output, Verbs
from hotbed.verbs.fault import ForOption, NodesArgument, SomeNodesArgument, maker, output_of
from hotbed.views import TestbedOption
from schemas.errors import UserError


class HandLoad(StrEnum):
    """Load of a disturbance: reads as fast as the disk allows, or at an offered rate."""

    HOTSPOT = "hotspot"
    BACKGROUND = "background"


LoadArgument = Annotated[
    HandLoad, argument("hotspot: all that the disk gives; background: a share of that.")
]


group = Verbs(help="Load the disks of nodes by hand, by fio.")


@group.command()
def start(
    load: LoadArgument,
    nodes: NodesArgument,
    share: float = typer.Option(
        0.5, min=0.01, max=1.0, help="Background: share of the disk's reads/s."
    ),
    seed: int = option("Seed of the places to read and of the arrivals.", 1),
    for_s: ForOption = None,
    testbed: TestbedOption = None,
) -> Output:
    """Start a load on nodes with OSDs, for at most a day. A node's first background measures the
    disk for 8 s."""
    from testbed.choose import select
    from testbed.deploy.inventory import fio_file_bytes
    from testbed.deploy.roles import spec_of
    from testbed.faults import LOAD_S, refuse_faults
    from workloads.disturbance import DisturbancePlan, DisturbanceStretch, agent_plan, load_of
    from workloads.fio import place_files

    made = maker(testbed)
    found, spec = made.testbed, spec_of(made.testbed)
    able = [each.name for each in found.with_role("osd") if "scratch" in each.devices]
    chosen = select(found, ",".join(nodes))
    names = tuple(each.name for each in chosen)
    for name in (name for name in names if name not in able):
        raise UserError(
            f"node {name} has no files for fio: nodes with an OSD and a scratch part have them",
            where=f"testbed {found.name}",
            allowed=", ".join(able) or "no node",
        )
    offered = share if load is HandLoad.BACKGROUND else None
    stretch = DisturbanceStretch(0.0, dict.fromkeys(names, offered))
    plan = DisturbancePlan("heterogeneity", seed, names, (stretch,))
    disk, reads = next(iter(spec.osd_disks())), dict[str, float]()
    size, filestore = fio_file_bytes(disk, names[0]), spec.ceph().objectstore == "filestore"
    if filestore or offered is not None:
        from campaigns.papers.dlr.live import CAPACITY_FILE, capacity, known_capacity

        with alone(found):  # no cell may run meanwhile
            if filestore:
                place_files(made.agent, names, names, size)
            known = known_capacity(found.directory / CAPACITY_FILE, found.spec_hash)
            if offered is not None and set(names) - set(known):
                refuse_faults(found.directory, found.name)  # campaigns use what is measured now
            reads = capacity(made.agent, found, disk, plan)
    steps = agent_plan(plan, load_of(size, reads), max_s=(for_s or LOAD_S) + 60)
    settings = {"load": load.value} | ({} if offered is None else {"share": offered})
    by_node = {step["node"]: step for step in steps}
    return output_of(made.inject("load", chosen, settings, for_s=for_s, steps=by_node))


@group.command()
def stop(
    load: LoadArgument,
    nodes: SomeNodesArgument = None,
    testbed: TestbedOption = None,
) -> Output:
    """Stop loads that were started by hand."""
    from testbed.choose import select

    made = maker(testbed)
    chosen = {each.name for each in select(made.testbed, ",".join(nodes or ["all"]))}
    on = {one.node for one in made.current() if one.settings.get("load") == load}
    return output_of(made.clear(chosen & on, ["load"]), f"no {load} to stop")
