"""A testbed's object servers and its client node: places, clean state, and running units.

Servers keep their data in files on their disks, or in front of OSDs. Next to OSDs there may be a
replicated pool in which CRUSH places writes without agents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from campaigns.grounds.live import LiveTestbed, at_once
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import UnitResult
from testbed.deploy import twochoice_variables
from testbed.deploy.inventory import SCRATCH_PATH
from testbed.sites.contract import Testbed
from testbed.spec import CephSpec, ObjectsSpec

BENCH = "/usr/local/bin/hotbed-twochoicebench"
CLUSTER_FILE = "/etc/hotbed/twochoice.json"
KEY_FILE = "/etc/hotbed/twochoice.key"
PLAN_FILE = "/var/lib/hotbed/twochoice-plan.json"
STRAGGLER_FILE = "straggler"
"""File of fio's writes in a server's folder."""
UNIT = "load-objects"
FIO_UNIT = "load-straggler"
SERVES_S = 120.0
SLACK_S = 120.0

PURGE_S = 300.0

CLEAN = """
set -e
systemctl stop 'hotbed-twochoice@*.service'
for folder in {folders}; do
    find "$folder" -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {{}} +
done
sync
"""
# A file of fio would remain next to the OSD, but exist only from the first cell with fio on.
STOP = "systemctl stop 'hotbed-twochoice@*.service' && rm -f {file}"
START = "systemctl start {units}"

Stats = Mapping[str, object]


@dataclass(frozen=True)
class ObjectServer:
    """An object server: its number, its node, and a folder on its disk where fio may write. With
    files as the backend, the folder has all of the server's data."""

    number: int
    node: str
    folder: str


@runtime_checkable
class CountedDisksSite(Protocol):
    """A site that reports its disks' counters."""

    def disks_stats(self, name: str, node: str) -> Sequence[Stats]:
        """Return the counters of each of a node's disks, in the order of its servers."""


def places_of(live: LiveTestbed) -> tuple[ObjectServer, ...]:
    """Return the object servers of a testbed.

    Raises:
        UserError: the testbed has no servers, not exactly one client, or no room on a disk for fio.
    """
    testbed, store = live.testbed, live.spec.store
    if not isinstance(store, (CephSpec, ObjectsSpec)) or twochoice_variables.asked(store) is None:
        raise UserError(
            "no object servers",
            where=f"testbed {testbed.name}",
            do="bring up a spec with `kind: twochoice`, or with a Ceph and `twochoice: {}`",
        )
    if len(testbed.with_role("client")) != 1:
        raise UserError(
            f"{len(testbed.with_role('client'))} nodes of role client",
            where=f"testbed {testbed.name}",
            allowed="one, for the client processes of these experiments",
        )
    if isinstance(store, CephSpec):
        return _before_osds(testbed, store)
    return tuple(
        ObjectServer(number, node, folder)
        for node, numbers in twochoice_variables.agents(testbed, store).items()
        for number, folder in zip(
            numbers, twochoice_variables.folders(testbed.node(node), numbers), strict=True
        )
    )


def _before_osds(testbed: Testbed, store: CephSpec) -> tuple[ObjectServer, ...]:
    found = []
    for node, numbers in twochoice_variables.agents(testbed, store).items():
        if len(numbers) > 1 or "scratch" not in testbed.node(node).devices:
            raise UserError(
                f"{len(numbers)} OSDs and "
                f"{'a' if 'scratch' in testbed.node(node).devices else 'no'} scratch part",
                where=f"node {node} of testbed {testbed.name}",
                allowed="one OSD with a scratch part, for files that slow that OSD down",
            )
        found += [ObjectServer(number, node, SCRATCH_PATH) for number in numbers]
    return tuple(found)


