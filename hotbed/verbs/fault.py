"""`hotbed fault`: make faults on nodes by hand, list them, undo them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed import completion
from hotbed.options import argument, named, quantity
from hotbed.output import Output, Verbs
from hotbed.views import TestbedOption
from schemas.errors import UserError

if TYPE_CHECKING:
    from testbed.faults import Fault, FaultKind, FaultMaker, Settings

NodesArgument = Annotated[
    list[str], argument("Names, groups or roles.", autocompletion=completion.nodes)
]
SomeNodesArgument = Annotated[
    list[str] | None, argument("By default all nodes.", autocompletion=completion.nodes)
]
ForOption = Annotated[
    float | None, quantity("--for", "seconds", "Undo it after this time, such as 60s.")
]


group = Verbs(help="Make faults on nodes by hand, and undo them.")


def maker(testbed: str | None) -> FaultMaker:
    """Return the maker of faults on a testbed whose nodes or links may be missing."""
    from testbed.choose import choose, ready
    from testbed.faults import FaultMaker

    site, name = choose(testbed)
    return FaultMaker.on(site, site.find(name, partly=True) or ready(site, name))


def output_of(faults: list[Fault], none: str = "") -> Output:
    """Return faults, or for people the text `none`."""
    shown = [fault.as_json() for fault in faults]
    return Output(shown, lambda: "\n".join(fault.sentence() for fault in faults) or none)


def _make(
    kind: FaultKind,
    nodes: list[str],
    settings: Settings,
    for_s: float | None,
    testbed: str | None,
) -> Output:
    from testbed.choose import select

    if for_s is not None and not for_s > 0:
        raise UserError(f"{for_s:g} s is no time", where="--for", allowed="more than 0 s")
    made = maker(testbed)
    chosen = select(made.testbed, ",".join(nodes))
    return output_of(made.inject(kind, chosen, settings, for_s=for_s))


@group.command()
def link(
    nodes: NodesArgument,
    cut: bool = named("--cut", "Cut the link.", False),
    rate: float | None = quantity("--rate", "bits_per_s", "Limit the rate, such as 10Mbit.", None),
    delay: float | None = quantity("--delay", "seconds", "Delay each packet, such as 20ms.", None),
    loss: float | None = typer.Option(
        None, min=0.0001, max=0.99, help="Share of packets to lose, such as 0.01."
    ),
    for_s: ForOption = None,
    testbed: TestbedOption = None,
) -> Output:
    """Cut or limit the link of nodes, in both directions; on real machines, limit the packets that
    a node sends to the other nodes."""
    given = {"rate": rate, "delay": delay, "loss": loss}
    limits = {name: value for name, value in given.items() if value is not None}
    if cut == bool(limits):
        allowed = "--cut alone, or one or more of --rate, --delay, --loss"
        raise UserError("say what happens to the link", allowed=allowed)
    for name in (name for name, value in limits.items() if not value > 0):
        raise UserError(f"{limits[name]:g} is too small", where=f"--{name}", allowed="more than 0")
    return _make("link", nodes, {"cut": True} if cut else limits, for_s, testbed)


@group.command()
def disk(
    nodes: NodesArgument,
    slow: float | None = typer.Option(
        None, min=1.0, help="Factor of every request's time, such as 4."
    ),
    error: bool = named("--error", "Let every request fail.", False),
    for_s: ForOption = None,
    testbed: TestbedOption = None,
) -> Output:
    """Make the disks of nodes slow, or let them fail. Errors can damage file systems: `hotbed
    snapshot restore deployed` repairs them."""
    settings = ({} if slow is None else {"slow": slow}) | ({"error": True} if error else {})
    if not settings:
        raise UserError("say what happens to the disk", allowed="--slow FACTOR, --error")
    return _make("disk", nodes, settings, for_s, testbed)


def _simple(kind: FaultKind) -> Callable[..., Output]:
    """Return a command that makes a fault without settings."""

    def make(
        nodes: NodesArgument, for_s: ForOption = None, testbed: TestbedOption = None
    ) -> Output:
        return _make(kind, nodes, {}, for_s, testbed)

    return make


_OSDS = "Kill the OSDs of nodes; they stay down until the fault ends."
_MONITORS = "Kill the Ceph monitors of nodes; they stay down until the fault ends."
_NODES = "Stop nodes as a power failure does; they start again when the fault ends."
group.command("osd", help=_OSDS)(_simple("osd"))
group.command("mon", help=_MONITORS)(_simple("mon"))
group.command("node", help=_NODES)(_simple("node"))


@group.command()
def clear(nodes: SomeNodesArgument = None, testbed: TestbedOption = None) -> Output:
    """Undo faults and loads by hand, also those of a command that was killed; safe to repeat."""
    from testbed.choose import select

    made = maker(testbed)
    chosen = [node.name for node in select(made.testbed, ",".join(nodes))] if nodes else None
    undone = made.clear(chosen)
    shown = [fault.as_json() for fault in undone]
    words = ", ".join(fault.what() for fault in undone)
    return Output(shown, lambda: f"undone: {words}" if undone else "nothing to undo")


@group.command("list")
def list_(testbed: TestbedOption = None) -> Output:
    """List the faults and loads by hand in force; first undo those whose time is over."""
    return output_of(maker(testbed).current(), "no faults or loads by hand")
