"""Faults under replayers on a real NFS server: a client, the server, the parameters.

A run may fail with one sentence. Nothing may hang or stay behind. The last test's run must be
complete.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from campaigns.papers.prioritymeister import replays
from campaigns.papers.prioritymeister.replays import ClientLoad, NfsServer
from schemas.errors import HotbedError
from testbed.client import agent_client
from testbed.deploy.enforcement import NfsEnforcement
from testbed.reach import shell_to
from testbed.sites.contract import Testbed
from testbed.ssh import Shell
from tests.testbed.nfs_testbed import nfs_site

pytestmark = [pytest.mark.local, pytest.mark.timeout(400)]

SECONDS = 6.0
FILE = 64 << 20


@pytest.fixture(scope="module")
def served(nfs_testbed: Testbed) -> Testbed:
    """Return an NFS server behind its proxy, with two clients and their files."""
    testbed, site = nfs_testbed, nfs_site()
    site.shape(testbed.name, False)
    try:
        files = [(server_of(testbed), name, FILE) for name in ("client0", "client1")]
        replays.prepare(agent_client(testbed), files)
    finally:
        site.shape(testbed.name, True)
    return testbed


def server_of(testbed: Testbed) -> NfsServer:
    return NfsServer("server", testbed.node("server").address)


def shell(testbed: Testbed, name: str) -> Shell:
    return shell_to(testbed, testbed.node(name))


def loads(testbed: Testbed) -> list[ClientLoad]:
    """Return a hundred small requests per second from each client, one in five a write."""
    rows = (
        f"{n * 10_000_000},0x1000,Disk{'Write' if n % 5 == 0 else 'Read'},0x{n * 7 % 4096 * 4096:x}"
        for n in range(int(100 * SECONDS))
    )
    trace = ("\n".join(rows) + "\n").encode()
    return [
        ClientLoad(w, testbed.node(f"client{n}"), server_of(testbed), trace, slo_s=1.0)
        for n, w in enumerate("AB")
    ]


class Running:
    """Replayers of all clients in a thread, and their results."""

    def __init__(self, testbed: Testbed) -> None:
        sent = loads(testbed)
        replays.lay_out(sent, lambda name: shell(testbed, name))
        self.reports: dict[str, dict[str, Any]] = {}
        self.error: HotbedError | None = None
        self._thread = threading.Thread(target=self._run, args=(testbed, sent))
        self._thread.start()
        time.sleep(replays.LEAD_S + SECONDS / 3)

    def _run(self, testbed: Testbed, sent: list[ClientLoad]) -> None:
        try:
            self.reports = replays.replay(agent_client(testbed), sent, seconds=SECONDS, wait_s=10.0)
        except HotbedError as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(timeout=120)
        assert not self._thread.is_alive(), "the replayers hang"


def assert_idle(testbed: Testbed) -> None:
    """Assert that no request is left at the proxy or on the clients."""
    deadline = time.monotonic() + 30
    while True:
        status = NfsEnforcement(testbed).status("server")
        if not status["queued"] and not status["outstanding"]:
            break
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    assert not any(agent_client(testbed).units().values())


def test_a_client_that_is_killed_mid_request(served):
    running = Running(served)
    unit = f"hotbed-{replays.UNIT}.service"
    shell(served, "client0").run(["systemctl", "kill", "--signal=KILL", unit])
    running.join()
    assert running.error is not None
    assert "the replayer of A on node client0" in str(running.error)
    assert "\n" not in str(running.error)
    assert_idle(served)


def test_the_server_restarted_under_load(served):
    running = Running(served)
    shell(served, "server").run(["systemctl", "restart", "hotbed-ganesha"], timeout_s=60)
    running.join()
    assert running.error is not None
    assert "was lost" in str(running.error)
    assert "\n" not in str(running.error)
    assert_idle(served)


def test_parameters_changed_under_load(served):
    """Policies change in turn, repeatedly: no request is lost and none fails, also after the faults
    of the tests before."""
    enforcement = NfsEnforcement(served)
    names = {"A": "client0", "B": "client1"}
    running = Running(served)
    for turn in range(12):
        policy = ("pm", "ps", "byslo", "none", "edf", "cake")[turn % 6]
        workloads: list[dict[str, Any]] = [
            {"name": w, "clients": [served.node(node).address], "slo": 0.1 * (1 + turn % 3)}
            for w, node in names.items()
        ]
        if policy == "pm":
            for place, one in enumerate(workloads, start=1):
                one |= {"priority": place, "pairs": [[0.9, 0.05], [0.5, 0.2]]}
        enforcement.put("server", {"policy": policy, "depth": 1, "workloads": workloads})
    running.join()
    enforcement.remove()
    assert running.error is None, running.error
    for report in running.reports.values():
        assert report["whole"]["requests"] == 100 * SECONDS
        assert report["whole"]["unanswered"]["count"] == 0
        assert not report["errors"]
    assert_idle(served)
