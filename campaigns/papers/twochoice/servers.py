"""A testbed's agents of the two-choice scheduler, also called object servers, and its client nodes:
clean state, settings, status, load generators.

Agents keep their data in files on their disks, or in front of OSDs. Next to OSDs there may be a
replicated pool in which CRUSH places writes without agents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.grounds.live import LiveTestbed, ShellTo, at_once, run_units
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import Agent, UnitResult
from testbed.deploy import twochoice_variables
from testbed.deploy.inventory import SCRATCH_PATH
from testbed.sites.contract import CountedDisksSite, Testbed
from testbed.spec import CephSpec, ObjectsSpec, TestbedSpec

BENCH = "/usr/local/bin/hotbed-twochoicebench"
CLUSTER_FILE = "/etc/hotbed/twochoice.json"
KEY_FILE = "/etc/hotbed/twochoice.key"
PLAN_FILE = "/var/lib/hotbed/twochoice-plan.json"
STRAGGLER_FILE = "straggler"
"""File of fio's writes in a server's folder."""
UNIT = "load-twochoice"
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


class Agents:
    """Operations on the agents of a testbed.

    Attributes:
        testbed: the testbed.
        store: the store of its spec.
        spec: the agents as the testbed's spec asks for them.
        agent: client of the node agent.
        shell_to: returns a shell on a node.
        numbers: the agents' numbers by node.
        clients: nodes with client processes.

    Raises:
        UserError: the testbed's spec has no agents.
    """

    def __init__(
        self, testbed: Testbed, spec: TestbedSpec, agent: Agent, shell_to: ShellTo
    ) -> None:
        store, asked = spec.store, twochoice_variables.asked(spec.store)
        if not isinstance(store, (CephSpec, ObjectsSpec)) or asked is None:
            raise UserError(
                "no agents of the two-choice scheduler",
                where=f"testbed {testbed.name}",
                do="bring up a spec with `kind: twochoice`, or with a Ceph and `twochoice: {}`",
            )
        self.testbed, self.store, self.spec = testbed, store, asked
        self.agent, self.shell_to = agent, shell_to
        self.numbers = twochoice_variables.agents(testbed, store)
        self.clients = testbed.with_role("client")

    @property
    def backend(self) -> str:
        """Place of the agents' bytes: ``file`` or ``rados``."""
        return "rados" if isinstance(self.store, CephSpec) else "file"

    def clean(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Remove everything of an earlier run, and start every agent empty with these settings;
        return their status. HotbedError: a node cannot be reached, or an agent does not start."""
        peers = twochoice_variables.peers(self.testbed, self.store, self.spec.port)
        agents = {"agents": peers, "key_file": KEY_FILE, "copies": self.spec.copies}
        document = twochoice_variables.cluster_text(agents | dict(settings))
        at_once(*(partial(self._sh, node, self._stop(node)) for node in self.numbers))
        if isinstance(self.store, CephSpec):
            self._empty_pools()
        at_once(*(partial(self._serve, node, document) for node in self.numbers))
        for client in self.clients:
            self.shell_to(client.name).put(document, CLUSTER_FILE)
        return self.status(SERVES_S)

    def restore(self) -> None:
        """Restore the deployed settings, and empty the agents."""
        deployed = twochoice_variables.variables_of(self.testbed, self.store)
        self.clean(deployed["twochoice_settings"])

    def _stop(self, node: str) -> str:
        """Return the script that stops a node's agents and removes their files."""
        if isinstance(self.store, CephSpec):
            return STOP.format(file=f"{SCRATCH_PATH}/{STRAGGLER_FILE}")
        folders = twochoice_variables.folders(self.testbed.node(node), self.numbers[node])
        return CLEAN.format(folders=" ".join(f"'{folder}'" for folder in folders))

    def _empty_pools(self) -> None:
        osds = [number for numbers in self.numbers.values() for number in numbers]
        payload = {"prefix": twochoice_variables.POOL_PREFIX, "osds": osds}
        self.agent.call("pinned-empty", payload, timeout_s=2 * SERVES_S)

    def _serve(self, node: str, document: bytes) -> None:
        """Start the agents of a node with this cluster file."""
        self.shell_to(node).put(document, CLUSTER_FILE)
        units = " ".join(f"hotbed-twochoice@{number}.service" for number in self.numbers[node])
        self._sh(node, START.format(units=units))

    def _sh(self, node: str, script: str) -> None:
        self.shell_to(node).run(["sh", "-c", script], timeout_s=SERVES_S)

    def status(self, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Return every agent's status. HotbedError: an agent does not answer within `wait_s`."""
        argv = [BENCH, "status", "--cluster", CLUSTER_FILE, "--wait", f"{wait_s:g}s"]
        # The program names the silent agent, so it must not be cut off earlier.
        shell = self.shell_to(self.clients[0].name)
        done = shell.run(argv, check=False, timeout_s=wait_s + SLACK_S)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise HotbedError(said[-1].removeprefix("twochoicebench: "))
        found: list[dict[str, Any]] = json.loads(done.text)["agents"]
        return found

    def generate(
        self,
        arguments: Sequence[str],
        *,
        max_s: float,
        plans: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, UnitResult]:
        """Run a load generator for each plan, one on each client node, all at the same time, or one
        without a plan; return their results by node. An interruption stops all.

        The starts differ by at most the time for an ssh connection.
        """
        nodes = [client.name for client in self.clients[: len(plans) or 1]]
        argv = [BENCH, *arguments, "--cluster", CLUSTER_FILE]
        if plans:
            argv += ["--plan", PLAN_FILE]
        commands = dict.fromkeys(nodes, argv)
        try:
            for node, plan in zip(nodes, plans, strict=False):
                self.shell_to(node).run(["mkdir", "-p", str(Path(PLAN_FILE).parent)])
                self.shell_to(node).put(json.dumps(plan).encode(), PLAN_FILE)
            return run_units(
                self.agent, UNIT, commands, max_s=max_s, judged=lambda _node, done: done
            )
        finally:
            for node in nodes if plans else ():
                with suppress(HotbedError):  # the error that ended the run must be the one raised
                    self.shell_to(node).run(["rm", "-f", PLAN_FILE])


@dataclass(frozen=True)
class ObjectServer:
    """An object server: its number, its node, and a folder on its disk where fio may write. With
    files as the backend, the folder has all of the server's data."""

    number: int
    node: str
    folder: str


class ObjectServers(Agents):
    """Agents of a testbed that is reserved for measurements, in cells of experiments.

    Attributes:
        live: the testbed.
        servers: its servers.
        client: the client node.
        pool: replicated pool in which CRUSH places writes without agents; None without a Ceph.

    Raises:
        UserError: the testbed has no servers, not exactly one client, or no room on a disk for fio.
    """

    def __init__(self, live: LiveTestbed) -> None:
        super().__init__(live.testbed, live.spec, live.agent, live.shell_to)
        if len(self.clients) != 1:
            raise UserError(
                f"{len(self.clients)} nodes of role client",
                where=f"testbed {live.name}",
                allowed="one, for the client processes of these experiments",
            )
        self.live, self.client = live, self.clients[0]
        self.servers = tuple(self._servers())
        pools = self.store.pools if isinstance(self.store, CephSpec) else ()
        self.pool = pools[0].name if pools else None

    def _servers(self) -> Iterator[ObjectServer]:
        for name, numbers in self.numbers.items():
            node = self.testbed.node(name)
            folders = twochoice_variables.folders(node, numbers)
            if isinstance(self.store, CephSpec):
                if len(numbers) > 1 or "scratch" not in node.devices:
                    raise UserError(
                        f"{len(numbers)} OSDs and {'a' if 'scratch' in node.devices else 'no'} "
                        "scratch part",
                        where=f"node {name} of testbed {self.testbed.name}",
                        allowed="one OSD with a scratch part, for files that slow that OSD down",
                    )
                folders = (SCRATCH_PATH,) * len(numbers)
            for number, folder in zip(numbers, folders, strict=True):
                yield ObjectServer(number, name, folder)

    def clean(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """See `Agents.clean`. A Ceph is as at the start of a run. HotbedError: other load runs, or
        a server does not start."""
        if self.backend == "rados":
            self.live.quiet("controller", "disturbance", "recorder")
        else:
            self.live.quiet()
        with self.live.unshaped():
            found = super().clean(settings)
        for server in found:
            has = server["has"]
            if has["fragments"] or has["entries"] or has["in_flight"]:
                raise HotbedError(f"object server {server['agent']} is not empty when it begins")
        return found

    def _empty_pools(self) -> None:
        super()._empty_pools()
        if self.pool is not None:
            argv = ["rados", "purge", self.pool, "--yes-i-really-really-mean-it"]
            # Purged, not recreated: with another pool id its groups would be placed elsewhere.
            self.shell_to(self.client.name).run(argv, timeout_s=PURGE_S)
        self.live.put_right()

    def bench(
        self, arguments: Sequence[str], *, max_s: float, plan: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the load generator's output on the client node. HotbedError: the generator or some
        of its writes or reads failed, in one sentence."""
        plans = () if plan is None else (plan,)
        (done,) = self.generate(arguments, max_s=max_s, plans=plans).values()
        if done.exit_code != 0:
            why = done.reason("twochoicebench")
            raise HotbedError(f"the load generator's {arguments[0]} failed: {why}")
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            raise HotbedError(f"the load generator's {arguments[0]} printed no result") from error
        return found

    @contextmanager
    def disturbed(self, numbers: Sequence[int], commands: Sequence[list[str]]) -> Iterator[None]:
        """Run commands on the nodes of some servers, one each, and stop them at the end."""
        agent, servers = self.agent, self.servers
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
        for node, numbers in self.numbers.items():
            found |= dict(zip(numbers, site.disks_stats(self.live.name, node), strict=True))
        return found
