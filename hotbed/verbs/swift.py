"""`hotbed swift`: Swift microstores on a testbed, and their changes under load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hotbed.alone import agent_alone, agent_of
from hotbed.options import argument, named, option, quantity
from hotbed.output import Output, Verbs
from hotbed.views import TestbedOption, microstores_view
from schemas.errors import UserError

_LONG_S = 900.0


group = Verbs(help="Swift microstores (MOS): show and change them.")


@group.command()
def status(
    interval: float = quantity("--interval", "seconds", "Time over which rates are measured.", 1.0),
    testbed: TestbedOption = None,
) -> Output:
    """Show what microstores hold and use, their tenants, and services that do not run."""
    payload = {"interval_s": interval}
    found = agent_of(testbed).call("swift-status", payload, timeout_s=90)
    return Output(found, lambda: microstores_view(found))


@group.command()
def layout(
    name: Annotated[str, argument("One of the spec's: static, default, ...")],
    testbed: TestbedOption = None,
) -> Output:
    """Put a layout of the spec into force; objects stay where they are."""
    with agent_alone(testbed) as agent:
        found = agent.call("swift-layout", {"layout": name}, timeout_s=120)
    return Output(found, lambda: f"layout {name} in {found['seconds']:.2f} s")


@group.command()
def share(
    microstore: Annotated[str, typer.Argument()],
    proxy_cores: float | None = typer.Option(None, min=0.001),
    storage_cores: float | None = typer.Option(None, min=0.001),
    network: float | None = quantity("--network", "bits_per_s", "Such as 120Mbit.", None),
    testbed: TestbedOption = None,
) -> Output:
    """Change a microstore's shares; a share that is not given stays."""
    bytes_s = None if network is None else network / 8
    given = {"proxy_cores": proxy_cores, "storage_cores": storage_cores, "network": bytes_s}
    fields = {name: value for name, value in given.items() if value is not None}
    payload = {"microstores": {microstore: fields}}
    with agent_alone(testbed) as agent:
        found = agent.call("swift-layout", payload, timeout_s=60)
    return Output(found, lambda: f"{microstore} has its share after {found['seconds']:.2f} s")


@group.command()
def workers(
    microstore: Annotated[str, typer.Argument()],
    count: Annotated[int, typer.Argument(min=1, help="Worker processes of each proxy.")],
    testbed: TestbedOption = None,
) -> Output:
    """Change the proxies' processes without refusing a connection."""
    action = {"action": "workers", "microstore": microstore, "workers": count}
    return _act(testbed, action)


@group.command("map")
def map_tenant(
    tenant: Annotated[str, typer.Argument()],
    microstore: Annotated[str, typer.Argument()],
    testbed: TestbedOption = None,
) -> Output:
    """Have a microstore serve a tenant from now on."""
    action = {"action": "MapTenant", "tenant": tenant, "microstore": microstore}
    return _act(testbed, action)


@group.command()
def machine(
    node: Annotated[str, argument("A proxy node.")],
    microstore: str | None = argument("Microstore that gets the machine.", None),
    *,
    free: bool = named("--free", "Return the machine to the pool.", False),
    testbed: TestbedOption = None,
) -> Output:
    """Give a whole machine to a microstore, or back to the pool (spec: pool.machine)."""
    if (microstore is None) != free:
        raise UserError("name its microstore, or give --free", where=f"machine {node}")
    action = {"action": "AssignMachine", "machine": node, "microstore": microstore or ""}
    return _act(testbed, action)


@group.command("add-storage")
def add(
    node: Annotated[str, argument("A node with the role storage.")],
    microstore: Annotated[str, typer.Argument()],
    disk: list[str] | None = option("Disk, such as d1; by default all.", None),
    testbed: TestbedOption = None,
) -> Output:
    """Give a microstore a storage node or disks; `hotbed swift replicate` fills them."""
    action = {"action": "add-storage", "node": node, "microstore": microstore}
    return _act(testbed, action | ({"disks": disk} if disk else {}))


@group.command("remove-storage")
def remove(
    node: Annotated[str, typer.Argument()],
    disk: list[str] | None = option("Disk, such as d1; by default all.", None),
    testbed: TestbedOption = None,
) -> Output:
    """Empty a storage node, or some of its disks, and take it out of the rings."""
    action = {"action": "remove-storage", "node": node}
    return _act(testbed, action | ({"disks": disk} if disk else {}))


@group.command()
def replicate(testbed: TestbedOption = None) -> Output:
    """Run one pass of all replicators: after rings changed, or a node came back."""
    return _act(testbed, {"action": "replicate"})


def _act(testbed: str | None, action: Mapping[str, Any]) -> Output:
    with agent_alone(testbed) as agent:
        [effect] = agent.call("swift-act", {"actions": [action]}, timeout_s=_LONG_S)
    return Output(effect, lambda: _said(effect), code=int(not effect["ok"]))


def _said(effect: Mapping[str, Any]) -> str:
    detail = effect["detail"]
    requests = detail.get("requests", 0) + detail.get("failed", 0)
    meanwhile = f"; {detail.get('failed', 0):.0f} of {requests:.0f} requests failed meanwhile"
    return f"{effect['message']} after {effect['seconds']:.2f} s{meanwhile if requests else ''}"
