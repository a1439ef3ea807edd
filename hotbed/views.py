"""Tables for people, and options that several verbs share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hotbed import completion
from hotbed.options import option
from hotbed.output import Output, new_table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from campaigns.engine.estimate import DryRunReport
    from testbed.sites.contract import Cost, Node, Status, Testbed

TestbedOption = Annotated[
    str | None,
    option("Optional if there is only one.", autocompletion=completion.testbeds),
]


def cost_line(name: str, cost: Cost) -> str:
    """Return the cost of a testbed in one line."""
    length = "" if cost.hours is None else f" for {cost.hours:g} h"
    return f"{name}: {cost.nodes} nodes{length}, {cost.node_hours:g} node-hours; {cost.detail}"


def nodes_table(testbed: Testbed) -> Table:
    """Return a testbed's nodes as a table."""
    title = f"testbed {testbed.name} on site {testbed.site}: {len(testbed.nodes)} nodes"
    heads = ("node", "address", "state", "roles", "cpus", "memory", "signal")
    rows = ((node.name, node.address, "running", *_machine(node)) for node in testbed.nodes)
    return new_table(heads, rows, title=title)


def _machine(node: Node) -> tuple[str | None, ...]:
    """Return roles, cpus, memory and signal of a node."""
    cpus = None if node.cpus is None else f"{node.cpus:g}"
    memory = None if node.memory_bytes is None else f"{node.memory_bytes / 2**30:.1f} GiB"
    return ", ".join(sorted(node.roles)), cpus, memory, node.signal


def testbeds_table(found: Mapping[str, tuple[str, Status]]) -> object:
    """Return every testbed as a table."""
    if not found:
        return "no testbeds; `hotbed up SPEC` makes one"
    leased = any(status.ends_at_s is not None for _, status in found.values())
    rows = []
    for name, (kind, status) in found.items():
        running = sum(state == "running" for state in status.nodes.values())
        nodes = f"{running}/{len(status.nodes)}"
        lease = [status.lease() or "none"] if leased else []
        rows.append((name, kind, status.state, nodes, status.detail, *lease))
    heads = ("testbed", "site", "state", "nodes", "detail", *(["lease"] if leased else []))
    return new_table(heads, rows)


def lease_facts(ends_at_s: float | None, nodes: int) -> dict[str, float | None]:
    """Return the lease for programs: its end, seconds left, and node-hours left."""
    import time

    if ends_at_s is None:
        return {"ends_at_s": None, "ends_in_s": None, "node_hours_left": None}
    left_s = max(0.0, ends_at_s - time.time())
    hours = round(nodes * left_s / 3600, 2)
    return {"ends_at_s": ends_at_s, "ends_in_s": round(left_s, 1), "node_hours_left": hours}


def status_view(found: Mapping[str, Any], testbed: Testbed) -> Group:
    """Return an `overview`: the verdict, the groups of nodes, and what is abnormal or in force."""
    from rich.console import Group
    from rich.table import Table

    from testbed.overview import verdict

    groups = []
    for group in dict.fromkeys(node.group for node in testbed.nodes):
        members = [node for node in testbed.nodes if node.group == group]
        first = members[0]
        running = sum(found["nodes"].get(node.name) == "running" for node in members)
        name = first.name if len(members) == 1 else f"{first.name} to {members[-1].name}"
        groups.append((name, f"{running}/{len(members)}", *_machine(first)))
    table = new_table(("group", "running", "roles", "cpus", "memory", "signal"), groups)
    rows = Table.grid(padding=(0, 2))
    rows.add_column()
    rows.add_column(overflow="fold")
    for what, text in (*amiss(found), *in_force(found)):
        rows.add_row(what, text)
    if found["swift"] is None:
        return Group(verdict(found), table, rows)
    return Group(verdict(found), table, rows, "", microstores_view(found["swift"]))


def amiss(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the topic and text of each abnormal finding of an `overview`."""
    if found["state"] not in (None, "ready"):
        yield "testbed", f"{found['state']}: {found['detail']}"
    for node, state in found["nodes"].items():
        if state != "running":
            yield "node", f"{node}: {state}"
    for check in (found["health"] or {"checks": ()})["checks"]:
        word = "" if check["severity"] == "HEALTH_WARN" else f" ({check['severity']})"
        yield "store", f"{check['code']}{word}: {check['summary']}"
    for each in found["mons_down"]:
        yield "monitor", f"mon.{each['mon']} on node {each['node']} is down"
    for each in found["osds_down"]:
        yield "OSD", f"osd.{each['osd']} on node {each['node']} is down"
    for disk in found["disks_full"]:
        yield "disk", f"{disk['path']} on node {disk['node']} is {disk['used_share']:.0%} full"


def in_force(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the topic and text of what acts on the testbed, and of what could not be asked."""
    for row in found["controllers"]:
        step = (row["last"] or {}).get("step", "none yet")
        steered = f"; steers {', '.join(row['steered'])}" if row["steered"] else ""
        if row["running"]:
            yield "controller", f"{row['name']} runs, step {step}{steered}"
        elif row["leftover"]:
            yield "controller", f"{row['name']} died{steered} (`hotbed control stop` restores)"
    for load in found["loads"]:
        rate = "" if load["iops"] is None else f", {load['iops']:g} IO/s planned"
        yield "load", f"{load['name']} on node {load['node']}{rate}"
    yield from (("fault", fault["sentence"]) for fault in found["faults"])
    if found["snapshots"]:
        yield "snapshots", ", ".join(found["snapshots"])
    if found["lease"] is not None:
        yield "lease", found["lease"]
    yield from (("not asked", why) for why in found["unanswered"])


def dry_run_output(report: DryRunReport, **facts: object) -> Output:
    """Return the cells that a campaign would run; programs also get `facts`."""

    def view() -> Group:
        from rich.console import Group

        lines = [report.sentence]
        if report.lease is not None:
            lines.append(f"  {report.lease.sentence}")
        lines += [f"  {grid}: {text}" for grid, text in report.power.items()]
        lines += [f"  note: {note}" for note in report.notes]
        heads = ("run", "block", "figures", "cell", "planned")
        return Group(new_table(heads, report.rows), *lines)

    return Output(report.as_json() | facts, view)


def microstores_view(found: Mapping[str, Any]) -> Group:
    """Return the agent's ``swift-status``, or the microstores part of ``top``, as tables."""
    from rich.console import Group

    seen = found["microstores"]
    heads = ("microstore", "proxy cores", "storage cores", "Mbit/s", "proxy CPU", "storage CPU")
    title = f"layout {found['state']['layout']}"
    table = new_table((*heads, "network", "disk", "proxies"), title=title)
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
        ("tenant", "served by", "requests/s", "MB/s", "failed/s", "mean ms", "p95 ms")
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
