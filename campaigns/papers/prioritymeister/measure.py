"""Measured profiles of a testbed's disk, for planner, proxy and stand-ins: of the disk alone, and
where requests are enforced.

fio measures the disk alone, on the clients' own files, with one request at a time. Several
workloads have files in different places of one disk, and random requests over all files cost the
same as theirs. The profile is therefore by size and kind, not by distance: a stream's request costs
as much as it does between other requests. Writes are synchronous, as the NFS server makes them.

A request on the live path takes longer, because of processors, the proxy and the NFS server (its
synchronous writes also write the file's times; docs/prioritymeister.md, "On a testbed"). Made-up
requests are therefore sent through the proxy in rounds, with one request at a time at the server.
The first rounds measure how long each kind and size held the server (`turns` of the proxy's
status). The profile charges a little more. With exact means, a server's delay would be a random
walk without drift. It has no bound while the server is never idle, as with a copy. The later
rounds, with other requests, give ``overhead.latency``: the delay of a server that is charged this
way (`allowed`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.grounds.live import ShellTo
from campaigns.papers.prioritymeister import replays
from campaigns.papers.prioritymeister.replays import ClientLoad, NfsServer
from controllers.prioritymeister.estimators import parse_profile
from schemas.durable import write_file
from schemas.errors import HotbedError
from testbed.agent.contract import Agent
from testbed.deploy.enforcement import NfsEnforcement
from testbed.sites.contract import Node, Testbed
from testbed.ssh import Shell
from testbed.stores.nfs.wire import ETHERNET_MTU
from workloads.errors import WorkloadError
from workloads.traces.files_profile import FILE_SIZES, FilesPlan, build_files
from workloads.traces.requests import RequestBlock

FIO_S = 1.0
_SLACK_S = 60.0
ROUND_S = 30.0
"""Seconds of a round."""
WAIT_S = 10.0
FIRST, LATER = 2, 6
"""Rounds that measure requests, and rounds that measure the server's delay."""
TAKES_S = (FIRST + LATER) * (ROUND_S + replays.LEAD_S)
"""Approximate seconds of all rounds."""
LOAD = 0.6
"""Share of the device that a round's requests need, all clients together. (If two requests of each
client kept a disk busy all the time, the longest lags were 0.05 to 0.4 s on a testbed with lags of
0.02 s in runs. Bounds that allow for such lags are useless.)"""
LINK_SHARE = 0.4
MOST_PER_S = 150.0
"""Most requests a second; above this the processors, not the disk, are the limit."""
MORE = 1.05
"""Charge relative to the measured mean. A modelled disk that is never idle for three minutes has
reads that vary by 1 ms and writes by 2.5 ms. It was up to 1.4 s behind charges of the means of half
a minute, and at most 0.03 s behind 5 % more."""
ENOUGH = 8
"""Least requests of a kind and size for using their mean. With fewer, fio's value plus the excess
of other sizes of the kind is used."""
SPREADS = 2.0
"""See `allowed`."""


def profile_path(testbed: Testbed, node: str) -> Path:
    """Return the file of a node's disk profile, which is kept as long as the testbed."""
    return testbed.directory / f"pm-profile-{node}.json"


def measured_profile(
    testbed: Testbed,
    shell: Shell,
    files: Sequence[str],
    each: int,
    say: Callable[[str], None],
    *,
    mtu: int = ETHERNET_MTU,
) -> Path:
    """Return the profile of the disk of a node, an NFS server; it is measured once in a testbed's
    life.

    Args:
        testbed: a testbed that is up; its folder keeps the profile.
        shell: shell of the node.
        files: paths on the node; their contents are destroyed.
        each: bytes of each file.
        say: called with a message about the measurement.
        mtu: bytes; MTU of the links that requests come by.
    """
    path = profile_path(testbed, shell.node)
    if path.exists():
        return path
    plan = FilesPlan(tuple(files), each, seconds=FIO_S)
    say(f"measuring the disk of node {shell.node} for about {plan.total_s:.0f} s")
    document = measure(plan, shell, mtu)
    write_file(path, json.dumps(document, indent=1) + "\n")
    return path


def measure(plan: FilesPlan, shell: Shell, mtu: int = ETHERNET_MTU) -> dict[str, Any]:
    """Run fio and return the profile from its output."""
    name = f"node {shell.node}"
    document = build_files(plan, fio(shell, plan.job_file(), plan.total_s, name), mtu)
    parse_profile(document, f"the profile of {name}")
    return document


