"""Layouts: shares and the tenants' microstores, put into force as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from schemas.errors import UserError
from testbed.stores.microstores import Resources
from testbed.stores.swift.cluster import initial
from testbed.stores.swift.store import SwiftStore


def put_layout(
    store: SwiftStore,
    layout: str | None = None,
    *,
    microstores: Mapping[str, Mapping[str, Any]] | None = None,
    tenants: Mapping[str, Sequence[str]] | None = None,
    proxies: Mapping[str, Mapping[str, float]] | None = None,
) -> str:
    """Put a layout into force, with the given changes.

    Args:
        layout: its name; None: the one in force.
        microstores: fields of `Resources`, and ``workers``, by microstore.
        tenants: the microstores that serve each tenant.
        proxies: proxy_cores and network (bytes/s) of single proxies, in place of an even part.

    Raises:
        UserError: a name or a field is unknown.
    """
    now = store.state()
    after = initial(store.cluster, layout) if layout else now
    after = replace(after, members=now.members, rings=now.rings, overrides={})
    shares, workers = dict(after.shares), dict(after.workers)
    for name, body in (microstores or {}).items():
        _known(store, name)
        fields = dict(body)
        workers[name] = int(fields.pop("workers", workers[name]))
        for unused in ("ssds", "hdds"):
            fields.pop(unused, None)
        shares[name] = _with(shares[name], fields, f"microstore {name}")
    served = dict(after.tenants)
    for tenant, names in (tenants or {}).items():
        if tenant not in store.cluster.tenants:
            there = ", ".join(store.cluster.tenants)
            raise UserError(f"there is no tenant {tenant!r}; there are {there}.")
        for name in names:
            _known(store, name)
        served[tenant] = tuple(names)
    overrides = {}
    for node, part in (proxies or {}).items():
        if node not in after.proxies:
            raise UserError(f"there is no proxy {node!r}; there are {', '.join(now.proxies)}.")
        overrides[node] = _with(Resources(), part, f"proxy {node}")
    after = replace(after, shares=shares, workers=workers, tenants=served, overrides=overrides)
    with store.locked():
        return store.put(after)


def _known(store: SwiftStore, microstore: str) -> None:
    if microstore not in store.cluster.microstores:
        there = ", ".join(store.cluster.microstores)
        raise UserError(f"there is no microstore {microstore!r}; there are {there}.")


def _with(resources: Resources, fields: Mapping[str, Any], where: str) -> Resources:
    known = ("proxy_cores", "storage_cores", "network")
    for name, value in fields.items():
        if name not in known:
            raise UserError(
                f"{where}: there is no share of {name!r}; there are {', '.join(known)}."
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise UserError(f"{where}: {name} is {value!r}; write a number above 0.")
    return replace(resources, **fields)
