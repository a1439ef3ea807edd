"""COSBench drivers on a testbed's client nodes; all drivers of a cell begin at one instant.

One tenant has one client node (two machines in section 8.1). A driver is `cosdrive` with a
workload's XML. A closed loop's worker keeps its connection. If a tenant has several proxies, each
proxy therefore gets its own driver with a part of the workers, as round-robin DNS would assign
them. A file with a key has mode 0600 and is unlinked before the driver begins.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import SecretStr

from campaigns.grounds.live import ShellTo, run_units
from schemas.errors import HotbedError
from schemas.names import unpack_tar
from testbed.agent.contract import Agent, UnitResult
from testbed.ssh import Shell
from workloads.cosbench.archive import Archive, read_archive
from workloads.cosbench.driver import REMOTE_PROGRAM
from workloads.cosbench.workload import (
    CosbenchSizes,
    CosbenchWorkload,
    SwAuth,
    SwiftStorage,
    to_xml,
)

FOLDER = "/var/lib/hotbed/mos"
UNIT = "load-cosdrive"
LEAD_S = 3.0
"""Seconds from the start order until the first driver begins."""
WHOLE_S = 1.0
"""A driver starts this much earlier, because its stage begins with the first whole second."""
SLACK_S = 60.0
PREPARE_S = 600.0
PREPARE_WORKERS = 8
INTERVAL_S = 1
KB = 1000


@dataclass(frozen=True)
class StoredObjects:
    """Objects that one workload reads: `containers` of `each` objects of `least` to `most` bytes,
    uniformly distributed; their names begin with `prefix`."""

    letter: str
    tenant: str
    prefix: str
    containers: int
    each: int
    least: int
    most: int


@dataclass(frozen=True)
class DriverLoad:
    """One run of a driver: `workers` of a workload. From `begins_s` on, `rampup_s` do not count,
    and the next `seconds` do. `mix` is in percent: reads, writes, deletions."""

    name: str
    objects: StoredObjects
    mix: tuple[int, int, int]
    workers: int
    begins_s: float
    rampup_s: float
    seconds: float

    @property
    def letter(self) -> str:
        """Workload letter of Table 1."""
        return self.objects.letter

    @property
    def ends_s(self) -> float:
        """Second at which the workers end."""
        return self.begins_s + self.rampup_s + self.seconds


@dataclass(frozen=True)
class ProxyLogin:
    """Login of a tenant's client at one proxy. `file`: a file on the client that names the tenant's
    proxies as they come and go; without it, only this proxy is used."""

    proxy: str
    auth_url: str
    user: str
    key: str
    file: str | None = None


@dataclass(frozen=True)
class ProxyDriver:
    """One driver with its load, its proxy and its node."""

    name: str
    load: DriverLoad
    access: ProxyLogin
    client: str


def split(
    load: DriverLoad, proxies: Sequence[ProxyLogin], client: str, turn: int
) -> tuple[ProxyDriver, ...]:
    """Return a load's drivers; the proxies get its workers in turn, starting at number `turn`."""
    found = []
    for place in range(len(proxies)):
        access = proxies[(place + turn) % len(proxies)]
        workers = load.workers // len(proxies) + (place < load.workers % len(proxies))
        if workers:
            name = load.name if len(proxies) == 1 else f"{load.name}-of-{access.proxy}"
            found.append(ProxyDriver(name, replace(load, workers=workers), access, client))
    return tuple(found)


def drives_of(
    loads: Sequence[DriverLoad],
    access: Mapping[str, Sequence[ProxyLogin]],
    clients: Mapping[str, str],
) -> tuple[ProxyDriver, ...]:
    """Return every driver of a cell. `access`: by tenant, the proxies that serve it. `clients`: by
    tenant, its client node."""
    found: list[ProxyDriver] = []
    turns: dict[str, int] = {}
    for load in loads:
        tenant = load.objects.tenant
        turn = turns.get(tenant, 0)
        found += split(load, access[tenant], clients[tenant], turn)
        turns[tenant] = turn + load.workers
    return tuple(found)


