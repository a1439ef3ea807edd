"""The agent's verbs: a name and the place of its function, imported at the call.

A verb is ``def verb(config: AgentConfig, payload: Mapping[str, Any]) -> Any``; its result must be
JSON-able. A verb that returns an iterator streams one answer line per item, until the caller closes
the connection. Modules of verbs import heavy packages (rados) where they need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import UserError

VERBS: dict[str, str] = {
    # Units: load and helpers on the nodes, as transient systemd units.
    "unit-start": "testbed.agent.units:unit_start",
    "unit-wait": "testbed.agent.units:unit_wait",
    "unit-stop": "testbed.agent.units:unit_stop",
    "open-loop-start": "testbed.agent.openloop_verbs:start",
    "units": "testbed.agent.units:units",
    "strays": "testbed.agent.units:strays",
    # A disturbance plan: loads that start and stop at planned times.
    "disturb-start": "testbed.agent.disturb:disturb_start",
    "disturb-go": "testbed.agent.disturb:disturb_go",
    "disturb-stop": "testbed.agent.disturb:disturb_stop",
    "disturb-status": "testbed.agent.disturb:disturb_status",
    "disturb-log": "testbed.agent.disturb:disturb_log",
    # The store's health and a clean state before a run.
    "health": "testbed.agent.health:health",
    "wait-clean": "testbed.agent.health:wait_clean",
    "clean": "testbed.agent.clean:clean",
    "unclean": "testbed.agent.clean:unclean",
    "caches": "testbed.agent.clean:caches",
    "pool-create": "testbed.agent.pools:pool_create",
    "pool-delete": "testbed.agent.pools:pool_delete",
    "pinned-create": "testbed.agent.pools:pinned_create",
    "pinned-empty": "testbed.agent.pools:pinned_empty",
    "pinned-delete": "testbed.agent.pools:pinned_delete",
    "placement": "testbed.agent.pools:placement",
    # Versions and hardware.
    "core-speed": "testbed.agent.speed:core_speed",
    "versions": "testbed.agent.facts:versions",
    "facts": "testbed.agent.facts:facts",
    # Observation.
    "overview": "testbed.agent.overview:overview",
    "top": "testbed.agent.top:top",
    "node-top": "testbed.agent.top:node_top",
    "sense": "testbed.agent.sense:sense",
    "observe": "testbed.agent.sense:observe",
    "store-selftest": "testbed.agent.selftest:selftest",
    "recorder-start": "testbed.agent.recorder:start",
    "recorder-stop": "testbed.agent.recorder:stop",
    "recorder-fetch": "testbed.agent.recorder:fetch",
    # The NFS store.
    "nfs-ask": "testbed.agent.nfs:ask",
    "nfs-act": "testbed.agent.nfs:act",
    "nfs-check": "testbed.agent.nfs:check",
    "nfs-caches": "testbed.agent.nfs:caches",
    # Swift microstores.
    "swift-deploy": "testbed.agent.swift:deploy",
    "swift-ready": "testbed.agent.swift:ready",
    "swift-status": "testbed.agent.swift:status",
    "swift-layout": "testbed.agent.swift:layout",
    "swift-restore": "testbed.agent.swift:restore",
    "swift-reconfigure": "testbed.agent.swift:reconfigure",
    "swift-act": "testbed.agent.swift:act",
    # The controller: only named here, because controllers import this package.
    "control-start": "controllers.control:start",
    "control-stop": "controllers.control:stop",
    "control-status": "controllers.control:status",
    "control-log": "controllers.control:log",
    "control-follow": "controllers.control:follow",
    "control-steps": "controllers.steps:steps",
}


def needed(payload: Mapping[str, Any], verb: str, *names: str) -> list[Any]:
    """Return fields that a verb needs in its payload; raise UserError for the first missing one."""
    for name in names:
        if payload.get(name) in (None, ""):
            raise UserError(f"the payload needs {name!r}", where=verb)
    return [payload[name] for name in names]


def text_of(payload: Mapping[str, Any], verb: str, name: str) -> str:
    """Return a field that must be text and not empty. UserError: it is not."""
    (value,) = needed(payload, verb, name)
    if not isinstance(value, str):
        raise UserError(f"{name} is {value!r}", where=verb, allowed="text")
    return value
