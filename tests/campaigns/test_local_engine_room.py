"""Engine needs: no librados, one core, 1 GB and the admin node's port 22.

The engine runs in its own network namespace; its only route leads to TCP port 22 of the admin node.
Its control group has one core and 1 GB. Cells that write need more on a local site: the process
that runs the engine restores nodes to a snapshot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from live_campaigns import HOT, ROOT, assert_clean, assert_whole, folders, go

from testbed.sites.contract import Testbed
from testbed.sites.local.cgroups import Cgroups, detect
from testbed.sites.local.names import LocalNames

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

NETNS = "hotbed-tests-engine"
GROUP = "engine"
TABLE = "122"


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


@pytest.fixture
def room(
    deployed: Testbed,
) -> Iterator[Callable[[Sequence[str]], subprocess.CompletedProcess[str]]]:
    """Return a function that runs commands in the room; `ip netns exec` would hide cgroups."""
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

        def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["sh", "-c", enter, "sh", "nsenter", f"--net=/run/netns/{NETNS}", *argv],
                env=os.environ | {"PROCS": " ".join(procs), "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                text=True,
                capture_output=True,
                timeout=200,
                check=False,
            )

        yield run
    finally:
        groups.kill(GROUP, 5)
        groups.remove()
        ip("netns", "del", NETNS, check=False)
        ip("-n", switch, "link", "del", "room1", check=False)


def test_the_room_has_port_22_of_the_admin_node_and_no_librados(
    room: Callable[[Sequence[str]], subprocess.CompletedProcess[str]], deployed: Testbed
) -> None:
    reach = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    admin, osd = deployed.admin.address, deployed.node("osd0").address
    assert room([sys.executable, "-c", reach, admin, "22"]).returncode == 0
    for address, port in ((admin, "3300"), (admin, "6789"), (osd, "22")):
        assert room([sys.executable, "-c", reach, address, port]).returncode != 0
    assert "No module named 'rados'" in room([sys.executable, "-c", "import rados"]).stderr


def test_a_campaign_on_a_real_cluster(
    room: Callable[[Sequence[str]], subprocess.CompletedProcess[str]],
    live_campaign: Callable[..., Path],
    deployed: Testbed,
) -> None:
    """Reading cells run from the room; the next engine, without limits, runs the rest."""
    path = live_campaign(
        {"figures": ["1"], "vary": {"op": ["seq"]}, "fixed": {**HOT, "controller": "dlr"}},
        {"vary": {"op": ["write"]}, "fixed": {"scenario": "none", "controller": "default"}},
    )
    argv = [sys.executable, "-m", "hotbed.cli", "run", str(path), "--testbed", deployed.name]
    argv += ["--figure", "1", "--artifacts", str(path.parent / "artifacts")]
    done = room(argv)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert [run.parameters["op"] for run in folders(path).values()] == ["seq"]
    result = go(path, deployed)
    assert result.ok, result.sentence
    assert (result.already_done, result.ran) == (1, 1)
    found = folders(path)
    assert len(found) == 2
    for folder, run in found.items():
        assert_whole(folder, run, deployed)
    assert_clean(deployed)
    assert go(path, deployed).ran == 0
