"""Tables for people, and options that several verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.sites.contract import Status, Testbed

TestbedOption = Annotated[
    str | None, typer.Option("--testbed", help="May be left out if there is one.")
]


def _table(*columns: str, title: str | None = None) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    return table


def _gib(count: int | None) -> str:
    return "" if count is None else f"{count / 2**30:.1f} GiB"


def nodes_table(testbed: Testbed, states: Mapping[str, str] | None = None) -> Table:
    """A testbed's nodes."""
    title = f"testbed {testbed.name} on site {testbed.site}: {len(testbed.nodes)} nodes"
    table = _table("node", "address", "state", "roles", "cpus", "memory", "signal", title=title)
    for node in testbed.nodes:
        table.add_row(
            node.name,
            node.address,
            (states or {}).get(node.name, "running"),
            ", ".join(sorted(node.roles)),
            "" if node.cpus is None else f"{node.cpus:g}",
            _gib(node.memory_bytes),
            node.signal,
        )
    return table


def testbeds_table(found: Mapping[str, tuple[str, Status]]) -> Table | str:
    """Every testbed."""
    if not found:
        return "no testbeds; `hotbed up SPEC` makes one"
    table = _table("testbed", "site", "state", "nodes", "detail")
    for name, (kind, status) in found.items():
        running = sum(state == "running" for state in status.nodes.values())
        table.add_row(name, kind, status.state, f"{running}/{len(status.nodes)}", status.detail)
    return table


def status_table(name: str, status: Status, testbed: Testbed | None) -> Table | str:
    """One testbed with its nodes."""
    if testbed is None:
        lines = [f"testbed {name}: {status.state} ({status.detail})"]
        return "\n".join(lines + [f"  {node}: {state}" for node, state in status.nodes.items()])
    table = nodes_table(testbed, status.nodes)
    table.caption = f"{status.state}: {status.detail}"
    table.caption_justify = "left"
    return table
