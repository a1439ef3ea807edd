"""A testbed's object servers and its client node: places, clean state, and running units."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.papers.dlr.steps.clean import refuse_strays
from campaigns.papers.dlr.steps.fill import unshaped
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import Agent, UnitResult
from testbed.deploy import twochoice_variables
from testbed.deploy.inventory import SCRATCH_PATH
from testbed.sites.contract import Node, Site, Testbed
from testbed.spec import CephSpec, ObjectsSpec, TestbedSpec, load_spec
from testbed.ssh import Shell

BENCH = "/usr/local/bin/hotbed-twochoicebench"
CLUSTER_FILE = "/etc/hotbed/twochoice.json"
KEY_FILE = "/etc/hotbed/twochoice.key"
PLAN_FILE = "/var/lib/hotbed/twochoice-plan.json"
UNIT = "load-objects"
FIO_UNIT = "load-straggler"
SERVES_S = 120.0
SLACK_S = 120.0

CLEAN = """
set -e
systemctl stop 'hotbed-twochoice@*.service'
for folder in {folders}; do
    find "$folder" -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {{}} +
done
sync
"""
START = "systemctl start {units}"

Stats = Mapping[str, object]


@dataclass(frozen=True)
class Server:
    """An object server: its number, its node, and a folder on its disk where fio may write. With
    files as the backend, the folder has all of the server's data."""

    number: int
    node: str
    folder: str


