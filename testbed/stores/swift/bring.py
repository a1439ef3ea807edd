"""Start of a deployed Swift, and the check that it serves: the last step of a deployment.

By then the role swift has put everything on the nodes: packages, disks, secrets, daemons.
Afterwards the spec's layout is in force. Safe to repeat: a second run changes nothing.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from schemas.errors import StoreError, UserError, not_allowed
from testbed.agent.reach import every
from testbed.stores.microstores import Resources
from testbed.stores.swift import services
from testbed.stores.swift.cluster import SwiftState, initial
from testbed.stores.swift.storage import StorageChanges, known_microstore
from testbed.stores.swift.store import SwiftStore

# ----------------------------------------------------------------------------------------------
# Layouts: shares and the tenants' microstores, put into force as a whole.


def put_layout(
    store: SwiftStore,
    layout: str | None = None,
    *,
    microstores: Mapping[str, Mapping[str, Any]] | None = None,
    tenants: Mapping[str, Sequence[str]] | None = None,
    proxies: Mapping[str, Mapping[str, float]] | None = None,
    scale: float | None = None,
) -> str:
    """Put a layout into force, with the given changes.

    Args:
        layout: its name; None: the one in force.
        microstores: fields of `Resources`, and ``workers``, by microstore.
        tenants: the microstores that serve each tenant.
        proxies: proxy_cores and network (bytes/s) of single proxies, in place of an even part.
        scale: `SwiftState.scale`; None: 1 with a layout, otherwise the one in force.

    Raises:
        UserError: a name or a field is unknown.
    """
    now = store.state()
    after = initial(store.cluster, layout) if layout else now
    after = replace(after, members=now.members, rings=now.rings, overrides={})
    shares, workers = dict(after.shares), dict(after.workers)
    for name, body in (microstores or {}).items():
        known_microstore(store, name)
        fields = dict(body)
        workers[name] = int(fields.pop("workers", workers[name]))
        for unused in ("ssds", "hdds"):
            fields.pop(unused, None)
        shares[name] = _with(shares[name], fields, f"microstore {name}")
    served = dict(after.tenants)
    for tenant, names in (tenants or {}).items():
        if tenant not in store.cluster.tenants:
            there = ", ".join(store.cluster.tenants)
            raise UserError(f"there is no tenant {tenant!r}", allowed=there)
        for name in names:
            known_microstore(store, name)
        served[tenant] = tuple(names)
    overrides = {}
    for node, part in (proxies or {}).items():
        if node not in after.proxies:
            raise UserError(f"there is no proxy {node!r}", allowed=", ".join(now.proxies))
        overrides[node] = _with(Resources(), part, f"proxy {node}")
    after = replace(after, shares=shares, workers=workers, tenants=served, overrides=overrides)
    if scale is not None:
        after = replace(after, scale=scale)
    with store.locked():
        return store.put(after)


def _with(resources: Resources, fields: Mapping[str, Any], where: str) -> Resources:
    known = ("proxy_cores", "storage_cores", "network")
    for name, value in fields.items():
        if name not in known:
            raise UserError(f"there is no share of {name!r}", where=where, allowed=", ".join(known))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise not_allowed(f"{where}: {name}", value, "a number above 0")
    return replace(resources, **fields)


_START_S = 120.0
_ASK_S = 10.0
READY_S = 60.0


def bring_up(store: SwiftStore, timeout_s: float = READY_S) -> list[str]:
    """Put the spec's layout into force and wait until every proxy serves; return the changes.
    StoreError: a server does not start or serve; the message names it."""
    changed: list[str] = []
    with store.locked():
        state = replace(initial(store.cluster), rings=_rings(store))
        restart = _configure(store, state, changed)
        storages = StorageChanges(store)
        for storage in state.members:
            put = storages.put_rings(state, storage)
            changed += put["changed"]
        state = replace(state, rings=store.state().rings)
        store.write(state)
        for node, answer in store.nodes.ask(store.changes.shares(state)).items():
            changed += [f"{node}: share of {name}" for name in answer["changed"]]
        _start(store, state, restart, changed)
        for node, answer in store.nodes.ask(store.changes.endpoints(state)).items():
            changed += [f"{node}: {name}" for name in answer["changed"]]
    wait_ready(store, timeout_s)
    return changed


def _rings(store: SwiftStore) -> int:
    try:
        return store.state().rings
    except StoreError:
        return 0


def _configure(store: SwiftStore, state: SwiftState, changed: list[str]) -> dict[str, list[str]]:
    """Write files and units on every node; return the units to restart by node."""
    restart: dict[str, list[str]] = {}
    answers = store.nodes.ask(store.changes.configure(state), _START_S)
    for node, answer in answers.items():
        changed += [f"{node}: {name}" for name in answer["changed"]]
        names = [name.rsplit("/", 1)[-1] for name in answer["changed"]]
        units = {name for name in names if name.endswith(".service")}
        for name in names:
            if name.endswith(".conf") and name not in {"swift.conf", "rsyncd.conf"}:
                units.add(f"hotbed-swift-{name.removesuffix('.conf')}.service")
        restart[node] = sorted(units)
    return restart


def _start(
    store: SwiftStore, state: SwiftState, restart: dict[str, list[str]], changed: list[str]
) -> None:
    """Start storage servers first: a proxy remembers for a while that it found none."""
    storage = [node for node in restart if node not in state.proxies]
    for nodes in (storage, [node for node in restart if node in state.proxies]):
        requests = {node: {"op": "start", "restart": restart[node]} for node in nodes}
        for node, answer in store.nodes.ask(requests, _START_S).items():
            changed += [f"{node}: {name} started" for name in answer["changed"]]


def wait_ready(store: SwiftStore, timeout_s: float = READY_S) -> float:
    """Wait until every proxy admits each of its tenants and shows the account; return seconds.
    StoreError: not ready in time; the message holds the last problem."""
    began = time.monotonic()
    keys = services.secrets()["keys"]
    state, cluster = store.state(), store.cluster

    def one(node: str) -> str:
        tenants = [name for name in cluster.tenants if node in state.endpoints(name)]
        address = store.changes.node(node).address
        return _until(lambda: _looks(address, cluster.port, tenants, keys), began + timeout_s)

    serving = [node for node, name in state.proxies.items() if name]
    for node, problem in every(serving, one).items():
        if problem:
            raise StoreError(f"proxy {node} does not serve after {timeout_s:g} s: {problem}.")
    return time.monotonic() - began


def _until(look: Callable[[], str], deadline: float) -> str:
    while True:
        problem = look()
        if not problem or time.monotonic() > deadline:
            return problem
        time.sleep(0.2)


def _looks(address: str, port: int, tenants: Sequence[str], keys: dict[str, str]) -> str:
    """Return what is wrong with a proxy; "" if the proxy serves these tenants."""
    try:
        status, _ = _get(address, port, "/healthcheck", {})
        if status != 200:
            return f"its health check answers {status}"
        for tenant in tenants:
            headers = {"X-Auth-User": f"{tenant}:{tenant}", "X-Auth-Key": keys[tenant]}
            status, got = _get(address, port, "/auth/v1.0", headers)
            if status != 200:
                return f"tenant {tenant} is not let in ({status})"
            token = {"X-Auth-Token": got["x-auth-token"]}
            status, _ = _get(address, port, f"/v1/AUTH_{tenant}", token)
            if status not in {200, 204}:
                return f"the account of tenant {tenant} answers {status}"
    except (OSError, http.client.HTTPException, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _get(address: str, port: int, path: str, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(address, port, timeout=_ASK_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()