def fio(shell: Shell, jobs: str, total_s: float, name: str) -> str:
    """Run fio's jobs, which take about `total_s` seconds, and return its output.

    Raises:
        WorkloadError: fio failed; the message has `name`, the measured thing.
    """
    done = shell.run(
        ["fio", "--output-format=json", "-"],
        input=jobs.encode(),
        timeout_s=2 * total_s + _SLACK_S,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join(done.stderr.decode(errors="replace").split())
        raise WorkloadError(f"fio failed on {name}: {words[:300]}.")
    return done.text


def measured_on_path(
    profile: Mapping[str, Any],
    server: NfsServer,
    size: int,
    *,
    clients: Sequence[Node],
    link: float,
    agent: Agent,
    enforcement: NfsEnforcement,
    shell_to: ShellTo,
) -> dict[str, Any]:
    """Return the profile of requests where they are enforced: fio's profile if the proxy sends
    several requests to the server at a time, because only one request's time and delay can be
    measured.

    Args:
        profile: measured by fio, by size and kind; it limits the first rounds' load.
        server: the server with the disk; clients' files are on it.
        size: bytes of each client's file.
        clients: nodes that send.
        link: bits per second of the server's link.
        agent, enforcement, shell_to: the testbed's.
    """
    found = {key: value for key, value in profile.items() if key not in ("overhead", "rounds")}
    enforcement.put_profile(server.name, found)
    enforcement.remove()  # default parameters: every client may send
    if enforcement.parameters(server.name)["depth"] != 1:
        return found

    def round_of(charged: Mapping[str, Any], seed: int) -> dict[str, Any]:
        enforcement.put_profile(server.name, charged)
        enforcement.remove()
        loads = _loads(charged, server, size, clients, link=link, seed=seed)
        try:
            replays.lay_out(loads, shell_to)
            enforcement.caches()
            replays.replay(agent, loads, seconds=ROUND_S, wait_s=WAIT_S)
        finally:
            replays.clear(loads, shell_to)
        service: dict[str, Any] = enforcement.status(server.name)["service"]
        if not service["calls"]:
            raise HotbedError(f"the proxy on node {server.name} answered no request")
        return service

    first = [round_of(found, seed) for seed in range(FIRST)]
    table = table_of(found["bandwidthTable"], [turn for one in first for turn in one["turns"]])
    found["bandwidthTable"] = slower(table, MORE)
    later = [round_of(found, FIRST + k) for k in range(LATER)]
    rounds = {key: [float(one[key]) for one in later] for key in _KEPT}
    # The excess of later requests is charged too; higher charges reduce the delay.
    beyond = MORE * sum(rounds["busy_seconds"]) / sum(rounds["charged_seconds"])
    found["bandwidthTable"] = slower(found["bandwidthTable"], max(1.0, beyond))
    latency = allowed(rounds["lag_seconds"])
    return {**found, "overhead": {"request": 0.0, "latency": latency}, "rounds": rounds}


_KEPT = ("lag_seconds", "charged_seconds", "busy_seconds")


def allowed(lags: Sequence[float]) -> float:
    """Return the latency to allow for, from a server's delays (seconds) in at least two rounds of
    equal length: the longest plus `SPREADS` times the difference between longest and shortest.

    A run of six rounds' length stays within it 19 times of 20 if the run is like the rounds, and if
    long delays are at least exponentially rare (Gumbel's distribution). Stalls rarer than one in a
    few minutes are not covered. A run with a longer delay proves nothing and reports it
    (`live.conditions_of`).
    """
    longest = max(lags)
    return longest + SPREADS * (longest - min(lags))


def slower(rows: Sequence[Mapping[str, float]], factor: float) -> list[dict[str, float]]:
    """Return a table by which requests take `factor` times as long."""
    return [
        {key: value if key == "requestSize" else value / factor for key, value in row.items()}
        for row in rows
    ]


def table_of(
    rows: Sequence[Mapping[str, float]], turns: Sequence[Mapping[str, Any]]
) -> list[dict[str, float]]:
    """Return a table of bandwidths (bytes/s) by size and kind from measured times of requests, in
    the form of fio's table `rows`. `turns` are of the proxy's status, of all rounds. Raise
    HotbedError if no size of a kind has enough requests."""
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
            raise HotbedError(f"too few {kind}s were answered to measure the time of one")
        for row in made:
            size = row["requestSize"]
            guess = by_fio[size] + max(float(np.mean(beyond)), 0.0)
            took = seen.get((kind, size), guess)
            row[column] = size / took
    return made


_SIZES = np.repeat(FILE_SIZES, 2)
_READS = np.tile([True, False], len(FILE_SIZES))


def _work(profile: Mapping[str, Any]) -> float:
    """Return the mean seconds of the disk, over reads and writes of all sizes."""
    nothing = np.zeros(len(_SIZES), np.int64)
    each = RequestBlock(nothing, _SIZES, _READS, nothing)
    return float(parse_profile(profile).work("storage", each).mean())


def _loads(
    profile: Mapping[str, Any],
    server: NfsServer,
    size: int,
    clients: Sequence[Node],
    *,
    link: float,
    seed: int,
) -> list[ClientLoad]:
    """Return loads of reads and writes of all sizes, at random places and times."""
    random = np.random.default_rng(1 + seed)
    sizes, reads = _SIZES, _READS
    rate = min(LOAD / _work(profile), LINK_SHARE * link / 8 / float(sizes.mean()), MOST_PER_S)
    count = int(np.ceil(rate * ROUND_S / len(clients)))
    made = []
    for index, client in enumerate(clients):
        at = np.sort(random.uniform(0, ROUND_S, count) * 1e9).astype(np.int64)
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
