"""Reader of `/etc/hotbed/agent.json`, the admin node's knowledge of its testbed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from schemas.locks import RUN, own_folder
from testbed.agent.contract import CONFIG, KEY, KNOWN_HOSTS, AgentConfig, AgentNode
from testbed.ssh import SshShell, SshTarget

CONTROL_DIR = RUN


def config_from_json(data: Mapping[str, Any]) -> AgentConfig:
    """Return a configuration from JSON; raise ValueError on missing or unknown fields."""
    try:
        nodes = tuple(_node(node) for node in data["nodes"])
        return AgentConfig(
            testbed=str(data["testbed"]),
            store=str(data["store"]),
            nodes=nodes,
            pools=tuple(data.get("pools", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"missing or malformed: {error}") from error


def _node(data: Mapping[str, Any]) -> AgentNode:
    known = {field.name for field in fields(AgentNode)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise ValueError(f"node {data.get('name')!r} has unknown fields {', '.join(unknown)}")
    values = dict(data)
    values["roles"] = tuple(data["roles"])
    values["osds"] = tuple(int(osd) for osd in data.get("osds", ()))
    return AgentNode(**values)


def config_to_json(config: AgentConfig) -> dict[str, Any]:
    """Invert `config_from_json`."""
    return asdict(config)


def load_config(path: str = CONFIG) -> AgentConfig:
    """Return the configuration of this admin node.

    Raises:
        UserError: there is none (the store is not deployed), or it is malformed.
    """
    try:
        data = json.loads(Path(path).read_text())
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: deploy the testbed first (hotbed deploy).") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): deploy the testbed again.") from error
    try:
        return config_from_json(data)
    except ValueError as error:
        raise UserError(f"{path} is {error}: deploy the testbed again.") from error


def node_of(config: AgentConfig, name: str) -> AgentNode:
    """Return the node called `name`; raise UserError with the known names if there is none."""
    for node in config.nodes:
        if node.name == name:
            return node
    names = ", ".join(node.name for node in config.nodes)
    raise UserError(f"there is no node {name!r} in testbed {config.testbed}: it has {names}.")


def osd_nodes(config: AgentConfig) -> tuple[AgentNode, ...]:
    """Return the nodes that carry OSDs, in the configuration's order."""
    return tuple(node for node in config.nodes if node.osds or "osd" in node.roles)


def osd_names(config: AgentConfig) -> dict[int, str]:
    """Return the node name by OSD id."""
    return {osd: node.name for node in config.nodes for osd in node.osds}


def shell_to(node: AgentNode) -> SshShell:
    """Return a shell from the admin node to `node`, with the admin node's own key."""
    return SshShell(
        SshTarget(
            node=node.name,
            address=node.address,
            key=Path(KEY),
            known_hosts=Path(KNOWN_HOSTS),
            user=node.ssh_user,
            port=node.ssh_port,
            control_dir=own_folder(CONTROL_DIR),
        )
    )
