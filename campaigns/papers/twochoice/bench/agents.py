"""Agents of a testbed: emptying, settings, starting; and the load generator on clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from schemas.errors import HotbedError, UserError
from testbed.agent.contract import UnitResult
from testbed.deploy import twochoice_variables
from testbed.sites.contract import Node, Testbed
from testbed.spec import CephSpec, ObjectsSpec, TestbedSpec
from testbed.ssh import Shell

BENCH = "/usr/local/bin/hotbed-twochoicebench"
CLUSTER_FILE = "/etc/hotbed/twochoice.json"
KEY_FILE = "/etc/hotbed/twochoice.key"
PLAN_FILE = "/var/lib/hotbed/twochoice-bench.json"
UNIT = "load-twochoice"
SERVES_S = 120.0

EMPTY = 'for f in {folders}; do rm -rf "$f"/*; done; sync'


@dataclass(frozen=True)
class Machines:
    """A deployed testbed with agents.

    `start`, `wait` and `stop` are the control plane's functions for a unit on a node.
    """

    testbed: Testbed
    store: CephSpec | ObjectsSpec
    shell_to: Callable[[str], Shell]
    call: Callable[[str, Mapping[str, Any], float], Any]
    start: Callable[[str, str, Sequence[str], float], None]
    wait: Callable[[str, str, float], UnitResult]
    stop: Callable[[str, str], object]

    @property
    def clients(self) -> tuple[Node, ...]:
        """Nodes with client processes."""
        return self.testbed.with_role("client")

    @property
    def agents(self) -> dict[str, tuple[int, ...]]:
        """The agents' numbers by node."""
        return twochoice_variables.agents(self.testbed, self.store)


def machines_of(testbed: Testbed, spec: TestbedSpec) -> Machines:
    """Return a testbed's machines for the bench.

    Raises:
        UserError: the testbed's spec has no agents.
    """
    from testbed.client import agent_client
    from testbed.reach import shell_to

    store = spec.store
    if not isinstance(store, (CephSpec, ObjectsSpec)) or twochoice_variables.asked(store) is None:
        raise UserError(
            f"testbed {testbed.name} has no agents of the two-choice scheduler: bring up a spec "
            "that asks for them, such as testbed/specs/twochoice-rados.yaml."
        )
    agent = agent_client(testbed)
    return Machines(
        testbed=testbed,
        store=store,
        shell_to=lambda name: shell_to(testbed, testbed.node(name)),
        call=lambda verb, payload, timeout_s: agent.call(verb, payload, timeout_s=timeout_s),
        start=lambda node, unit, argv, max_s: agent.unit_start(node, unit, argv, max_s=max_s),
        wait=lambda node, unit, timeout_s: agent.unit_wait(node, unit, timeout_s=timeout_s),
        stop=agent.unit_stop,
    )


class Agents:
    """Operations on a testbed's agents between runs."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines

    def fresh(self, settings: Mapping[str, Any]) -> None:
        """Empty all agents, clean up earlier runs, and start the agents with `settings`.

        Raises:
            HotbedError: a node cannot be reached, or an agent does not start.
        """
        machines = self.machines
        nodes = tuple(machines.agents)
        self._everywhere(nodes, ["systemctl", "stop", "hotbed-twochoice@*.service"])
        if isinstance(machines.store, CephSpec):
            osds = [number for numbers in machines.agents.values() for number in numbers]
            payload = {"prefix": twochoice_variables.POOL_PREFIX, "osds": osds}
            machines.call("pinned-empty", payload, SERVES_S)
        else:
            self._empty_folders()
        self._configure(settings)
        self._everywhere(nodes, ["systemctl", "start", "hotbed-twochoice.target"])
        self.status(SERVES_S)

    def restore(self) -> None:
        """Restore the deployed settings, and empty the agents."""
        deployed = twochoice_variables.variables_of(self.machines.testbed, self.machines.store)
        self.fresh(deployed["twochoice_settings"])

    def status(self, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """Return every agent's status. Raise HotbedError if one does not answer within `wait_s`."""
        client = self.machines.clients[0].name
        argv = [BENCH, "status", "--cluster", CLUSTER_FILE, "--wait", f"{wait_s:g}s"]
        done = self.machines.shell_to(client).run(argv, check=False, timeout_s=wait_s + 60)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise HotbedError(said[-1].removeprefix("twochoicebench: "))
        found: list[dict[str, Any]] = json.loads(done.text)["agents"]
        return found

    def _empty_folders(self) -> None:
        testbed = self.machines.testbed
        for node, numbers in self.machines.agents.items():
            paths = twochoice_variables.folders(testbed.node(node), numbers)
            folders = " ".join(f"'{path}'" for path in paths)
            script = EMPTY.format(folders=folders)
            self.machines.shell_to(node).run(["sh", "-c", script], timeout_s=SERVES_S)

    def _configure(self, settings: Mapping[str, Any]) -> None:
        machines = self.machines
        spec = twochoice_variables.asked(machines.store)
        assert spec is not None
        document = {
            "agents": twochoice_variables.peers(machines.testbed, machines.store, spec.port),
            "key_file": KEY_FILE,
            **settings,
        }
        text = twochoice_variables.cluster_text(document)
        names = dict.fromkeys([*machines.agents, *(node.name for node in machines.clients)])
        with ThreadPoolExecutor(len(names)) as pool:
            for future in [
                pool.submit(lambda name: machines.shell_to(name).put(text, CLUSTER_FILE), name)
                for name in names
            ]:
                future.result()

    def _everywhere(self, nodes: Sequence[str], argv: Sequence[str]) -> None:
        with ThreadPoolExecutor(max(1, len(nodes))) as pool:
            for future in [
                pool.submit(self.machines.shell_to(node).run, argv, timeout_s=SERVES_S)
                for node in nodes
            ]:
                future.result()


def generate(
    machines: Machines, plans: Sequence[Mapping[str, Any]], max_s: float
) -> list[dict[str, Any]]:
    """Run a plan on each client node, all at the same time, and return the reports.

    The starts differ by at most the time for an ssh connection. An interruption stops all.

    Raises:
        HotbedError: a load generator failed, with its own message.
    """
    with _running(machines, plans, max_s) as nodes:
        end = time.monotonic() + max_s
        found = []
        for node in nodes:
            left = max(1.0, end - time.monotonic())
            found.append(_answer(node, machines.wait(node, UNIT, left)))
        return found


@contextmanager
def _running(
    machines: Machines, plans: Sequence[Mapping[str, Any]], max_s: float
) -> Iterator[list[str]]:
    nodes = [node.name for node in machines.clients]
    argv = [BENCH, "apps", "--cluster", CLUSTER_FILE, "--plan", PLAN_FILE]
    for node, plan in zip(nodes, plans, strict=True):
        machines.shell_to(node).run(["mkdir", "-p", "/var/lib/hotbed"])
        machines.shell_to(node).put(json.dumps(plan).encode(), PLAN_FILE)
    started: list[str] = []
    try:
        for node in nodes:
            machines.start(node, UNIT, argv, max_s)
            started.append(node)
        yield nodes
    finally:
        for node in started:
            machines.stop(node, UNIT)
            machines.shell_to(node).run(["rm", "-f", PLAN_FILE])


def _answer(node: str, done: UnitResult) -> dict[str, Any]:
    try:
        # Also parse after failed writes or differing objects, because the report has the details.
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except ValueError as error:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = lines[-1].strip().removeprefix("twochoicebench: ") if lines else "it said nothing"
        if done.exit_code is None:
            said = "it was stopped"
        raise HotbedError(f"the load generator on {node} failed: {said[:300]}") from error
