"""A profile's ``overhead``, measured where requests are enforced: through the proxy, one request at
a time at the server (docs/prioritymeister.md, "What a profile leaves out").

fio tells the means of a disk. A request on the live path also takes processor time of server and
proxy while the disk waits (``request``), and single requests take longer than their mean
(``latency``: the most that the server was behind what it was charged). Two runs of the same made-up
requests: the first without an overhead tells ``request``, the second, charged with it, ``latency``.
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


def with_overhead(
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
    """The profile with what serving a request takes beside the device's own time.

    Args:
        profile: measured by fio.
        server: whose disk it is of; clients' files are laid out there.
        size: bytes of each client's file.
        clients: nodes that send.
        link: bits per second of the server's.
        agent, enforcement, shell_to: the testbed's.

    Returns:
        the profile as it is where the proxy lets several requests to the server at a time: how far
        a server is behind its charges can be told of one at a time only.

    Raises:
        HotbedError: a replayer failed, or the proxy answered nothing.
    """
    loads = _loads(profile, server, size, clients, link)
    found = {key: value for key, value in profile.items() if key != "overhead"}
    request = latency = 0.0
    try:
        replays.lay_out(loads, shell_to)
        for _ in range(2):
            enforcement.put_profile(server.name, {**found, "overhead": {"request": request}})
            enforcement.remove()  # the default parameters: every client may send
            if enforcement.parameters(server.name)["depth"] != 1:
                return found
            enforcement.caches()
            replays.replay(agent, loads, seconds=SECONDS, wait_s=WAIT_S)
            service = enforcement.status(server.name)["service"]
            if not service["calls"]:
                raise HotbedError(f"the proxy on node {server.name} answered no request")
            beside = (service["busy_seconds"] - service["charged_seconds"]) / service["calls"]
            latency = MARGIN * float(service["lag_seconds"])
            if request:
                break
            request = max(float(beside), 0.0)
            if not request:
                break
    finally:
        replays.clear(loads, shell_to)
    return {**found, "overhead": {"request": request, "latency": latency}}


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
