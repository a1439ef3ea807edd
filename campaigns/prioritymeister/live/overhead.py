"""A profile measured where requests are enforced: through the proxy, one request at a time at the
server (docs/prioritymeister.md, "Live").

fio tells what a disk takes. A request on the live path takes more: the NFS server's way of reading
and writing (a synchronous write also writes the file's times), processors, the proxy. Two runs of
the same made-up requests: the first tells what each kind and size took while the server was its own
(`turns` of the proxy's status), which becomes the profile. The second, charged with that, tells
``overhead.latency``: the most that the server was behind what it was charged, for a profile tells
means and single requests take longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from campaigns.prioritymeister.live import replays
from campaigns.prioritymeister.live.replays import ClientLoad, Machine, Server, ShellTo
from controllers.prioritymeister.profiles import parse_profile
from schemas.errors import HotbedError
from testbed.agent.contract import Agent
from workloads.traces.files_profile import FILE_SIZES
from workloads.traces.requests import RequestBlock

SECONDS = 30.0
WAIT_S = 10.0
LOAD = 0.6
"""Share of the device that the requests ask for, all clients together."""
LINK_SHARE = 0.4
MOST_PER_S = 150.0
"""Requests a second at most: more are not the disk's load but the processors'."""
ENOUGH = 8
"""Requests of a kind and size from which on their mean is taken; of fewer, what fio told and what
others of their kind took beyond it."""
MARGIN = 2.0
"""The latency that is allowed for, by the longest that was seen: runs are longer than this one. A
run in which a server was further behind than this proves nothing, and says so."""


class Enforcing(Protocol):
    """What is used of `testbed.enforcement.Enforcement`."""

    def remove(self) -> object: ...

    def parameters(self, server: str) -> dict[str, Any]: ...

    def put_profile(self, server: str, profile: Mapping[str, Any]) -> object: ...

    def status(self, server: str) -> dict[str, Any]: ...

    def caches(self) -> object: ...


def measured_on_path(
    profile: Mapping[str, Any],
    server: Server,
    size: int,
    *,
    clients: Sequence[Machine],
    link: float,
    agent: Agent,
    enforcement: Enforcing,
    shell_to: ShellTo,
) -> dict[str, Any]:
    """The profile of what requests take where they are enforced.

    Args:
        profile: measured by fio, by size and kind; tells how much may be asked for at first.
        server: whose disk it is of; clients' files are laid out there.
        size: bytes of each client's file.
        clients: nodes that send.
        link: bits per second of the server's.
        agent, enforcement, shell_to: the testbed's.

    Returns:
        fio's profile where the proxy lets several requests to the server at a time: what one of
        them takes, and how far a server is behind its charges, can be told of one at a time only.

    Raises:
        HotbedError: a replayer failed, or the proxy answered nothing.
    """
    found = {key: value for key, value in profile.items() if key != "overhead"}

    def service_of(charged: Mapping[str, Any]) -> dict[str, Any] | None:
        enforcement.put_profile(server.name, charged)
        enforcement.remove()  # the default parameters: every client may send
        if enforcement.parameters(server.name)["depth"] != 1:
            return None
        loads = _loads(charged, server, size, clients, link)
        try:
            replays.lay_out(loads, shell_to)
            enforcement.caches()
            replays.replay(agent, loads, seconds=SECONDS, wait_s=WAIT_S)
        finally:
            replays.clear(loads, shell_to)
        service: dict[str, Any] = enforcement.status(server.name)["service"]
        if not service["calls"]:
            raise HotbedError(f"the proxy on node {server.name} answered no request")
        return service

    service = service_of(found)
    if service is None:
        return found
    found["bandwidthTable"] = table_of(found["bandwidthTable"], service["turns"])
    service = service_of(found)
    latency = MARGIN * float(service["lag_seconds"]) if service is not None else 0.0
    return {**found, "overhead": {"request": 0.0, "latency": latency}}


def table_of(
    rows: Sequence[Mapping[str, float]], turns: Sequence[Mapping[str, Any]]
) -> list[dict[str, float]]:
    """A table of bandwidths by size and kind from what requests took.

    Args:
        rows: fio's, ``requestSize`` bytes, ``readBandwidth`` and ``writeBandwidth`` bytes a second.
        turns: of the proxy's status: kind, most bytes, calls and their seconds.

    Raises:
        HotbedError: no request of a kind was seen often enough.
    """
    seen = {
        (turn["kind"], turn["most_bytes"]): turn["seconds"] / turn["calls"]
        for turn in turns
        if turn["calls"] >= ENOUGH
    }
    made = [{"requestSize": row["requestSize"]} for row in rows]
    for kind in ("read", "write"):
        column = f"{kind}Bandwidth"
        by_fio = {row["requestSize"]: row["requestSize"] / row[column] for row in rows}
        beyond = [took - by_fio[size] for (of, size), took in seen.items() if of == kind]
        if not beyond:
            raise HotbedError(f"too few {kind}s were answered to tell what one takes")
        for row in made:
            size = row["requestSize"]
            guess = by_fio[size] + max(float(np.mean(beyond)), 0.0)
            took = seen.get((kind, size), guess)
            row[column] = size / took
    return made


def _loads(
    profile: Mapping[str, Any], server: Server, size: int, clients: Sequence[Machine], link: float
) -> list[ClientLoad]:
    """Poisson arrivals of reads and writes of all sizes that the profile tells, anywhere."""
    random = np.random.default_rng(1)
    sizes, reads = np.repeat(FILE_SIZES, 2), np.tile([True, False], len(FILE_SIZES))
    nothing = np.zeros(len(sizes), np.int64)
    each = RequestBlock(nothing, sizes, reads, nothing)
    work = float(parse_profile(profile).estimator("storage").work(each).mean())
    rate = min(LOAD / work, LINK_SHARE * link / 8 / float(sizes.mean()), MOST_PER_S)
    count = int(np.ceil(rate * SECONDS / len(clients)))
    made = []
    for index, client in enumerate(clients):
        at = np.sort(random.uniform(0, SECONDS, count) * 1e9).astype(np.int64)
        kinds = random.integers(len(sizes), size=count)
        offsets = random.integers(size // FILE_SIZES[0], size=count) * FILE_SIZES[0]
        rows = (
            f"{ns},{sizes[kind]:#x},{'DiskRead' if reads[kind] else 'DiskWrite'},{offset:#x}\n"
            for ns, kind, offset in zip(at, kinds, offsets, strict=True)
        )
        trace = "".join(rows).encode()
        name = f"overhead-{client.name}"
        made.append(ClientLoad(name, client, server, trace, slo_s=None, seed=index + 1))
    return made
