"""Trace replayers on a testbed's client nodes: files and traces, and a common start.

One node is one client, and one client is one workload, like a virtual machine in the paper (section
5). A replayer is the program `dataplane/cmd/replay`, installed by the clients' role.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from campaigns.grounds.live import ShellTo
from schemas.errors import HotbedError, RemoteError, UserError
from testbed.agent.contract import Agent, UnitResult
from testbed.agent.steady import SteadyClock
from testbed.sites.contract import Node

REPLAY = "/usr/local/bin/hotbed-replay"
FOLDER = "/var/lib/hotbed/replay"
UNIT = "load-replay"
PREPARE_UNIT = "load-prepare"
LEAD_S = 6.0
"""Seconds from the first start order until the first request; all replayers connect meanwhile."""
CLOCKS_S = 0.25
"""Allowed difference of clients' clocks from the engine's, plus half a round trip."""
SLACK_S = 120.0
PREPARE_S = 900.0


@dataclass(frozen=True)
class NfsServer:
    """Address and export of an NFS server, for clients."""

    name: str
    address: str
    export: str = "/export"
    port: int = 2049
    mount_port: int = 20048

    def flags(self) -> list[str]:
        """Return the replayer's flags for this server."""
        nfs, mount = (f"{self.address}:{port}" for port in (self.port, self.mount_port))
        return ["--server", nfs, "--mount", mount, "--export", self.export]


@dataclass(frozen=True)
class ClientLoad:
    """Load of one client node on a server: requests in the format ``plain``.

    A request slower than `slo_s` seconds counts as a miss. `closed` is 0 for an open loop, else the
    number of requests in flight while the trace repeats. `seed` is of the replayer's draws.
    """

    workload: str
    client: Node
    server: NfsServer
    trace: bytes
    slo_s: float | None
    closed: int = 0
    seed: int = 1


def file_of(client: str) -> str:
    """Return the name of a client node's file on the server."""
    return f"of-{client}"


def prepare_command(server: NfsServer, client: str, size: int) -> list[str]:
    """Return the command that makes and fills a client's file, unless it is long enough."""
    made = [REPLAY, "prepare", *server.flags(), "--file", file_of(client)]
    return [*made, "--size", f"{size}B"]


def run_command(load: ClientLoad, *, start: float, seconds: float, wait_s: float) -> list[str]:
    """Return the command of one client's replayer. The trace begins at the Unix time `start`,
    requests are sent for `seconds`, and replies are awaited for `wait_s`."""
    made = [REPLAY, "run", *load.server.flags(), "--file", file_of(load.client.name)]
    made += ["--trace", trace_path(load), "--start-at", f"{start:.6f}", "--seed", str(load.seed)]
    made += ["--duration", f"{seconds:.6f}s", "--wait", f"{wait_s:.6f}s"]
    if load.slo_s is not None:
        made += ["--slo", f"{round(load.slo_s * 1e9)}ns"]
    if load.closed:
        made += ["--closed", str(load.closed), "--repeat"]
    return made


def trace_path(load: ClientLoad) -> str:
    """Return the path of a client's trace on its node."""
    return f"{FOLDER}/{load.workload}.csv.gz"


def prepare(agent: Agent, files: Sequence[tuple[NfsServer, str, int]]) -> None:
    """Make and fill files (server, client node and bytes), one after the other; a long enough file
    takes only seconds. A HotbedError names the server that does not accept a file."""
    for server, client, size in files:
        argv = prepare_command(server, client, size)
        agent.unit_start(client, PREPARE_UNIT, argv, max_s=PREPARE_S)
        try:
            done = agent.unit_wait(client, PREPARE_UNIT, timeout_s=PREPARE_S)
        except BaseException:
            agent.unit_stop(client, PREPARE_UNIT)
            raise
        if done.exit_code != 0:
            why = done.reason("replay")
            raise HotbedError(f"node {client} cannot fill its file on {server.name}: {why}")


def lay_out(loads: Sequence[ClientLoad], shell_to: ShellTo) -> None:
    """Copy the traces to the clients."""
    for load in loads:
        shell = shell_to(load.client.name)
        shell.run(["mkdir", "-p", FOLDER])
        shell.put(gzip.compress(load.trace, 1, mtime=0), trace_path(load))


def clear(loads: Sequence[ClientLoad], shell_to: ShellTo) -> None:
    """Remove the traces; skip a lost node."""
    for load in loads:
        try:
            shell_to(load.client.name).run(["rm", "-rf", FOLDER], check=False)
        except RemoteError:
            continue


def check_clocks(loads: Sequence[ClientLoad], shell_to: ShellTo) -> None:
    """Raise UserError if a client's clock is off, because each replayer begins by its own clock."""
    for load in loads:
        clock = SteadyClock()
        asked = clock()
        shown = float(shell_to(load.client.name).run(["date", "+%s.%N"]).text)
        answered = clock()
        off = shown - (asked + answered) / 2
        if abs(off) > CLOCKS_S + (answered - asked) / 2:
            raise UserError(
                f"the clock is {off:+.2f} s off, and replayers begin at the same instant",
                where=f"node {load.client.name}",
                do="set the clocks of the clients by NTP",
            )


def replay(
    agent: Agent, loads: Sequence[ClientLoad], *, seconds: float, wait_s: float
) -> dict[str, dict[str, Any]]:
    """Start all replayers at the same instant, run them to their ends, and return the output of
    each by workload (docs/prioritymeister.md, "Data plane"). If one failed, a HotbedError names it,
    and all have ended."""
    start = time.time() + LEAD_S
    most = LEAD_S + seconds + wait_s + SLACK_S

    def run(load: ClientLoad) -> dict[str, Any]:
        argv = run_command(load, start=start, seconds=seconds, wait_s=wait_s)
        agent.unit_start(load.client.name, UNIT, argv, max_s=most)
        done = agent.unit_wait(load.client.name, UNIT, timeout_s=most)
        return report_of(load, done)

    with ThreadPoolExecutor(max(1, len(loads))) as pool:
        futures = [pool.submit(run, load) for load in loads]
        try:
            for future in futures:
                _until_one_fails(future, futures)
        except BaseException:
            _stop(agent, loads)
            raise
    return {load.workload: future.result() for load, future in zip(loads, futures, strict=True)}


def report_of(load: ClientLoad, done: UnitResult) -> dict[str, Any]:
    """Return the report of a replayer; raise HotbedError if it or some of its requests failed."""
    who = f"the replayer of {load.workload} on node {load.client.name}"
    if done.exit_code != 0:
        raise HotbedError(f"{who} failed: {done.reason('replay')}")
    try:
        report: dict[str, Any] = json.loads(done.stdout)
        errors = report["errors"]
    except (ValueError, KeyError, TypeError) as error:
        raise HotbedError(f"{who} printed no result: {done.stdout[:120]!r}") from error
    if errors:
        kind, count = next(iter(errors.items()))
        raise HotbedError(f"{who}: {count} requests failed ({kind})")
    return report


def _until_one_fails(future: Future[Any], futures: Sequence[Future[Any]]) -> None:
    """Wait for one future; raise as soon as any future has failed."""
    while True:
        for one in futures:
            if one.done():
                one.result()
        if future.done():
            return
        time.sleep(0.1)


def _stop(agent: Agent, loads: Sequence[ClientLoad]) -> None:
    """End all replayers, which also ends the waiting for them."""
    for load in loads:
        try:
            agent.unit_stop(load.client.name, UNIT)
        except HotbedError:
            continue
