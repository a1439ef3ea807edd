"""Trace replayers on a testbed's client nodes: files and traces, and a common start.

One node is one client, and one client is one workload, like a virtual machine in the paper (section
5). A replayer is the program `dataplane/cmd/replay`, installed by the clients' role.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from campaigns.grounds.live import ShellTo, run_units
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
        argv = [REPLAY, "prepare", *server.flags(), "--file", file_of(client), "--size", f"{size}B"]

        def filled(node: str, done: UnitResult, server: str = server.name) -> None:
            if done.exit_code != 0:
                why = done.reason("replay")
                raise HotbedError(f"node {node} cannot fill its file on {server}: {why}")

        run_units(agent, PREPARE_UNIT, {client: argv}, max_s=PREPARE_S, judged=filled)


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
    by_node = {load.client.name: load for load in loads}
    reports = run_units(
        agent,
        UNIT,
        {
            node: run_command(load, start=start, seconds=seconds, wait_s=wait_s)
            for node, load in by_node.items()
        },
        max_s=LEAD_S + seconds + wait_s + SLACK_S,
        judged=lambda node, done: report_of(by_node[node], done),
    )
    return {load.workload: reports[node] for node, load in by_node.items()}


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
