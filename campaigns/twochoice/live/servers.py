"""A testbed's object servers and its client node: where they are, a clean state, what runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.steps.clean import refuse_strays
from campaigns.steps.fill import unshaped
from schemas.errors import HotbedError, UserError
from testbed import twochoice_variables
from testbed.agent.contract import Agent, UnitResult
from testbed.inventory import SCRATCH_PATH
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
    """An object server: its number, its node, and a folder on its disk, where fio may write: where
    servers keep their bytes in files, all that is in it."""

    number: int
    node: str
    folder: str


@dataclass(frozen=True)
class Reached:
    """A testbed that is up and deployed, and what it is told through.

    `disks` are the counters of a node's disks, in the order of its servers; None where the site
    cannot tell.
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
        """``file`` or ``rados``."""
        return "rados" if isinstance(self.store, CephSpec) else "file"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of servers, each once, in order."""
        return tuple(dict.fromkeys(server.node for server in self.servers))


def places_of(testbed: Testbed, spec: TestbedSpec, spec_file: Path) -> tuple[Server, ...]:
    """The object servers of a testbed.

    Raises:
        UserError: it was made from another spec, has none, has another number of clients than one,
            or no room on a disk for what fio writes.
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
    """What is done with the servers of a testbed."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached

    def clean(self, settings: Mapping[str, Any]) -> None:
        """Nothing of an earlier run is left; every server begins empty, with these settings.

        Raises:
            HotbedError: somebody else's load runs, or a server does not begin.
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
        """The cluster file: agents, key, and what a cell says."""
        reached = self.reached
        spec = twochoice_variables.asked(reached.store)
        assert spec is not None
        peers = twochoice_variables.peers(reached.testbed, reached.store, spec.port)
        return {"agents": peers, "key_file": KEY_FILE, "copies": spec.copies, **settings}

    def restore(self) -> None:
        """The settings that were deployed are back."""
        deployed = twochoice_variables.variables_of(self.reached.testbed, self.reached.store)
        self.clean(deployed["twochoice_settings"])

    def _quiet(self) -> None:
        """Nothing of ours runs beside the servers; HotbedError where something of others does."""
        agent = self.reached.agent
        for node, units in agent.units().items():
            for unit in units:
                agent.unit_stop(node, unit)
        refuse_strays(agent)

    def _begin(self, document: bytes) -> None:
        """Every server is empty and has begun with this cluster file."""
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
        """What every server has.

        Raises:
            HotbedError: one does not answer.
        """
        # The generator's own sentence says who does not answer: it is not cut off before.
        answer = self.bench(["status", "--wait", f"{SERVES_S:g}s"], max_s=SERVES_S + SLACK_S)
        found: list[dict[str, Any]] = answer["agents"]
        return found

    def bench(
        self, arguments: Sequence[str], *, max_s: float, plan: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What the load generator prints on the client node.

        Raises:
            HotbedError: it failed, or writes or reads of it did: one sentence.
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
        """The arguments by which the load generator is told a plan, whose file is there meanwhile;
        none without a plan."""
        if plan is None:
            yield []
            return
        shell = self.reached.shell_to(self.reached.client.name)
        shell.run(["mkdir", "-p", str(Path(PLAN_FILE).parent)])
        shell.put(json.dumps(plan).encode(), PLAN_FILE)
        try:
            yield ["--plan", PLAN_FILE]
        finally:
            with suppress(HotbedError):  # what ended the run is what is told
                shell.run(["rm", "-f", PLAN_FILE])

    @contextmanager
    def disturbed(self, numbers: Sequence[int], commands: Sequence[list[str]]) -> Iterator[None]:
        """Commands run on the nodes of some servers, one each, and are stopped at the end."""
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
        """The counters of every server's disk, by server; empty where the site cannot tell."""
        ask, found = self.reached.disks, dict[int, Stats]()
        if ask is None:
            return found
        for node in self.reached.nodes:
            numbers = [server.number for server in self.reached.servers if server.node == node]
            found |= dict(zip(numbers, ask(node), strict=True))
        return found

    @property
    def pool(self) -> str | None:
        """The replicated pool in which CRUSH places what is written without agents."""
        return None

    def everywhere(self, do: Callable[[str], None]) -> None:
        """Do something on every node of servers, side by side."""
        with ThreadPoolExecutor(max(1, len(self.reached.nodes))) as pool:
            for future in [pool.submit(do, node) for node in self.reached.nodes]:
                future.result()


def answer_of(verb: str, done: UnitResult) -> dict[str, Any]:
    """The JSON that the load generator printed.

    Raises:
        HotbedError: it failed; its own sentence.
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
