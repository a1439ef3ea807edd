"""Protocol between the engine and the admin node: one verb, JSON in, JSON out, over ssh.

On the admin node `/usr/local/bin/hotbed-agent VERB` reads a JSON payload on standard input. It
prints ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": "<one sentence>", "kind":
"user"|"store"|"remote"}``. The engine's side is `testbed/client.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

AGENT_ROOT = "/opt/hotbed"  # the packages schemas, testbed, controllers
CONFIG = "/etc/hotbed/agent.json"  # an AgentConfig
KEY = "/etc/hotbed/ssh/id_ed25519"  # the admin node's own key to the other nodes
KNOWN_HOSTS = "/etc/hotbed/ssh/known_hosts"
STATE = "/var/lib/hotbed"  # journals, recordings, controllers under study
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


class Agent(Protocol):
    """The engine's handle on the admin node."""

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        """Run one verb. Raises UserError, StoreError or RemoteError as the agent reports."""

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        """Start `argv` on `node` as the transient systemd unit ``hotbed-<name>``. systemd ends it
        after `max_s`, so that nothing outlives a lost engine."""

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        """Wait for the unit, return its output and forget the unit."""

    def unit_stop(self, node: str, name: str) -> UnitResult | None:
        """Stop the unit; return None if there is none."""

    def units(self) -> Mapping[str, Sequence[str]]:
        """Return live Hotbed load units (without prefix) by node."""

    def strays(self) -> Mapping[str, Sequence[str]]:
        """Return processes of fio or rados on the nodes outside Hotbed's units, by node."""
