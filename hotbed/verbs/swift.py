"""`hotbed swift`: Swift microstores on a testbed, and their changes under load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hotbed.alone import agent_alone
from hotbed.options import argument, named, option, quantity
from hotbed.output import JsonFlag, emit
from hotbed.views import TestbedOption, microstores_view
from schemas.errors import UserError

_LONG_S = 900.0


group = typer.Typer(no_args_is_help=True, help="Swift microstores (MOS): show and change them.")


@group.command()
def status(
    interval: Annotated[
        float, quantity("--interval", "seconds", "Time over which rates are measured.")
    ] = 1.0,
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what microstores hold and use, their tenants, and services that do not run."""
    from testbed.choose import choose_partly
    from testbed.client import agent_client

    agent = agent_client(choose_partly(testbed))
    found = agent.call("swift-status", {"interval_s": interval}, timeout_s=90)
    emit(found, as_json, lambda: microstores_view(found))


@group.command()
def layout(
    name: Annotated[str, argument("One of the spec's: static, default, ...")],
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Put a layout of the spec into force; objects stay where they are."""
    with agent_alone(testbed) as agent:
        found = agent.call("swift-layout", {"layout": name}, timeout_s=120)
    emit(found, as_json, lambda: f"layout {name} in {found['seconds']:.2f} s")


@group.command()
def share(
    microstore: Annotated[str, typer.Argument()],
    proxy_cores: Annotated[float | None, typer.Option(min=0.001)] = None,
    storage_cores: Annotated[float | None, typer.Option(min=0.001)] = None,
    network: Annotated[
        float | None, quantity("--network", "bits_per_s", "Such as 120Mbit.")
    ] = None,
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change a microstore's shares; a share that is not given stays."""
    fields: dict[str, float] = {}
    if proxy_cores is not None:
        fields["proxy_cores"] = proxy_cores
    if storage_cores is not None:
        fields["storage_cores"] = storage_cores
    if network is not None:
        fields["network"] = network / 8
    payload = {"microstores": {microstore: fields}}
    with agent_alone(testbed) as agent:
        found = agent.call("swift-layout", payload, timeout_s=60)
    emit(found, as_json, lambda: f"{microstore} has its share after {found['seconds']:.2f} s")


@group.command()
def workers(
    microstore: Annotated[str, typer.Argument()],
    count: Annotated[int, typer.Argument(min=1, help="Worker processes of each proxy.")],
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change the proxies' processes without refusing a connection."""
    action = {"action": "workers", "microstore": microstore, "workers": count}
    _act(testbed, action, as_json)


@group.command("map")
def map_tenant(
    tenant: Annotated[str, typer.Argument()],
    microstore: Annotated[str, typer.Argument()],
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Have a microstore serve a tenant from now on."""
    _act(testbed, {"action": "MapTenant", "tenant": tenant, "microstore": microstore}, as_json)


@group.command()
def machine(
    node: Annotated[str, argument("A proxy node.")],
    microstore: Annotated[str | None, argument("Microstore that gets the machine.")] = None,
    *,
    free: Annotated[bool, named("--free", "Return the machine to the pool.")] = False,
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a whole machine to a microstore, or back to the pool (spec: pool.machine)."""
    if (microstore is None) != free:
        raise UserError("name its microstore, or give --free", where=f"machine {node}")
    action = {"action": "AssignMachine", "machine": node, "microstore": microstore or ""}
    _act(testbed, action, as_json)


@group.command("add-storage")
def add(
    node: Annotated[str, argument("A node with the role storage.")],
    microstore: Annotated[str, typer.Argument()],
    disk: Annotated[list[str] | None, option("Disk, such as d1; by default all.")] = None,
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a microstore a storage node or disks; `hotbed swift replicate` fills them."""
    action = {"action": "add-storage", "node": node, "microstore": microstore}
    _act(testbed, action | ({"disks": disk} if disk else {}), as_json)


@group.command("remove-storage")
def remove(
    node: Annotated[str, typer.Argument()],
    disk: Annotated[list[str] | None, option("Disk, such as d1; by default all.")] = None,
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Empty a storage node, or some of its disks, and take it out of the rings."""
    action = {"action": "remove-storage", "node": node}
    _act(testbed, action | ({"disks": disk} if disk else {}), as_json)


@group.command()
def replicate(testbed: TestbedOption = None, as_json: JsonFlag = False) -> None:
    """Run one pass of all replicators: after rings changed, or a node came back."""
    _act(testbed, {"action": "replicate"}, as_json)


def _act(testbed: str | None, action: Mapping[str, Any], as_json: bool) -> None:
    with agent_alone(testbed) as agent:
        [effect] = agent.call("swift-act", {"actions": [action]}, timeout_s=_LONG_S)
    emit(effect, as_json, lambda: _said(effect))
    if not effect["ok"]:
        raise typer.Exit(1)


def _said(effect: Mapping[str, Any]) -> str:
    detail = effect["detail"]
    requests = detail.get("requests", 0) + detail.get("failed", 0)
    meanwhile = f"; {detail.get('failed', 0):.0f} of {requests:.0f} requests failed meanwhile"
    return f"{effect['message']} after {effect['seconds']:.2f} s{meanwhile if requests else ''}"
