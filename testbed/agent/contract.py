"""Protocol between the engine and the admin node: one verb, JSON in, JSON out, over ssh.

On the admin node `/usr/local/bin/hotbed-agent VERB` reads a JSON payload on standard input. It
prints ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": "<one sentence>", "kind":
"user"|"store"|"remote"}``. The engine's side is `testbed/client.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from schemas.durable import read_deployed
from schemas.errors import UserError
from schemas.locks import RUN

AGENT_ROOT = "/opt/hotbed"  # the packages schemas, testbed, controllers
CONFIG = "/etc/hotbed/agent.json"  # an AgentConfig
KEY = "/etc/hotbed/ssh/id_ed25519"  # the admin node's own key to the other nodes
KNOWN_HOSTS = "/etc/hotbed/ssh/known_hosts"
STATE = "/var/lib/hotbed"  # journals, recordings, controllers under study
SLACK_S = 15.0  # for ssh and the agent's start, in addition to a verb's time
UNIT_PREFIX = "hotbed-"  # every systemd unit that Hotbed starts on a node
IOWAIT_CPUS = 4
"""Limit for the signal %iowait, a share of all CPUs' time: more CPUs dilute it beyond use."""


@dataclass(frozen=True)
class AgentNode:
    """The admin node's knowledge of a node. `osds` are the ids of the node's OSDs."""

    name: str
    address: str
    roles: tuple[str, ...]
    signal: str
    pressure_file: str | None = None
    devices: Mapping[str, str] = field(default_factory=dict)
    osds: tuple[int, ...] = ()
    ssh_user: str = "root"
    ssh_port: int = 22


@dataclass(frozen=True)
class AgentConfig:
    """Contents of `/etc/hotbed/agent.json`, which the role `agent` writes from testbed and spec."""

    testbed: str
    store: str  # "ceph"
    nodes: tuple[AgentNode, ...]
    pools: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnitResult:
    """A finished transient unit. `exit_code` is None if the unit was stopped or timed out."""

    node: str
    unit: str
    exit_code: int | None
    started_at: float  # seconds since the epoch, the node's clock
    ended_at: float
    stdout: str
    stderr: str
    cpu_s: float | None = None

    def reason(self, program: str) -> str:
        """Return why it failed, in the program's own words without its name."""
        if self.exit_code is None:
            return "it was stopped"
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return lines[-1].strip().removeprefix(f"{program}: ")[:300] if lines else "it said nothing"


class Agent(Protocol):
    """The engine's handle on the admin node."""

    @abstractmethod
    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        """Run one verb. Raises UserError, StoreError or RemoteError as the agent reports."""

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        """Start `argv` on `node` as the transient systemd unit ``hotbed-<name>``. systemd ends it
        after `max_s`, so that nothing outlives a lost engine."""
        payload = {"node": node, "name": name, "argv": list(argv), "max_s": max_s}
        self.call("unit-start", payload)

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        """Wait for the unit, return its output and forget the unit."""
        payload = {"node": node, "name": name, "timeout_s": timeout_s}
        return UnitResult(**self.call("unit-wait", payload, timeout_s=timeout_s + SLACK_S))

    def unit_stop(self, node: str, name: str) -> UnitResult | None:
        """Stop the unit; return None if there is none."""
        found = self.call("unit-stop", {"node": node, "name": name})
        return None if found is None else UnitResult(**found)

    def units(self) -> Mapping[str, Sequence[str]]:
        """Return live Hotbed load units (without prefix) by node."""
        found: Mapping[str, Sequence[str]] = self.call("units")
        return found

    def strays(self) -> Mapping[str, Sequence[str]]:
        """Return processes of fio or rados on the nodes outside Hotbed's units, by node."""
        found: Mapping[str, Sequence[str]] = self.call("strays")
        return found


CONTROL_DIR = RUN


def config_from_json(data: Mapping[str, Any]) -> AgentConfig:
    """Return a configuration from JSON; raise ValueError on missing or unknown fields."""
    try:
        nodes = tuple(
            AgentNode(**node | {"roles": tuple(node["roles"]), "osds": tuple(node.get("osds", ()))})
            for node in data["nodes"]
        )
        pools = tuple(data.get("pools", ()))
        return AgentConfig(str(data["testbed"]), str(data["store"]), nodes, pools)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"missing, unknown or malformed: {error}") from error


def load_config(path: str = CONFIG) -> AgentConfig:
    """Return the configuration of this admin node. UserError: there is none (the store is not
    deployed), or it is malformed."""
    try:
        return config_from_json(read_deployed(Path(path)))
    except ValueError as error:
        raise UserError(error, where=path, do="deploy the testbed again") from error


def node_of(config: AgentConfig, name: str) -> AgentNode:
    """Return the node called `name`; raise UserError with the known names if there is none."""
    for node in config.nodes:
        if node.name == name:
            return node
    names = ", ".join(node.name for node in config.nodes)
    raise UserError(f"there is no node {name!r} in testbed {config.testbed}", allowed=names)


def osd_nodes(config: AgentConfig) -> tuple[AgentNode, ...]:
    """Return the nodes that carry OSDs, in the configuration's order."""
    return tuple(node for node in config.nodes if node.osds or "osd" in node.roles)


def osd_names(config: AgentConfig) -> dict[int, str]:
    """Return the node name by OSD id."""
    return {osd: node.name for node in config.nodes for osd in node.osds}
