"""Process killed with kill -9 at any call: the next process resumes, or removes everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.openstack import belongings
from tests.openstack.parts import REPOSITORY
from tests.openstack.plane import ControlPlane
from tests.openstack.proxy import DROPPED, Call, Rule
from tests.openstack.rest import Rest

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(400)]

CHANGING = "POST|PUT|PATCH|DELETE"
CLOUD = "compute|network|reservation"
MOST_LIVES = 60


class Lives:
    """Sequence of processes that do the same task."""

    def __init__(self, state: Path, log: Path) -> None:
        self._log = log
        with log.open("ab") as said:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "tests.openstack.incarnation", str(state)],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        self._pid = 0

    def live(self, what: str) -> int:
        """Run one life and return its exit status, negative if it was killed."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._pid = 0
        self._parent.stdin.write(f"{what}\n")
        self._parent.stdin.flush()
        self._pid = int(self._parent.stdout.readline())
        return int(self._parent.stdout.readline())

    def kill(self, call: Call) -> None:
        """Kill the life that makes this call."""
        while not self._pid:
            time.sleep(0.01)
        os.kill(self._pid, signal.SIGKILL)

    def said(self) -> str:
        """Return the output so far."""
        return self._log.read_text()

    def end(self) -> None:
        """End all lives."""
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(60)


@pytest.fixture
def lives(plane: ControlPlane, tmp_path: Path) -> Iterator[Lives]:
    """Provide lives that end with the test."""
    found = Lives(tmp_path / "state", tmp_path / "lives.log")
    yield found
    found.end()
    print(found.said()[-4000:])


def killed_everywhere(plane: ControlPlane, lives: Lives, what: str, *, ends: int = 0) -> list[str]:
    """Kill each life at its first call that changes something, alternately before the call is made
    and after its effect but before its answer. Return the calls of these deaths until one life
    completed with the exit status `ends`.
    """
    deaths: list[str] = []
    for life in range(MOST_LIVES):
        plane.proxy.clear()
        rule = Rule(CLOUD, CHANGING, act=lives.kill, reply=DROPPED, after=bool(life % 2))
        plane.proxy.spoil(rule)
        status = lives.live(what)
        if status >= 0:
            assert status == ends
            return deaths
        first = plane.proxy.changing()[0]
        deaths.append(f"{first.method} {first.service}")
    raise AssertionError(f"{MOST_LIVES} lives did not do it: {deaths}")


def test_killed_at_every_call(plane: ControlPlane, student: Rest, lives: Lives) -> None:
    deaths = killed_everywhere(plane, lives, "up")

    assert {"POST reservation", "POST compute", "POST network", "PUT network"} <= set(deaths)
    made = belongings.belongings(student)
    assert len(made.leases) == len(made.keypairs) == len(made.floating_ips) == 1
    assert len(made.servers) == len(set(made.servers)) == 3
    assert len(belongings.free_hosts(plane.admin)) == len(plane.hosts) - 3

    # The lease requested by the first life may still appear, as far as anybody knows.
    deaths = killed_everywhere(plane, lives, "down", ends=1)

    assert {"DELETE reservation", "DELETE compute", "DELETE network"} <= set(deaths)
    assert not belongings.belongings(student)
    assert belongings.free_hosts(plane.admin) == {host.name for host in plane.hosts}
    assert "it may still appear" in lives.said()
    plane.proxy.clear()
    assert lives.live("down later") == 0


@pytest.mark.parametrize("service", ["reservation", "compute", "network"])
def test_killed_after_a_making_call_and_taken_down(
    plane: ControlPlane, student: Rest, lives: Lives, service: str
) -> None:
    path = {"compute": "/servers$"}.get(service, "")
    plane.proxy.spoil(Rule(service, "POST", path, act=lives.kill, reply=DROPPED, after=True))

    assert lives.live("up") == -signal.SIGKILL
    assert belongings.belongings(student)

    plane.proxy.clear()
    assert lives.live("down") == 0
    assert not belongings.belongings(student)
    assert belongings.free_hosts(plane.admin) == {host.name for host in plane.hosts}
