"""Tables for people, and options that several verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotbed import completion
from hotbed.output import new_table
from schemas.errors import HotbedError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from campaigns.engine.estimate import DryRunReport
    from testbed.sites.contract import Cost, Status, Testbed

TestbedOption = Annotated[
    str | None,
    typer.Option(
        "--testbed", help="Optional if there is only one.", autocompletion=completion.testbeds
    ),
]


def _gib(count: int | None) -> str:
    return "" if count is None else f"{count / 2**30:.1f} GiB"


def cost_line(name: str, cost: Cost) -> str:
    """Return the cost of a testbed in one line."""
    length = "" if cost.hours is None else f" for {cost.hours:g} h"
    return f"{name}: {cost.nodes} nodes{length}, {cost.node_hours:g} node-hours; {cost.detail}"


def nodes_table(testbed: Testbed, states: Mapping[str, str] | None = None) -> Table:
    """Return a testbed's nodes as a table."""
    title = f"testbed {testbed.name} on site {testbed.site}: {len(testbed.nodes)} nodes"
    table = new_table("node", "address", "state", "roles", "cpus", "memory", "signal", title=title)
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


def testbeds_table(found: Mapping[str, tuple[str, Status]]) -> object:
    """Return every testbed as a table."""
    if not found:
        return "no testbeds; `hotbed up SPEC` makes one"
    leased = any(status.ends_at_s is not None for _, status in found.values())
    table = new_table("testbed", "site", "state", "nodes", "detail", *(["lease"] if leased else []))
    for name, (kind, status) in found.items():
        running = sum(state == "running" for state in status.nodes.values())
        nodes = f"{running}/{len(status.nodes)}"
        lease = [status.lease() or "none"] if leased else []
        table.add_row(name, kind, status.state, nodes, status.detail, *lease)
    return table


def lease_facts(status: Status) -> dict[str, float | None]:
    """Return the lease for programs: its end, seconds left, and node-hours left."""
    import time

    if status.ends_at_s is None:
        return {"ends_at_s": None, "ends_in_s": None, "node_hours_left": None}
    left_s = max(0.0, status.ends_at_s - time.time())
    hours = round(len(status.nodes) * left_s / 3600, 2)
    return {"ends_at_s": status.ends_at_s, "ends_in_s": round(left_s, 1), "node_hours_left": hours}


def status_table(name: str, status: Status, testbed: Testbed | None) -> Table | str:
    """Return one testbed with its nodes."""
    lease = status.lease()
    if testbed is None:
        lines = [f"testbed {name}: {status.state} ({status.detail})"]
        lines += [] if lease is None else [f"  lease: {lease}"]
        return "\n".join(lines + [f"  {node}: {state}" for node, state in status.nodes.items()])
    table = nodes_table(testbed, status.nodes)
    table.caption = f"{status.state}: {status.detail}" + (f"\nlease {lease}" if lease else "")
    return table


def microstores_of(testbed: Testbed | None) -> Mapping[str, Any] | None:
    """Return the status of a testbed's Swift; None if the testbed has none or is not deployed."""
    from testbed.client import agent_client

    if testbed is None or not testbed.with_role("proxy"):
        return None
    try:
        found: Mapping[str, Any] = agent_client(testbed).call("swift-status", timeout_s=60)
    except HotbedError as error:
        return {"error": str(error)}
    return found


def status_view(
    name: str, status: Status, testbed: Testbed | None, swift: Mapping[str, Any] | None
) -> object:
    """Return one testbed with its nodes, and with its microstores if it has any."""
    from rich.console import Group

    table = status_table(name, status, testbed)
    if swift is None:
        return table
    return Group(table, f"swift: {swift['error']}" if "error" in swift else microstores_view(swift))


def dry_run_table(report: DryRunReport) -> Group:
    """Return the cells that a campaign would run."""
    from rich.console import Group

    table = new_table("run", "block", "figures", "cell", "planned")
    for row in report.rows:
        table.add_row(*row)
    lines = [report.sentence]
    if report.lease is not None:
        lines.append(f"  {report.lease.sentence}")
    lines += [f"  {grid}: {text}" for grid, text in report.power.items()]
    lines += [f"  note: {note}" for note in report.notes]
    return Group(table, *lines)


def microstores_view(found: Mapping[str, Any]) -> Group:
    """Return the agent's ``swift-status``, or the microstores part of ``top``, as tables."""
    from rich.console import Group

    seen = found["microstores"]
    table = new_table(
        *("microstore", "proxy cores", "storage cores", "Mbit/s", "proxy CPU", "storage CPU"),
        *("network", "disk", "proxies"),
        title=f"layout {found['state']['layout']}",
    )
    proxies = found["state"]["proxies"]
    for store in seen["stores"]:
        share, used = store["resources"], store["utilization"]
        table.add_row(
            store["name"],
            f"{share['proxy_cores']:.2f}",
            f"{share['storage_cores']:.2f}",
            f"{share['network'] * 8 / 1e6:.0f}",
            *(_percent(used.get(name)) for name in ("proxy_cpu", "storage_cpu", "network", "disk")),
            ", ".join(node for node, mine in proxies.items() if mine == store["name"]),
        )
    tenants = new_table(
        "tenant", "served by", "requests/s", "MB/s", "failed/s", "mean ms", "p95 ms"
    )
    for tenant in seen["tenants"]:
        tenants.add_row(
            tenant["name"],
            ", ".join(found["state"]["tenants"][tenant["name"]]),
            f"{tenant['requests_s']:.1f}",
            f"{tenant['bytes_s'] / 1e6:.1f}",
            f"{tenant['failed_s']:.1f}",
            _milliseconds(tenant["mean_latency_s"]),
            _milliseconds(tenant["p95_latency_s"]),
        )
    lines = [f"{node}: {', '.join(units)} not running" for node, units in found["down"].items()]
    lines += [f"{node}: {why}" for node, why in found["lost"].items()]
    return Group(table, tenants, *lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f}"
