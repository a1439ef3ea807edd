"""Verbs of the NFS store: proxies' status and parameters, and the network's enforcement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from schemas.errors import UserError, not_allowed
from testbed.agent.contract import AgentConfig
from testbed.stores.nfs.store import (
    NfsAction,
    PutParameters,
    PutProfile,
    SetNetwork,
    store_of,
)

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


def sense(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Sense every proxy's counters as rates: {interval_s?: 1} -> an `NfsObservation`."""
    interval_s = float(payload.get("interval_s", 1.0))
    if not 0 <= interval_s <= 60:
        raise not_allowed("interval_s", interval_s, "0 to 60 seconds")
    store = store_of(config)
    store.sense()
    time.sleep(interval_s)
    return asdict(store.sense())


def act(config: AgentConfig, payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Carry out {actions: [{action: put-parameters|put-profile|set-network, ...}]} -> effects."""
    effects = store_of(config).act([action_of(one) for one in payload["actions"]])
    return [asdict(effect) for effect in effects]


def action_of(data: Mapping[str, Any]) -> NfsAction:
    """Return an action from its JSON; raise UserError if it is invalid."""
    try:
        kind = data["action"]
        if kind == "put-parameters":
            return PutParameters(data["server"], data["parameters"])
        if kind == "put-profile":
            return PutProfile(data["server"], data["profile"])
        if kind == "set-network":
            return SetNetwork(data["host"], data["parameters"])
    except KeyError as error:
        raise UserError(f"action {data.get('action')!r} of the NFS store lacks {error}") from error
    raise UserError(
        f"action {kind!r} is not the NFS store's",
        allowed="put-parameters, put-profile, set-network",
    )


def check(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, list[str]]:
    """Check all hosts: {network: {host: parameters}} -> differences in words by host."""
    return store_of(config).check(payload["network"])


def caches(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, int]:
    """Write back and drop the page cache: {} -> number of files by server."""
    return store_of(config).caches()
