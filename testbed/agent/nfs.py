"""Verbs of the NFS store: proxies' status and parameters, and the network's enforcement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import AgentConfig
from testbed.stores.nfs.store import store_of

_ASKED = frozenset(
    {"status", "parameters", "metrics", "ready", "default", "trace-start", "trace-stop"}
)


def ask(config: AgentConfig, payload: Mapping[str, Any]) -> Any:
    """Ask a proxy: {server, verb, arguments?: []} -> answer of `testbed.stores.nfs.control`.

    Verbs: status, parameters, metrics, ready, default, trace-start FOLDER, trace-stop."""
    verb = str(payload["verb"])
    if verb not in _ASKED:
        raise UserError(f"there is no verb {verb!r}", allowed=", ".join(sorted(_ASKED)))
    arguments = [str(argument) for argument in payload.get("arguments", ())]
    return store_of(config).ask(str(payload["server"]), verb, *arguments)


def act(config: AgentConfig, payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Carry out {actions: [...]} of `testbed.stores.nfs.store` -> effects."""
    return [asdict(effect) for effect in store_of(config).act(payload["actions"])]


def check(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, list[str]]:
    """Check all hosts: {network: {host: parameters}} -> differences in words by host."""
    return store_of(config).check(payload["network"])


def caches(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, int]:
    """Write back and drop the page cache: {} -> number of files by server."""
    return store_of(config).caches()
