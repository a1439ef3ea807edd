"""Refusal of every verb that would change a testbed while a campaign holds the testbed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigns.engine.lock import path_in
from hotbed import cli, exit_codes
from testbed import client
from testbed.deploy import deployment
from tests.hotbed.runner import hotbed
from tests.hotbed.test_testbed_verbs import SPEC
from tests.testbed.fake_site import FakeSite

ROOT = Path(__file__).parents[2]
# Process of a campaign. It ends cleanly on SIGINT, like an engine, even if SIGINT was ignored.
HOLDER = """
import signal, sys, time
from pathlib import Path
from campaigns.engine.lock import Lock
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with Lock(Path(sys.argv[1]), "the testbed small"):
        print(flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    Path(sys.argv[2]).write_text("put back")
"""
SPEC_FILE, TOPOLOGY, WORKLOAD = "small.yaml", "topology.yaml", "workload.xml"
CHANGING = {
    "up": (SPEC_FILE,),
    "down": (),
    "deploy": (),
    "snapshot save": ("more",),
    "snapshot restore": ("clean",),
    "snapshot delete": ("clean",),
    "store stop": (),
    "store start": ("osd0",),
    "control start": ("dlr",),
    "control stop": (),
    "calibrate signal": (),
    "cosbench run": (WORKLOAD, "--node", "admin"),
    "pm apply": (TOPOLOGY,),
    "pm profile": ("osd", "--out", "profile.json", "--node", "osd0"),
    "swift layout": ("static",),
    "swift share": ("small", "--proxy-cores", "1"),
    "swift workers": ("small", "2"),
    "swift map": ("a", "small"),
    "swift machine": ("osd0", "small"),
    "swift add-storage": ("osd0", "small"),
    "swift remove-storage": ("osd0",),
    "swift replicate": (),
    "twochoice bench": (),
    "twochoice remove": (),
}
# These take the lock in the engine, only read, run the operator's input, or mark a campaign's run.
OTHERS = {
    *("run", "rerun", "compare", "top", "ssh", "exec", "logs", "snapshot list", "control status"),
    *("control log", "swift status", "twochoice status", "ursa plan", "ui"),
    # Made during a campaign too: they are in its runs' provenance.
    *(f"fault {word}" for word in ("link", "disk", "osd", "mon", "node", "clear", "list")),
    *("load start", "load stop"),
}


def verbs_of_testbeds(command: Any, name: str = "") -> Iterator[str]:
    for word, each in getattr(command, "commands", {}).items():
        yield from verbs_of_testbeds(each, f"{name} {word}".strip())
    if any(parameter.name == "testbed" for parameter in command.params):
        yield name


def test_no_verb_of_testbeds_is_forgotten():
    found = set(verbs_of_testbeds(cli.command(cli.build())))
    assert found == (CHANGING.keys() | OTHERS) - {"up", "down"}


@pytest.fixture
def site(
    site: FakeSite,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> FakeSite:
    """Return the site with a testbed that has a snapshot."""
    monkeypatch.chdir(tmp_path)
    Path(SPEC_FILE).write_text(SPEC)
    assert hotbed("up", SPEC_FILE) == 0
    site.snapshot("small", "clean")
    capsys.readouterr()
    return site


@pytest.fixture
def holder(site: FakeSite, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    lock = path_in(site.folder("small"))
    words = [sys.executable, "-c", HOLDER, str(lock), str(tmp_path / "ended")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_it_is_refused_and_says_who_holds_the_testbed(site, holder, monkeypatch, capsys):
    from campaigns.papers.prioritymeister import apply
    from campaigns.papers.twochoice import bench

    assert hotbed("cosbench", "xml", "A", "--out", WORKLOAD) == 0
    for name in ("bench_testbed", "refuse"):
        monkeypatch.setattr(bench, name, lambda *_: None)
    for module, name in ((deployment, "bring"), (apply, "profile_device"), (bench, "run")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("the testbed was changed"))
    for name in ("provision", "release", "snapshot", "restore", "delete_snapshot"):
        monkeypatch.setattr(site, name, lambda *_, **__: pytest.fail("the testbed was changed"))
    monkeypatch.setattr(client.AgentClient, "call", lambda *_, **__: pytest.fail("agent asked"))
    for verb, words in CHANGING.items():
        assert hotbed(*verb.split(), *words) == exit_codes.EXIT_USER, verb
        said = " ".join(capsys.readouterr().err.split())
        assert f"kill -INT {holder.pid}" in said, verb
        assert (f"hotbed {verb} small --force" in said) == (verb == "down")
    assert holder.poll() is None
    held = sorted(path.name for path in site.folder("small").iterdir())
    assert held == ["campaign.lock", "spec.json"]


def test_with_two_testbeds_every_verb_says_how_to_name_one(site, capsys):
    assert hotbed("up", SPEC_FILE, "--name", "second") == 0
    assert hotbed("cosbench", "xml", "A", "--out", WORKLOAD) == 0
    asking = {"ssh": ("admin",), "exec": ("all", "--", "true"), "logs": ("admin",), "top": ()}
    asking |= dict.fromkeys(("snapshot list", "control status", "swift status"), ())
    asking |= {"control log": ("dlr",), "twochoice status": ()}
    for verb, words in (CHANGING | asking).items():
        if verb == "up":
            continue
        capsys.readouterr()
        assert hotbed(*verb.split(), *words) == exit_codes.EXIT_USER, verb
        said = " ".join(capsys.readouterr().err.split())
        assert "allowed: second, small" in said, verb
        way = f"hotbed {verb} second" if verb in ("down", "deploy") else "--testbed second"
        assert f"`{way}`" in said, verb


def test_down_by_force_ends_the_holder_cleanly_first(site, holder, tmp_path):
    assert hotbed("down", "--force") == 0
    assert (tmp_path / "ended").read_text() == "put back"
    assert site.names() == []


def test_it_goes_ahead_after_a_holder_that_was_killed(site, holder):
    holder.kill()
    holder.wait()
    assert hotbed("snapshot", "delete", "clean") == 0
    assert site.snapshots("small") == ()
