"""Engine needs: no librados, one core, 1 GB and the admin node's port 22. Killed, it resumes.

The engine runs in its own network namespace; its only route leads to TCP port 22 of the admin node.
Its control group has one core and 1 GB. Cells that write need more on a local site: the process
that runs the engine restores nodes to a snapshot.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from live_campaigns import HOT, ROOT, assert_clean, assert_whole, folders, go, live_units

from testbed.client import agent_client
from testbed.sites.contract import Testbed
from testbed.sites.local.cgroups import Cgroups, detect
from testbed.sites.local.names import LocalNames
from tests.hotbed.own_controllers import write_shy

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

NETNS = "hotbed-tests-engine"
GROUP = "engine"
TABLE = "122"
Room = Callable[[Sequence[str]], subprocess.Popen[str]]


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


@pytest.fixture
def room(deployed: Testbed) -> Iterator[Room]:
    """Return a function that starts commands in the room; `ip netns exec` would hide cgroups."""
    switch = LocalNames.of_environment().switch(deployed.name)
    host = deployed.admin.address.rpartition(".")[0] + ".250"
    groups = Cgroups(detect(), "hotbed-tests-room")
    ip("netns", "del", NETNS, check=False)
    ip("netns", "add", NETNS)
    try:
        ip(
            "link",
            "add",
            "room0",
            "netns",
            NETNS,
            "type",
            "veth",
            "peer",
            "name",
            "room1",
            "netns",
            switch,
        )
        ip("-n", switch, "link", "set", "room1", "master", "br0", "up")
        inside = ("-n", NETNS)
        ip(*inside, "link", "set", "lo", "up")
        ip(*inside, "addr", "add", f"{host}/32", "dev", "room0")
        ip(*inside, "link", "set", "room0", "up")
        # Allow only this route, and only traffic to port 22.
        ip(*inside, "route", "add", deployed.admin.address, "dev", "room0", "table", TABLE)
        ip(*inside, "rule", "add", "ipproto", "tcp", "dport", "22", "lookup", TABLE)
        procs = [str(path) for path in groups.create(GROUP, cpus=1.0, memory=2**30)]
        enter = 'for f in $PROCS; do echo $$ > $f || exit 1; done; exec "$@"'

        def start(argv: Sequence[str]) -> subprocess.Popen[str]:
            return subprocess.Popen(
                ["sh", "-c", enter, "sh", "nsenter", f"--net=/run/netns/{NETNS}", *argv],
                env=os.environ | {"PROCS": " ".join(procs), "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )

        yield start
    finally:
        groups.kill(GROUP, 5)
        groups.remove()
        ip("netns", "del", NETNS, check=False)
        ip("-n", switch, "link", "del", "room1", check=False)


def test_the_room_has_port_22_of_the_admin_node_and_no_librados(room, deployed):
    reach = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    admin, osd = deployed.admin.address, deployed.node("osd0").address
    for address, port in ((admin, "22"), (admin, "3300"), (admin, "6789"), (osd, "22")):
        tried = room([sys.executable, "-c", reach, address, port])
        tried.communicate(timeout=60)
        assert (tried.returncode == 0) == ((address, port) == (admin, "22"))
    said, _ = room([sys.executable, "-c", "import rados"]).communicate(timeout=60)
    assert "No module named 'rados'" in said


def test_a_campaign_on_a_real_cluster_survives_a_killed_engine(
    room, live_campaign, deployed, tmp_path
):
    """A campaign with a user's own controller. The engine in the room is killed in its first cell,
    and the next engine there resumes with the cells that read. An engine without limits runs the
    rest."""
    own = write_shy(tmp_path / "own")
    path = live_campaign(
        {"figures": ["1"], "vary": {"op": ["seq"]}, "fixed": {**HOT, "controller": "shy"}},
        {"vary": {"op": ["write"]}, "fixed": {"scenario": "none", "controller": "default"}},
    )
    argv = [sys.executable, "-m", "hotbed.cli", "run", str(path), "--testbed", deployed.name]
    argv += ["--figure", "1", "--artifacts", str(path.parent / "artifacts")]
    argv += ["--controllers-dir", str(own)]
    killed, agent = room(argv), agent_client(deployed)
    deadline = time.monotonic() + 200
    try:
        while not any("load-bench-seq" in unit for unit in live_units(agent)):
            assert time.monotonic() < deadline
            assert killed.poll() is None
            time.sleep(0.5)
    finally:
        killed.kill()
        killed.wait()
    resumed = room(argv)
    said, _ = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, said[-4000:]
    ended = {(run.status, run.reason) for run in folders(path).values()}
    assert {status for status, _ in ended} <= {"done", "interrupted"}, ended
    result = go(path, deployed, own)
    assert result.ok, result.sentence
    assert (result.already_done, result.ran) == (1, 1)
    done = {folder: run for folder, run in folders(path).items() if run.status == "done"}
    assert {run.parameters["op"] for run in done.values()} == {"seq", "write"}
    for folder, run in done.items():
        assert_whole(folder, run, deployed)
    assert_clean(deployed)
    assert go(path, deployed, own).ran == 0
