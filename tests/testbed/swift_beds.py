"""Testbed with Swift on nodes of this machine for a test module, and its queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from testbed import reach
from testbed.client import AgentClient, agent_client
from testbed.deploy.roles import deploy, save_spec
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.names import LocalNames
from testbed.spec import TestbedSpec, load_spec, renamed
from tests.testbed.swift_client import Client

ROOT = Path(__file__).resolve().parents[2]


class Used(NamedTuple):
    """Use of a proxy node so far: time, CPU seconds of its proxy, bytes sent."""

    at_s: float
    cpu_s: float
    sent_bytes: int


class Bed:
    """Running testbed with the result of its deployment: changed tasks by node."""

    def __init__(self, site: LocalSite, spec: TestbedSpec, testbed: Testbed) -> None:
        self.site, self.spec, self.testbed = site, spec, testbed
        self.changed = deploy(testbed, spec, site=site)
        self.agent: AgentClient = agent_client(testbed)

    def run(self, node: str, command: str) -> str:
        """Return the output of a command on a node."""
        shell = reach.shell_to(self.testbed, self.testbed.node(node))
        return shell.run(["sh", "-c", command]).text

    def client(self, tenant: str) -> Client:
        """Return a client that, like a driver, reads the store's current file on client nodes."""
        node = self.testbed.with_role("client")[0].name
        return Client(json.loads(self.run(node, f"cat /etc/hotbed/swift/{tenant}.json")))

    def words(self, *words: str) -> list[str]:
        """Return a `hotbed` command line about this testbed."""
        return [sys.executable, "-m", "hotbed.cli", *words, "--testbed", self.testbed.name]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start ``hotbed WORDS`` about this testbed, as a person does."""
        return subprocess.Popen(
            self.words(*words),
            cwd=ROOT,
            env=os.environ
            | {"HOTBED_STATE": str(state_of(self.testbed.name)), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hotbed(self, *words: str) -> str:
        """Run ``hotbed WORDS`` about this testbed to its end and return its output."""
        process = self.start(*words)
        said, wrong = process.communicate(timeout=300)
        assert process.returncode == 0, wrong
        return said

    def used(self, proxy: str) -> Used:
        """Return the use of a proxy node so far."""
        usage = "/opt/hotbed-site/cpuacct/swift-proxy/cpuacct.usage"
        sent = "/sys/class/net/eth0/statistics/tx_bytes"
        at, cpu, sent = self.run(proxy, f"date +%s%N; cat {usage} {sent}").split()
        return Used(int(at) / 1e9, int(cpu) / 1e9, int(sent))

    def steps(self, controller: str) -> int:
        """Return the number of steps in a controller's current or last run."""
        status = self.agent.call("control-status")
        (row,) = (row for row in status["controllers"] if row["name"] == controller)
        return 0 if row["last"] is None else 1 + int(row["last"]["step"])


def state_of(name: str) -> Path:
    """Return the state folder of a testbed used only by tests."""
    return Path(f"/var/lib/hotbed-tests-{name}")


@contextmanager
def bed_of(name: str, file: str, **counts: int) -> Iterator[Bed]:
    """Deploy a testbed from our spec and remove it afterwards; first remove an earlier run's.
    `counts`: other numbers of nodes by group."""
    spec: TestbedSpec = renamed(load_spec(ROOT / "testbed/specs" / file), name)
    groups = tuple(
        group.model_copy(update={"count": counts.get(group.name, group.count)})
        for group in spec.groups
    )
    spec = spec.model_copy(update={"groups": groups})
    site = LocalSite(places=LocalNames(state_of(name), LocalNames.of_environment().cache))
    site.release(name)
    try:
        testbed = site.provision(spec)
        save_spec(testbed, spec)
        yield Bed(site, spec, testbed)
    finally:
        site.release(name)
