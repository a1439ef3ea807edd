"""A profile measured where requests are enforced: through the proxy, one request at a time at the
server (docs/prioritymeister.md, "Live").

fio tells what a disk takes. A request on the live path takes more: the NFS server's way of reading
and writing (a synchronous write also writes the file's times), processors, the proxy. So made-up
requests are sent through the proxy in rounds. The first tell what each kind and size took while the
server was its own (`turns` of the proxy's status). The profile charges a little more than that: how
far a server is behind that is charged exact means is a random walk without drift, and while it is
never idle, as beside a copy, that has no bound. The later rounds, of other requests, tell
``overhead.latency``: how far a server is behind that is charged so (`allowed`).
"""

from __future__ import annotations

from collections import Counter
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
"""Of a round."""
WAIT_S = 10.0
FIRST, LATER = 2, 6
"""Rounds that tell what requests take, and those that tell how far a server is behind."""
TAKES_S = (FIRST + LATER) * (SECONDS + replays.LEAD_S)
"""All of them, roughly."""
LOAD = 0.6
"""Share of the device that the requests of a round ask for, all clients together. (Of a disk that
was never idle in the later rounds, by two requests of each client at a time, the longest lags were
0.05 to 0.4 s on a testbed where runs had 0.02 s: bounds that allow for that say nothing useful.)"""
LINK_SHARE = 0.4
MOST_PER_S = 150.0
"""Requests a second at most: more are not the disk's load but the processors'."""
MORE = 1.05
"""What is charged, by the mean that was seen. A modelled disk that is never idle for three
minutes, whose reads vary by 1 ms and writes by 2.5 ms, was up to 1.4 s behind charges of the means
of half a minute, and at most 0.03 s behind a twentieth more."""
ENOUGH = 8
"""Requests of a kind and size from which on their mean is taken; of fewer, what fio told and what
others of their kind took beyond it."""
SPREADS = 2.0
"""See `allowed`."""


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
    found = {key: value for key, value in profile.items() if key not in ("overhead", "rounds")}
    enforcement.put_profile(server.name, found)
    enforcement.remove()  # the default parameters: every client may send
    if enforcement.parameters(server.name)["depth"] != 1:
        return found

    def round_of(charged: Mapping[str, Any], seed: int) -> dict[str, Any]:
        enforcement.put_profile(server.name, charged)
        enforcement.remove()
        loads = _loads(charged, server, size, clients, link=link, seed=seed)
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

    first = [round_of(found, seed) for seed in range(FIRST)]
    table = table_of(found["bandwidthTable"], [turn for one in first for turn in one["turns"]])
    found["bandwidthTable"] = times(table, MORE)
    later = [round_of(found, FIRST + k) for k in range(LATER)]
    rounds = {key: [float(one[key]) for one in later] for key in _KEPT}
    # What later requests took beyond it is charged too; with more charged, less is behind.
    beyond = MORE * sum(rounds["busy_seconds"]) / sum(rounds["charged_seconds"])
    found["bandwidthTable"] = times(found["bandwidthTable"], max(1.0, beyond))
    latency = allowed(rounds["lag_seconds"])
    return {**found, "overhead": {"request": 0.0, "latency": latency}, "rounds": rounds}


_KEPT = ("lag_seconds", "charged_seconds", "busy_seconds")


def allowed(lags: Sequence[float]) -> float:
    """The latency to allow for, from how far a server was behind in rounds of one length: the
    longest, and `SPREADS` times what lies between the longest and the shortest.

    A run of six rounds' length stays within it 19 times of 20, if it is like the rounds (the same
    machines, a disk no busier, charged no less than it takes), and if the
    longest of a round exceeds any length with a probability that falls at least exponentially
    (Gumbel's distribution; the longest of eight exponential ones is less than it). Stalls that are
    rarer than one in a few minutes are not seen here. None of that is trusted: a run in which a
    server was further behind than this proves nothing, and says so (`bounds.conditions_of`).

    Args:
        lags: seconds, of two rounds at least.
    """
    longest = max(lags)
    return longest + SPREADS * (longest - min(lags))


def times(rows: Sequence[Mapping[str, float]], factor: float) -> list[dict[str, float]]:
    """A table by which requests take `factor` times as long."""
    return [
        {key: value if key == "requestSize" else value / factor for key, value in row.items()}
        for row in rows
    ]


def table_of(
    rows: Sequence[Mapping[str, float]], turns: Sequence[Mapping[str, Any]]
) -> list[dict[str, float]]:
    """A table of bandwidths by size and kind from what requests took.

    Args:
        rows: fio's, ``requestSize`` bytes, ``readBandwidth`` and ``writeBandwidth`` bytes a second.
        turns: of the proxy's status, of all rounds: kind, most bytes, calls and their seconds.

    Raises:
        HotbedError: no request of a kind was seen often enough.
    """
    calls, seconds = Counter[tuple[str, float]](), Counter[tuple[str, float]]()
    for turn in turns:
        calls[turn["kind"], turn["most_bytes"]] += turn["calls"]
        seconds[turn["kind"], turn["most_bytes"]] += turn["seconds"]
    seen = {key: seconds[key] / count for key, count in calls.items() if count >= ENOUGH}
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


_SIZES = np.repeat(FILE_SIZES, 2)
_READS = np.tile([True, False], len(FILE_SIZES))


def _work(profile: Mapping[str, Any]) -> float:
    """Mean seconds of the disk, of reads and writes of all sizes."""
    nothing = np.zeros(len(_SIZES), np.int64)
    each = RequestBlock(nothing, _SIZES, _READS, nothing)
    return float(parse_profile(profile).estimator("storage").work(each).mean())


def _loads(
    profile: Mapping[str, Any],
    server: Server,
    size: int,
    clients: Sequence[Machine],
    *,
    link: float,
    seed: int,
) -> list[ClientLoad]:
    """Reads and writes of all sizes, anywhere, at any time."""
    random = np.random.default_rng(1 + seed)
    sizes, reads = _SIZES, _READS
    rate = min(LOAD / _work(profile), LINK_SHARE * link / 8 / float(sizes.mean()), MOST_PER_S)
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
        made.append(ClientLoad(name, client, server, trace, None, 0, seed=index + 1))
    return made
