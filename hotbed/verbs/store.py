"""`hotbed store`: stop and start the daemons of a deployed store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from hotbed.alone import alone
from hotbed.options import argument
from hotbed.output import Output, Verbs
from hotbed.progress import progress
from hotbed.views import TestbedOption

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

Nodes = Annotated[
    list[str] | None, argument("Nodes, groups or roles; by default every node of the store.")
]


group = Verbs(help="Stop and start the daemons of a deployed store.")


@group.command()
def stop(nodes: Nodes = None, testbed: TestbedOption = None) -> Output:
    """Stop the store's daemons cleanly. Ceph keeps the stopped OSDs in the cluster (noout)."""
    from testbed.deploy.lifecycle import halt_store

    with _chosen(testbed, nodes) as (found, names), progress("stop the store") as report:
        halt_store(found, names, report)
    return Output({"stopped": names}, lambda: f"stopped on {', '.join(names)}")


@group.command()
def start(nodes: Nodes = None, testbed: TestbedOption = None) -> Output:
    """Start the store's daemons and wait until the store is healthy."""
    from testbed.deploy.lifecycle import resume_store

    with _chosen(testbed, nodes) as (found, names), progress("start the store") as report:
        left = resume_store(found, names, report)
    still = f"; still down: {', '.join(left)} (noout stays set)" if left else ""
    return Output({"started": names, "down": left}, lambda: f"started on {', '.join(names)}{still}")


@contextmanager
def _chosen(name: str | None, words: list[str] | None) -> Iterator[tuple[Testbed, list[str]]]:
    """Yield the locked testbed and its chosen nodes. UserError: a controller runs, or the testbed
    has no such node."""
    from testbed.choose import choose_partly, select

    testbed = choose_partly(name)
    nodes = select(testbed, ",".join(words or ["all"]))
    with alone(testbed):
        yield testbed, [node.name for node in nodes]