class ObjectServers:
    """Operations on the servers of a testbed, which keep their data in files.

    Attributes:
        live: the testbed.
        servers: its servers.
        client: the client node.
        backend: ``file`` or ``rados``.
        nodes: nodes with servers, each once, in order.
        pool: replicated pool in which CRUSH places writes without agents; None without a Ceph.
    """

    backend = "file"

    def __init__(self, live: LiveTestbed, servers: Sequence[ObjectServer]) -> None:
        store = live.spec.store
        assert isinstance(store, (CephSpec, ObjectsSpec))
        self.live = live
        self.servers = tuple(servers)
        self.client = live.testbed.with_role("client")[0]
        self.nodes = tuple(dict.fromkeys(server.node for server in servers))
        self.pool: str | None = None
        self._store = store

    def clean(self, settings: Mapping[str, Any]) -> None:
        """Remove everything of an earlier run, and start every server empty with these settings.

        Raises:
            HotbedError: other load runs, or a server does not start.
        """
        self._quiet()
        document = twochoice_variables.cluster_text(self.cluster(settings))
        with self.live.unshaped():
            self._begin(document)
        self.live.shell_to(self.client.name).put(document, CLUSTER_FILE)
        for server in self.status():
            has = server["has"]
            if has["fragments"] or has["entries"] or has["in_flight"]:
                raise HotbedError(f"object server {server['agent']} is not empty when it begins")

    def cluster(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cluster file: agents, key, and the cell's settings."""
        spec = twochoice_variables.asked(self._store)
        assert spec is not None
        peers = twochoice_variables.peers(self.live.testbed, self._store, spec.port)
        return {"agents": peers, "key_file": KEY_FILE, "copies": spec.copies, **settings}

    def restore(self) -> None:
        """Restore the deployed settings."""
        deployed = twochoice_variables.variables_of(self.live.testbed, self._store)
        self.clean(deployed["twochoice_settings"])

    def _quiet(self) -> None:
        """Stop Hotbed's load; raise HotbedError if other load runs."""
        self.live.quiet()

    def _begin(self, document: bytes) -> None:
        """Empty every server, and start it with this cluster file."""
        at_once(*(partial(self._empty, node, document) for node in self.nodes))

    def _empty(self, node: str, document: bytes) -> None:
        folders = " ".join(f"'{server.folder}'" for server in self.servers if server.node == node)
        self._sh(node, CLEAN.format(folders=folders))
        self._serve(node, document)

    def _serve(self, node: str, document: bytes) -> None:
        """Start the servers of a node with this cluster file."""
        self.live.shell_to(node).put(document, CLUSTER_FILE)
        units = " ".join(
            f"hotbed-twochoice@{server.number}.service"
            for server in self.servers
            if server.node == node
        )
        self._sh(node, START.format(units=units))

    def _sh(self, node: str, script: str) -> None:
        self.live.shell_to(node).run(["sh", "-c", script], timeout_s=SERVES_S)

    def status(self) -> list[dict[str, Any]]:
        """Return every server's status.

        Raises:
            HotbedError: a server does not answer.
        """
        # The generator reports the silent server, so it must not be cut off earlier.
        answer = self.bench(["status", "--wait", f"{SERVES_S:g}s"], max_s=SERVES_S + SLACK_S)
        found: list[dict[str, Any]] = answer["agents"]
        return found

    def bench(
        self, arguments: Sequence[str], *, max_s: float, plan: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the load generator's output on the client node.

        Raises:
            HotbedError: the generator or some of its writes or reads failed, in one sentence.
        """
        agent, client = self.live.agent, self.client.name
        argv = [BENCH, *arguments, "--cluster", CLUSTER_FILE]
        with self._planned(plan) as more:
            agent.unit_start(client, UNIT, [*argv, *more], max_s=max_s)
            try:
                done = agent.unit_wait(client, UNIT, timeout_s=max_s + SLACK_S)
            except BaseException:
                agent.unit_stop(client, UNIT)
                raise
        return answer_of(arguments[0], done)

    @contextmanager
    def _planned(self, plan: Mapping[str, Any] | None) -> Iterator[list[str]]:
        """Yield the load generator's arguments for a plan in a temporary file; none without a
        plan."""
        if plan is None:
            yield []
            return
        shell = self.live.shell_to(self.client.name)
        shell.run(["mkdir", "-p", str(Path(PLAN_FILE).parent)])
        shell.put(json.dumps(plan).encode(), PLAN_FILE)
        try:
            yield ["--plan", PLAN_FILE]
        finally:
            with suppress(HotbedError):  # the error that ended the run must be the one raised
                shell.run(["rm", "-f", PLAN_FILE])

    @contextmanager
    def disturbed(self, numbers: Sequence[int], commands: Sequence[list[str]]) -> Iterator[None]:
        """Run commands on the nodes of some servers, one each, and stop them at the end."""
        agent, servers = self.live.agent, self.servers
        started: list[tuple[str, str]] = []
        try:
            for number, command in zip(numbers, commands, strict=True):
                node, unit = servers[number].node, f"{FIO_UNIT}-{number}"
                agent.unit_start(node, unit, command, max_s=SLACK_S * 20)
                started.append((node, unit))
            yield
            live = agent.units()
            for node, unit in started:
                if unit not in live.get(node, ()):
                    raise HotbedError(f"{commands[0][0]} on node {node} ended before the burst did")
        finally:
            for node, unit in started:
                agent.unit_stop(node, unit)

    def disk_counters(self) -> dict[int, Stats]:
        """Return the counters of every server's disk, by server; empty if the site has none."""
        site, found = self.live.site, dict[int, Stats]()
        if not isinstance(site, CountedDisksSite):
            return found
        for node in self.nodes:
            numbers = [server.number for server in self.servers if server.node == node]
            found |= dict(zip(numbers, site.disks_stats(self.live.name, node), strict=True))
        return found


class RadosServers(ObjectServers):
    """Operations on servers in front of OSDs. In a clean state, pools are empty and Ceph is as at
    the start of a run."""

    backend = "rados"

    def __init__(self, live: LiveTestbed, servers: Sequence[ObjectServer]) -> None:
        super().__init__(live, servers)
        pools = live.spec.ceph().pools
        self.pool = pools[0].name if pools else None

    def _quiet(self) -> None:
        self.live.quiet("controller", "disturbance", "recorder")

    def _begin(self, document: bytes) -> None:
        live = self.live
        stop = STOP.format(file=f"{SCRATCH_PATH}/{STRAGGLER_FILE}")
        at_once(*(partial(self._sh, node, stop) for node in self.nodes))
        osds = [server.number for server in self.servers]
        payload = {"prefix": twochoice_variables.POOL_PREFIX, "osds": osds}
        live.agent.call("pinned-empty", payload, timeout_s=2 * SERVES_S)
        if self.pool is not None:
            argv = ["rados", "purge", self.pool, "--yes-i-really-really-mean-it"]
            # Purged, not recreated: with another pool id its groups would be placed elsewhere.
            live.shell_to(self.client.name).run(argv, timeout_s=PURGE_S)
        live.put_right()
        at_once(*(partial(self._serve, node, document) for node in self.nodes))


def servers_of(live: LiveTestbed) -> ObjectServers:
    """Return the servers of a testbed, on files or OSDs.

    Raises:
        UserError: as `places_of`.
    """
    places = places_of(live)
    on_osds = isinstance(live.spec.store, CephSpec)
    return (RadosServers if on_osds else ObjectServers)(live, places)


def reason_of(done: UnitResult) -> str:
    """Return why the load generator failed, in its own words."""
    if done.exit_code is None:
        return "it was stopped"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip().removeprefix("twochoicebench: ")[:300] if lines else "it said nothing"


def answer_of(verb: str, done: UnitResult) -> dict[str, Any]:
    """Return the load generator's JSON output.

    Raises:
        HotbedError: the generator failed, with its own message.
    """
    if done.exit_code != 0:
        raise HotbedError(f"the load generator's {verb} failed: {reason_of(done)}")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise HotbedError(f"the load generator's {verb} printed no result") from error
    return found
