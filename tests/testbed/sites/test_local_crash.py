"""`hotbed up` killed at any moment: `hotbed down --all` finds all leftovers."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.sites.local import image
from tests.testbed.sites.local_support import (
    RACKED,
    SMALL,
    STATE,
    break_node,
    everything_on_the_machine,
    local_site,
    places,
)

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]

KILLS = 4
LONGEST_S = 4.0
"""Slightly longer than `up` of the small spec, including the start of Python."""


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    site = local_site()
    for name in site.names():
        site.release(name)
    yield
    for name in site.names():
        site.release(name)


def start(*arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    if arguments[0] == "up":
        arguments += ("--suite", image.DEFAULT_SUITE)  # the child knows no HOTBED_SUITE
    return subprocess.Popen(
        [sys.executable, "-m", "hotbed.cli", *map(str, arguments)],
        env={**os.environ, "HOTBED_STATE": str(STATE), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> str:
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err.decode()[-500:]
    return out.decode()


def kill_after(process: subprocess.Popen[bytes], delay_s: float) -> None:
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)


def test_kill_9_at_any_moment_of_up(spec_file: Path) -> None:
    """Disks with a scratch part alternate with racks with whole disks."""
    image.ensure(places().cache, image.DEFAULT_SUITE)
    for part in range(KILLS):
        spec_file.write_text((SMALL, RACKED)[part % 2])
        delay_s = LONGEST_S * (part + random.random()) / KILLS
        kill_after(start("up", spec_file), delay_s)
        finish(start("down", "--all"))
        assert everything_on_the_machine() == [], f"killed after {delay_s:.3f} s"
    assert len(json.loads(finish(start("up", spec_file, "--json")))["nodes"]) == 4
    finish(start("exec", "all", "--", "true"))
    finish(start("down"))
    finish(start("down", "--all"))
    assert everything_on_the_machine() == []


def test_what_was_started_on_nodes_ends_with_the_command(spec_file: Path) -> None:
    """Every node runs a shell and the command that the shell waits for."""
    finish(start("up", spec_file))
    for verb, nodes, end in (("exec", "all", signal.SIGTERM), ("ssh", "osd0", signal.SIGINT)):
        process = start(verb, nodes, "--", "echo; sleep 12345; echo")
        assert process.stdout is not None
        for _ in range(3 if nodes == "all" else 1):
            process.stdout.readline()
        process.send_signal(end)
        process.communicate(timeout=30)
        assert process.returncode != 0
        finish(start("exec", "all", "--", "timeout 30 pidwait -x sleep; [ $? != 124 ]"))


def test_a_killed_up_is_resumed(spec_file: Path) -> None:
    image.ensure(places().cache, image.DEFAULT_SUITE)
    process = start("up", spec_file)
    nodes = STATE / "testbeds" / "small" / "nodes"
    while process.poll() is None and not list(nodes.glob("*/nspawn.pid")):
        time.sleep(0.02)
    kill_after(process, 0.0)
    status = json.loads(finish(start("status", "small", "--json")))
    assert status["state"] == "building"
    finish(start("up", spec_file))
    status = json.loads(finish(start("status", "small", "--json")))
    assert status["state"] == "ready"


def test_half_dead_nodes_without_any_record_are_found(spec_file: Path) -> None:
    finish(start("up", spec_file))
    break_node(local_site(), "small", "osd0", "disk gone")
    break_node(local_site(), "small", "osd1", "node gone")
    (STATE / "testbeds" / "small" / "record.json").unlink()
    finish(start("down", "--all"))
    assert everything_on_the_machine() == []


def test_two_testbeds_and_one_goes(spec_file: Path) -> None:
    finish(start("up", spec_file))
    finish(start("up", spec_file, "--name", "small-b"))
    ambiguous = start("exec", "all", "--", "true")
    _, err = ambiguous.communicate(timeout=30)
    assert ambiguous.returncode == 2
    assert "small, small-b" in err.decode()
    finish(start("down", "small"))
    finish(start("exec", "all", "--", "true"))
    assert [each["name"] for each in json.loads(finish(start("status", "--json")))] == ["small-b"]
    finish(start("down", "--all"))
    assert everything_on_the_machine() == []


def test_a_build_keeps_nobodys_disks_and_killed_leaves_nothing(spec_file: Path) -> None:
    cache = Path("/var/cache/hotbed-tests")
    finish(start("up", spec_file, "--name", "small-b"))
    try:
        process = start("up", spec_file, HOTBED_CACHE=str(cache))
        end = time.monotonic() + 30
        while not list(cache.glob("roots/.building-*/root/debootstrap")):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)
        finish(start("down", "small-b"))  # a build in progress keeps none of its disks
        kill_after(process, 0.5)
        time.sleep(0.5)
        assert not _mentioning(str(cache))
        assert not image.ready(cache, image.DEFAULT_SUITE)
        assert not [line for line in Path("/proc/mounts").read_text().splitlines()
                    if str(cache) in line]  # fmt: skip
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def _mentioning(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in line:
                found.append(f"{entry.name} {line!r}")
    return found
