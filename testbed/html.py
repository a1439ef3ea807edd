"""How nodes, states and costs look in Jupyter."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from testbed.quantities import format_bytes

if TYPE_CHECKING:
    from testbed.sites.contract import Cost, Node, Status

_COLUMNS = ("node", "address", "roles", "cpus", "memory", "devices", "pressure from")


def nodes_html(nodes: Sequence[Node], title: str) -> str:
    """A table of nodes with a title; everything escaped."""
    head = "".join(f'<th style="text-align:left">{column}</th>' for column in _COLUMNS)
    rows = "".join(f"<tr>{_cells(node)}</tr>" for node in nodes)
    return (
        f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def status_html(status: Status) -> str:
    """A state with its nodes, and when the lease ends; everything escaped."""
    lines = [("state", f"{status.state}: {status.detail}")]
    lease = status.lease()
    if lease is not None:
        lines.append(("lease", lease))
    return _pairs_html([*lines, *status.nodes.items()])


def cost_html(cost: Cost) -> str:
    """What a testbed takes; everything escaped."""
    lines = [("nodes", str(cost.nodes)), ("node-hours", f"{cost.node_hours:.1f}")]
    if cost.hours is not None:
        lines.append(("lease", f"{cost.hours:g} h"))
    sizes = (("memory", cost.memory_bytes), ("disks", cost.disk_bytes))
    lines += [(what, format_bytes(size)) for what, size in sizes if size]
    return _pairs_html([*lines, ("", cost.detail)])


def _pairs_html(pairs: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(what)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for what, value in pairs
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _cells(node: Node) -> str:
    values = (
        node.name,
        node.address,
        ", ".join(sorted(node.roles)),
        "" if node.cpus is None else f"{node.cpus:g}",
        "" if node.memory_bytes is None else format_bytes(node.memory_bytes),
        ", ".join(use for use in sorted(node.devices) if use.startswith(("osd", "scratch"))),
        node.signal,
    )
    return "".join(f'<td style="text-align:left">{escape(value)}</td>' for value in values)