def workload_of(
    objects: StoredObjects, access: ProxyLogin, load: DriverLoad | None = None
) -> CosbenchWorkload:
    """Return COSBench's workload: the load, or without a load the objects to read."""
    read, write, delete = load.mix if load is not None else (100, 0, 0)
    return CosbenchWorkload(
        name=load.name if load is not None else f"objects-{objects.prefix}",
        sizes=CosbenchSizes(low=objects.least // KB, high=objects.most // KB, unit="KB"),
        read=read,
        write=write,
        delete=delete,
        workers=load.workers if load is not None else 1,
        containers=objects.containers,
        objects=objects.each,
        runtime_s=max(1, round(load.seconds)) if load is not None else 1,
        rampup_s=round(load.rampup_s) if load is not None else 0,
        interval_s=INTERVAL_S,
        prepare_workers=PREPARE_WORKERS,
        prefix=f"{objects.prefix}-",
        storage=SwiftStorage(proxies_file=access.file),
        auth=SwAuth(username=access.user, password=SecretStr(access.key), auth_url=access.auth_url),
    )


# Each driver opens its XML, unlinks it, waits for its time and becomes cosdrive. (bash's `wait -n`
# misses drivers that end before the call.) If machines come and go, the login proxy may change
# meanwhile. The tenant's file names it, and sed rewrites the XML.
SCRIPT = """
cd {folder} || exit 1
until_us() {{
    local wait=$(( $1 - ${{EPOCHREALTIME/[.,]/}} ))
    [ "$wait" -le 0 ] || sleep "$(( wait / 1000000 )).$(printf %06d $(( wait % 1000000 )))"
}}
login_by() {{
    local url
    url=$(sed -n 's/.*"auth_url": "\\([^"]*\\)".*/\\1/p' "$1")
    [ -z "$url" ] || exec 3< <(sed "s|auth_url=[^;\\"]*|auth_url=$url|" <&3)
}}
pids=""
{begin}
left=$pids
while [ -n "$left" ]; do
    still=""
    for pid in $left; do
        if kill -0 "$pid" 2>/dev/null; then
            still="$still $pid"
        elif ! wait "$pid"; then
            kill -TERM $pids 2>/dev/null
            wait
            exit 1
        fi
    done
    left=$still
    [ -z "$left" ] || sleep 0.3
done
"""
BEGIN = """
( exec 3< {name}.xml && rm -f -- {name}.xml && until_us {at} && {login} && exec {command} \\
    > {name}.out 2> {name}.err ) &
pids="$pids $!"
"""


def script(drives: Sequence[ProxyDriver], start: float, seed: int) -> str:
    """Return the script of one client node: all its drivers at their times; one failure ends all.

    Args:
        drives: the node's drivers.
        start: Unix time at which the load begins.
        seed: seed of the drivers' draws.
    """
    parts = []
    for place, drive in enumerate(drives):
        command = (
            f"{REMOTE_PROGRAM} run /dev/fd/3 --archive {drive.name}.archive "
            f"--seed {(seed + place) % 2**31}"
        )
        at = round(1e6 * (start + drive.load.begins_s - WHOLE_S))
        login = f"login_by {drive.access.file}" if drive.access.file is not None else ":"
        parts.append(BEGIN.format(at=at, login=login, command=command, name=drive.name))
    return SCRIPT.format(folder=FOLDER, begin="".join(parts))


def prepare(
    agent: Agent, shell_to: ShellTo, client: str, objects: StoredObjects, access: ProxyLogin
) -> None:
    """Write the objects to read, through one proxy. HotbedError: the store does not accept them."""
    workload = workload_of(objects, access)
    shell = shell_to(client)
    clear(shell)
    name = workload.name
    xml = to_xml(workload, ("init", "prepare")).encode()
    shell.put(xml, f"{FOLDER}/{name}.xml", mode=0o600)
    argv = [REMOTE_PROGRAM, "run", f"{FOLDER}/{name}.xml", "--archive", f"{FOLDER}/{name}.archive"]

    def written(_node: str, done: UnitResult) -> Archive:
        if done.exit_code != 0:
            why = done.reason("cosdrive")
            raise HotbedError(f"the objects of {objects.letter} cannot be written: {why}")
        with tempfile.TemporaryDirectory() as folder:
            _bring(shell, Path(folder), f"{name}.archive")
            return read_archive(Path(folder, f"{name}.archive"))

    try:
        made = run_units(agent, UNIT, {client: argv}, max_s=PREPARE_S, judged=written)
        archive = made[client]
    finally:
        clear(shell)
    # cosdrive exits with 0 even if requests failed; its stages report failures.
    if not archive.finished:
        kinds = Counter[str]()
        for one in archive.measured:
            kinds.update(one.failed)
        counts = ", ".join(f"{count} of kind {kind}" for kind, count in kinds.items()) or "some"
        raise HotbedError(
            f"the objects of {objects.letter} cannot all be written: requests failed, {counts}"
        )


def drive(
    agent: Agent, shell_to: ShellTo, drives: Sequence[ProxyDriver], *, seed: int, folder: Path
) -> float:
    """Run all drivers to their ends, and copy their archives into `folder`, one per driver. Return
    the Unix time at which the load began. HotbedError: a driver failed; one sentence names it and
    the reason. All drivers have ended."""
    here: dict[str, list[ProxyDriver]] = {}
    for one in drives:
        here.setdefault(one.client, []).append(one)
    for client, its in here.items():
        shell = shell_to(client)
        clear(shell)
        for one in its:
            xml = to_xml(workload_of(one.load.objects, one.access, one.load), ("main",))
            shell.put(xml.encode(), f"{FOLDER}/{one.name}.xml", mode=0o600)
    start = time.time() + LEAD_S

    def ended(client: str, done: UnitResult) -> None:
        if done.exit_code != 0:
            raise HotbedError(_why(shell_to(client), here[client], done))

    try:
        run_units(
            agent,
            UNIT,
            {client: ["bash", "-c", script(its, start, seed)] for client, its in here.items()},
            max_s=LEAD_S + max(one.load.ends_s for one in drives) + SLACK_S,
            judged=ended,
        )
        for client in here:
            _bring(shell_to(client), folder)
    finally:
        for client in here:
            clear(shell_to(client))
    return start


def clear(shell: Shell) -> None:
    """Empty the folder on a client."""
    shell.run(["sh", "-c", f"rm -rf {FOLDER} && mkdir -p -m 0700 {FOLDER}"])


def _bring(shell: Shell, folder: Path, what: str = ".") -> None:
    done = shell.run(["tar", "-C", FOLDER, "-cf", "-", what], timeout_s=SLACK_S)
    unpack_tar(done.stdout, folder, f"node {shell.node}")


def _why(shell: Shell, drives: Sequence[ProxyDriver], done: UnitResult) -> str:
    """Return the error message of the first of a node's drivers that failed."""
    if done.exit_code is None:
        return f"the drivers on node {shell.node} were stopped"
    for one in drives:
        said = shell.run(["tail", "-n", "1", f"{FOLDER}/{one.name}.err"], check=False).text.strip()
        if said:
            words = said.removeprefix("cosdrive: ")[:300]
            return f"the driver of {one.name} on node {shell.node} failed: {words}"
    return f"the drivers on node {shell.node} failed: {done.reason('cosdrive')}"
