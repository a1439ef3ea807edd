"""Trace replayers on a testbed's client nodes: files and traces laid out, all begun at one instant.

One node is one client, and one client is one workload, as a virtual machine is in the paper
(section 5). A replayer is the program `dataplane/cmd/replay`, put there by the role of the clients.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.errors import HotbedError, RemoteError, UserError
from testbed.agent.contract import Agent, UnitResult
from testbed.agent.steady import SteadyClock
from testbed.ssh import Shell

REPLAY = "/usr/local/bin/hotbed-replay"
FOLDER = "/var/lib/hotbed/replay"
UNIT = "load-replay"
PREPARE_UNIT = "load-prepare"
LEAD_S = 6.0
"""From the first order to start until the first request: all replayers are connected by then."""
CLOCKS_S = 0.25
"""Clocks of clients may differ from the engine's by so much and by half a round trip."""
SLACK_S = 120.0
PREPARE_S = 900.0

ShellTo = Callable[[str], Shell]


class Machine(Protocol):
    """What is needed of a node."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Server:
    """An NFS server as clients reach it."""

    name: str
    address: str
    export: str = "/export"
    port: int = 2049
    mount_port: int = 20048

    def flags(self) -> list[str]:
        """How a replayer is told."""
        nfs, mount = (f"{self.address}:{port}" for port in (self.port, self.mount_port))
        return ["--server", nfs, "--mount", mount, "--export", self.export]


@dataclass(frozen=True)
class ClientLoad:
    """What one client sends.

    Attributes:
        workload: its name.
        client: node that sends.
        server: who is asked.
        trace: requests in the format ``plain``.
        slo_s: latency that counts as a miss, seconds; None where there is none.
        closed: 0 for an open loop, else how many requests are in flight, the trace over and over.
        seed: of what the replayer draws.
    """

    workload: str
    client: Machine
    server: Server
    trace: bytes
    slo_s: float | None
    closed: int = 0
    seed: int = 1


def file_of(client: str) -> str:
    """The file on the server that a client node reads and writes."""
    return f"of-{client}"


def prepare_command(server: Server, client: str, size: int) -> list[str]:
    """Makes a client's file, and fills it; leaves one that is long enough."""
    made = [REPLAY, "prepare", *server.flags(), "--file", file_of(client)]
    return [*made, "--size", f"{size}B"]


def run_command(load: ClientLoad, *, start: float, seconds: float, wait_s: float) -> list[str]:
    """The replayer of one client.

    Args:
        load: what it sends.
        start: Unix time of the trace's beginning.
        seconds: how long requests are sent.
        wait_s: how long after that replies are waited for.
    """
    made = [REPLAY, "run", *load.server.flags(), "--file", file_of(load.client.name)]
    made += ["--trace", trace_path(load), "--start-at", f"{start:.6f}", "--seed", str(load.seed)]
    made += ["--duration", f"{seconds:.6f}s", "--wait", f"{wait_s:.6f}s"]
    if load.slo_s is not None:
        made += ["--slo", f"{round(load.slo_s * 1e9)}ns"]
    if load.closed:
        made += ["--closed", str(load.closed), "--repeat"]
    return made


def trace_path(load: ClientLoad) -> str:
    """Where a client's trace lies on its node."""
    return f"{FOLDER}/{load.workload}.csv.gz"


def prepare(agent: Agent, files: Sequence[tuple[Server, str, int]]) -> None:
    """Make and fill files, one after the other; those that are there and long enough cost seconds.

    Args:
        agent: of the testbed.
        files: server, client node and bytes of each.

    Raises:
        HotbedError: a server does not take it; says which.
    """
    for server, client, size in files:
        argv = prepare_command(server, client, size)
        agent.unit_start(client, PREPARE_UNIT, argv, max_s=PREPARE_S)
        try:
            done = agent.unit_wait(client, PREPARE_UNIT, timeout_s=PREPARE_S)
        except BaseException:
            agent.unit_stop(client, PREPARE_UNIT)
            raise
        if done.exit_code != 0:
            raise HotbedError(f"node {client} cannot fill its file on {server.name}: {_said(done)}")


def lay_out(loads: Sequence[ClientLoad], shell_to: ShellTo) -> None:
    """Put the traces on the clients."""
    for load in loads:
        shell = shell_to(load.client.name)
        shell.run(["mkdir", "-p", FOLDER])
        shell.put(gzip.compress(load.trace, 1, mtime=0), trace_path(load))


def clear(loads: Sequence[ClientLoad], shell_to: ShellTo) -> None:
    """Take the traces away again; a node that is gone has none."""
    for load in loads:
        try:
            shell_to(load.client.name).run(["rm", "-rf", FOLDER], check=False)
        except RemoteError:
            continue


def check_clocks(loads: Sequence[ClientLoad], shell_to: ShellTo) -> None:
    """Replayers begin at one instant of their own clocks.

    Raises:
        UserError: a client's clock is off.
    """
    for load in loads:
        clock = SteadyClock()
        asked = clock()
        told = float(shell_to(load.client.name).run(["date", "+%s.%N"]).text)
        answered = clock()
        off = told - (asked + answered) / 2
        if abs(off) > CLOCKS_S + (answered - asked) / 2:
            raise UserError(
                f"the clock of node {load.client.name} is {off:+.2f} s off: set the clocks of the "
                "clients by NTP, replayers begin at the same instant."
            )


def replay(
    agent: Agent, loads: Sequence[ClientLoad], *, seconds: float, wait_s: float
) -> dict[str, dict[str, Any]]:
    """Run all replayers, begun at the same instant, to their ends.

    Returns:
        What each printed, by workload (docs/prioritymeister.md, "Load").

    Raises:
        HotbedError: one failed; one sentence names it and says why. All have ended then.
    """
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
    """What a replayer printed.

    Raises:
        HotbedError: it failed, or requests of it did.
    """
    who = f"the replayer of {load.workload} on node {load.client.name}"
    if done.exit_code != 0:
        raise HotbedError(f"{who} failed: {_said(done)}")
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
    """Wait for one; raise as soon as any of them has failed."""
    while True:
        for one in futures:
            if one.done():
                one.result()
        if future.done():
            return
        time.sleep(0.1)


def _stop(agent: Agent, loads: Sequence[ClientLoad]) -> None:
    """End all replayers, so that who waits for them does not."""
    for load in loads:
        try:
            agent.unit_stop(load.client.name, UNIT)
        except HotbedError:
            continue


def _said(done: UnitResult) -> str:
    if done.exit_code is None:
        return "it was stopped"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return (lines[-1].strip().removeprefix("replay: ") if lines else "it said nothing")[:300]
