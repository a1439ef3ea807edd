"""Verbs of Swift microstores: state in force, layouts, shares, processes, storage nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

from schemas.errors import StoreError, UserError, not_allowed
from testbed.agent.contract import AgentConfig
from testbed.stores.contract import Effect, action_from_json
from testbed.stores.microstores import SetResources, microstores_to_json
from testbed.stores.swift.bring import READY_S, bring_up, put_layout, wait_ready
from testbed.stores.swift.cluster import state_to_json
from testbed.stores.swift.storage import StorageChanges
from testbed.stores.swift.store import SwiftStore, store_of


def deploy(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Put the spec's layout into force, every proxy serving: {timeout_s?} -> {changed: [words]}."""
    with closing(store_of(config)) as store:
        return {"changed": bring_up(store, float(payload.get("timeout_s", READY_S)))}


def ready(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until every proxy serves its tenants: {timeout_s?} -> {seconds}."""
    with closing(store_of(config)) as store:
        return {"seconds": wait_ready(store, float(payload.get("timeout_s", READY_S)))}


def status(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status: {interval_s?: 1} -> {state, microstores, layouts, down, lost, contents}.

    `microstores` is as in `microstores_to_json`, over the interval. `down` lists inactive units by
    node, `lost` the reasons for unreachable nodes. `contents` stays the same as long as stored
    objects remain available to their tenants."""
    interval_s = float(payload.get("interval_s", 1.0))
    if not 0.1 <= interval_s <= 60:
        raise not_allowed("interval_s", interval_s, "0.1 to 60 seconds")
    with closing(store_of(config)) as store:
        state = store.state()
        store.intervals(state)
        time.sleep(interval_s)
        seen = store.seen(state, store.intervals(state))
        names = [*state.proxies, *store.changes.storage_nodes(state)]
        requests = {name: {"op": "units"} for name in dict.fromkeys(names)}
        units, lost = store.nodes.try_ask(requests, 5.0)
        down = {
            node: [unit for unit, word in found.items() if word != "active"]
            for node, found in units.items()
        }
        return {
            "state": state_to_json(state),
            "microstores": microstores_to_json(seen),
            "layouts": list(store.cluster.layouts),
            "down": {node: names for node, names in down.items() if names},
            "lost": lost,
            "contents": contents(store),
        }


def contents(store: SwiftStore) -> str:
    """Return the sets of storage nodes: layouts of one deployment share the stored objects."""
    return ",".join(dict.fromkeys(store.cluster.set_of(name) for name in store.cluster.microstores))


def layout(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Put a layout: {layout?, microstores?, tenants?, proxies?, scale?} -> {seconds, contents,
    state}; see `testbed.stores.swift.bring.put_layout`."""
    with closing(store_of(config)) as store:
        began = time.monotonic()
        put_layout(
            store,
            payload.get("layout"),
            microstores=payload.get("microstores"),
            tenants=payload.get("tenants"),
            proxies=payload.get("proxies"),
            scale=payload.get("scale"),
        )
        return {
            "seconds": time.monotonic() - began,
            "contents": contents(store),
            "state": state_to_json(store.state()),
        }


def restore(config: AgentConfig, payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Restore a state: {state?} -> effects. `state` is from an earlier answer; without it, the
    spec's layout is put into force."""
    with closing(store_of(config)) as store:
        if "state" in payload:
            return [asdict(effect) for effect in store.restore(payload["state"])]
        return [asdict(store.timed(lambda: put_layout(store, store.cluster.layout)))]


def reconfigure(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Measure reconfiguration: {times?: 20} -> {seconds: [...]}. A step of every share goes from
    one microstore to another and back. Each time runs from the decision until all nodes report the
    share in force, with open channels, as in a controller's step."""
    times = max(2, min(1000, int(payload.get("times", 20))))
    with closing(store_of(config)) as store:
        before = store.state()
        first, *others = store.cluster.microstores
        if not others:
            raise UserError("there is one microstore alone: nothing can change hands")
        store.intervals(before)
        seconds = []
        try:
            for turn in range(times):
                shares = dict(before.shares)
                if turn % 2 == 0:
                    shares[first] = shares[first] - store.cluster.step
                    shares[others[0]] = shares[others[0]] + store.cluster.step
                actions = [SetResources(name, shares[name]) for name in (first, others[0])]
                began = time.monotonic()
                effects = store.act(actions)
                seconds.append(time.monotonic() - began)
                problems = [effect.message for effect in effects if not effect.ok]
                if problems:
                    raise StoreError(problems[0])
        finally:
            store.restore(state_to_json(before))
        return {"seconds": seconds}


def act(config: AgentConfig, payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Carry out {actions: [...]} -> effects. Actions are those of controllers (SetResources,
    AssignMachine, MapTenant), {action: workers, microstore, workers}, {action: add-storage, node,
    microstore, disks?}, {action: remove-storage, node, disks?}, {action: replicate}."""
    with closing(store_of(config)) as store:
        effects: list[Effect] = []
        for action in payload["actions"]:
            effects += _one(store, action)
        return [asdict(effect) for effect in effects]


def _one(store: SwiftStore, action: Mapping[str, Any]) -> list[Effect]:
    storage = StorageChanges(store)
    kind = action.get("action")
    try:
        if kind == "workers":
            wanted = {action["microstore"]: {"workers": int(action["workers"])}}
            return [store.timed(lambda: put_layout(store, microstores=wanted))]
        if kind == "add-storage":
            return [storage.add(action["node"], action["microstore"], action.get("disks"))]
        if kind == "remove-storage":
            return [storage.remove(action["node"], action.get("disks"))]
        if kind == "replicate":
            return [storage.replicated()]
        return list(store.act([action_from_json(action)]))
    except (KeyError, ValueError) as error:
        raise UserError(f"action {kind!r} of Swift cannot be understood: {error}") from error