@dataclass(frozen=True)
class Reached:
    """A testbed that is up and deployed, with its agent and shells.

    `disks` are the counters of a node's disks, in the order of its servers; None if the site has
    none.
    """

    site: Site
    testbed: Testbed
    store: CephSpec | ObjectsSpec
    servers: tuple[Server, ...]
    client: Node
    agent: Agent
    shell_to: Callable[[str], Shell]
    disks: Callable[[str], Sequence[Stats]] | None = None

    @property
    def backend(self) -> str:
        """Backend: ``file`` or ``rados``."""
        return "rados" if isinstance(self.store, CephSpec) else "file"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes with servers, each once, in order."""
        return tuple(dict.fromkeys(server.node for server in self.servers))


def places_of(testbed: Testbed, spec: TestbedSpec, spec_file: Path) -> tuple[Server, ...]:
    """Return the object servers of a testbed.

    Raises:
        UserError: the testbed was made from another spec, has no servers, not exactly one client,
            or no room on a disk for fio.
    """
    if load_spec(spec_file).digest() != spec.digest():
        raise UserError(
            f"testbed {testbed.name} was not made from {spec_file}: bring that up, or name another "
            "testbed with --testbed."
        )
    store = spec.store
    if not isinstance(store, (CephSpec, ObjectsSpec)) or twochoice_variables.asked(store) is None:
        raise UserError(
            f"testbed {testbed.name} has no object servers: its spec says neither `kind: "
            "twochoice` nor, of a Ceph, `twochoice: {}`."
        )
    if len(testbed.with_role("client")) != 1:
        raise UserError(
            f"testbed {testbed.name} has {len(testbed.with_role('client'))} nodes of role client: "
            "the client processes of these experiments run on one."
        )
    if isinstance(store, CephSpec):
        return _before_osds(testbed, store)
    return tuple(
        Server(number, node, folder)
        for node, numbers in twochoice_variables.agents(testbed, store).items()
        for number, folder in zip(
            numbers, twochoice_variables.folders(testbed.node(node), numbers), strict=True
        )
    )


def _before_osds(testbed: Testbed, store: CephSpec) -> tuple[Server, ...]:
    found = []
    for node, numbers in twochoice_variables.agents(testbed, store).items():
        if len(numbers) > 1 or "scratch" not in testbed.node(node).devices:
            raise UserError(
                f"node {node} of testbed {testbed.name} has {len(numbers)} OSDs and "
                f"{'a' if 'scratch' in testbed.node(node).devices else 'no'} scratch part: these "
                "experiments slow single OSDs down by files beside them; give each OSD a node of "
                "its own, and its disk a scratch part."
            )
        found += [Server(number, node, SCRATCH_PATH) for number in numbers]
    return tuple(found)


class Servers:
    """Operations on the servers of a testbed."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached

    def clean(self, settings: Mapping[str, Any]) -> None:
        """Remove everything of an earlier run, and start every server empty with these settings.

        Raises:
            HotbedError: other load runs, or a server does not start.
        """
        reached = self.reached
        self._quiet()
        document = twochoice_variables.cluster_text(self.cluster(settings))
        with unshaped(reached.site, reached.testbed.name):
            self._begin(document)
        reached.shell_to(reached.client.name).put(document, CLUSTER_FILE)
        for server in self.status():
            has = server["has"]
            if has["fragments"] or has["entries"] or has["in_flight"]:
                raise HotbedError(f"object server {server['agent']} is not empty when it begins")

    def cluster(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cluster file: agents, key, and the cell's settings."""
        reached = self.reached
        spec = twochoice_variables.asked(reached.store)
        assert spec is not None
        peers = twochoice_variables.peers(reached.testbed, reached.store, spec.port)
        return {"agents": peers, "key_file": KEY_FILE, "copies": spec.copies, **settings}

    def restore(self) -> None:
        """Restore the deployed settings."""
        deployed = twochoice_variables.variables_of(self.reached.testbed, self.reached.store)
        self.clean(deployed["twochoice_settings"])

    def _quiet(self) -> None:
        """Stop Hotbed's units; raise HotbedError if other load runs."""
        agent = self.reached.agent
        for node, units in agent.units().items():
            for unit in units:
                agent.unit_stop(node, unit)
        refuse_strays(agent)

    def _begin(self, document: bytes) -> None:
        """Empty every server, and start it with this cluster file."""
        self.everywhere(lambda node: self._empty(node, document))

    def _empty(self, node: str, document: bytes) -> None:
        shell = self.reached.shell_to(node)
        here = [server for server in self.reached.servers if server.node == node]
        folders = " ".join(f"'{server.folder}'" for server in here)
        shell.run(["sh", "-c", CLEAN.format(folders=folders)], timeout_s=SERVES_S)
        shell.put(document, CLUSTER_FILE)
        units = " ".join(f"hotbed-twochoice@{server.number}.service" for server in here)
        shell.run(["sh", "-c", START.format(units=units)], timeout_s=SERVES_S)

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
        reached = self.reached
        argv = [BENCH, *arguments, "--cluster", CLUSTER_FILE]
        with self._planned(plan) as told:
            reached.agent.unit_start(reached.client.name, UNIT, [*argv, *told], max_s=max_s)
            try:
                done = reached.agent.unit_wait(reached.client.name, UNIT, timeout_s=max_s + SLACK_S)
            except BaseException:
                reached.agent.unit_stop(reached.client.name, UNIT)
                raise
        return answer_of(arguments[0], done)

    @contextmanager
    def _planned(self, plan: Mapping[str, Any] | None) -> Iterator[list[str]]:
        """Yield the load generator's arguments for a plan in a temporary file; none without a
        plan."""
        if plan is None:
            yield []
            return
        shell = self.reached.shell_to(self.reached.client.name)
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
        agent, servers = self.reached.agent, self.reached.servers
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
        ask, found = self.reached.disks, dict[int, Stats]()
        if ask is None:
            return found
        for node in self.reached.nodes:
            numbers = [server.number for server in self.reached.servers if server.node == node]
            found |= dict(zip(numbers, ask(node), strict=True))
        return found

    @property
    def pool(self) -> str | None:
        """Replicated pool in which CRUSH places writes without agents."""
        return None

    def everywhere(self, do: Callable[[str], None]) -> None:
        """Call `do` for every node with servers, in parallel."""
        with ThreadPoolExecutor(max(1, len(self.reached.nodes))) as pool:
            for future in [pool.submit(do, node) for node in self.reached.nodes]:
                future.result()


def answer_of(verb: str, done: UnitResult) -> dict[str, Any]:
    """Return the load generator's JSON output.

    Raises:
        HotbedError: the generator failed, with its own message.
    """
    if done.exit_code != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = lines[-1].strip().removeprefix("twochoicebench: ") if lines else "it said nothing"
        if done.exit_code is None:
            said = "it was stopped"
        raise HotbedError(f"the load generator's {verb} failed: {said[:300]}")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise HotbedError(f"the load generator's {verb} printed no result") from error
    return found
