"""Verbs up, down, extend, status, deploy, ssh, exec and snapshot on the fake site. A script that
runs the command here replaces ssh.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from campaigns.engine.display import CampaignResult
from hotbed import completion
from hotbed.exit_codes import EXIT_LEASE, code_of, stopped
from schemas.errors import UserError
from testbed import choose, doctor, reach
from testbed import client as agent
from testbed.checks import CheckResult
from testbed.deploy import deployers, deployment
from testbed.deploy.contract import DeploymentPlan
from testbed.deploy.roles import save_spec, spec_of
from testbed.sites.contract import Progress, SiteError, State, Status, Testbed, silent
from testbed.spec import TestbedSpec
from tests.hotbed.runner import Ask, hotbed
from tests.testbed.fake_site import FakeSite

NOW = 1_800_000_000.0
SPEC = """
name: small
store: null
site: {kind: fake}
groups:
  - {name: admin, roles: [admin, client]}
  - {name: osd, count: 2, roles: [osd], disk: {}}
"""
STORED = SPEC.replace("store: null\n", "").replace("[admin, client]", "[admin, mon, mgr, client]")

SSH = """#!/bin/sh
while [ "$1" != -- ]; do address=$1; shift; done
case $FAIL_ON in ?*) echo "$address" | grep -q "$FAIL_ON" && exit 3;; esac
exec sh -c "$2"
"""


@pytest.fixture
def site(site: FakeSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSite:
    """Return the site; a script replaces ssh to its nodes."""
    monkeypatch.setattr(reach, "control_dir", lambda name, directory: tmp_path / "control")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return site


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SPEC)
    return path


def test_up_status_snapshots_down(site, spec_file, ask):
    def report(*words: object) -> Any:
        return json.loads(ask(*words, "--json").out)

    assert report("up", spec_file, "--dry-run")["nodes"] == 3
    assert "3 nodes, 0 node-hours; in memory" in ask("up", spec_file, "--dry-run").out
    assert site.names() == []
    up = report("up", spec_file, "--name", "mine")
    assert [node["name"] for node in up["nodes"]] == ["admin", "osd0", "osd1"]
    (status,) = report("status")
    assert (status["name"], status["state"]) == ("mine", "ready")
    first, *rest = ask("status", "mine").out.splitlines()
    assert first == "testbed mine: ready, 3 of 3 nodes; no store deployed"
    assert "osd0 to osd1" in "\n".join(rest)
    ask("snapshot", "save", "clean")
    assert report("snapshot", "list") == ["clean"]
    ask("snapshot", "restore", "clean")
    assert "allowed: clean" in ask("snapshot", "restore", "dirty", code=2).err
    assert report("down") == {"removed": ["mine"]}
    assert "nothing to remove" in ask("down", "--all").out


def test_what_was_interrupted_says_in_a_line_how_to_resume(site, spec_file, ask, monkeypatch):
    ask("up", spec_file)
    site.snapshot("small", "clean")
    for ending, code in ((KeyboardInterrupt(), 130), (SystemExit(143), 143)):
        ends = mock.Mock(side_effect=ending)
        for owner, name in ((site, "provision"), (deployment, "bring"), (site, "restore")):
            monkeypatch.setattr(owner, name, ends)
        for words in (["up", str(spec_file)], ["deploy"], ["snapshot", "restore", "clean"]):
            monkeypatch.setattr("sys.argv", ["/bin/hotbed", *words])
            *_, last = ask(*words, code=code).err.splitlines()
            assert last.endswith(shlex.join(["hotbed", *words]))


def test_down_all_goes_on_after_one_that_cannot_be_removed(site, spec_file, ask, monkeypatch):
    for name in ("first", "away", "last"):
        ask("up", spec_file, "--name", name)
    release = site.release

    def releases(name: str, progress: Progress = silent) -> None:
        if name == "away":
            raise SiteError("host h1 does not answer.")
        release(name, progress)

    monkeypatch.setattr(site, "release", releases)
    out, error = ask("down", "--all", "--json", code=1)
    assert json.loads(out) == {"removed": ["first", "last"]}
    assert "1 of 3 testbeds" in error
    assert site.names() == ["away"]
    assert ask("down", code=1).err.count("host h1 does not answer") == 1


def test_doctor_looks_for_open_back_ends_where_a_testbed_is_up(site, spec_file, ask, monkeypatch):
    opened = {"osd0": CheckResult("peers", "ports 873", False, "no rule for 873", "hotbed deploy")}
    monkeypatch.setattr(doctor, "diagnose", lambda *_: [])
    monkeypatch.setattr(doctor, "peer_findings", lambda testbed: opened)
    ask("doctor", "--site", spec_file)
    ask("up", spec_file)
    (machine,) = json.loads(ask("doctor", "--site", spec_file, "--json", code=1).out)["machines"]
    assert (machine["node"], machine["findings"][0]["ok"]) == ("osd0", False)
    opened.clear()
    ask("doctor", "--site", spec_file)


def test_one_that_cannot_be_asked_does_not_hide_the_others(site, spec_file, ask, monkeypatch):
    for name in ("away", "there"):
        ask("up", spec_file, "--name", name)
    status = site.status

    def asked(name: str) -> Status:
        if name == "away":
            raise SiteError("the cloud does not answer.", retry_after_s=30.0)
        return status(name)

    monkeypatch.setattr(site, "status", asked)
    away, there = json.loads(ask("status", "--json").out)
    assert (away["state"], there["state"]) == ("failed", "ready")
    assert away["detail"].endswith("the cloud does not answer")
    assert "the cloud does not answer" in ask("status", "away", code=1).out


def test_a_users_mistakes_are_one_sentence(site, spec_file, ask, monkeypatch):
    for words, said in (
        (("down", "gone"), "no testbed 'gone'"),
        (("down", "gone", "--all"), "not both"),
        (("up", spec_file, "--name", "Not A Name"), "--name"),
        (("up", "missing.yaml"), "missing.yaml"),
        (("exec", "all", "--", "true"), "hotbed up SPEC"),
    ):
        assert said in ask(*words, code=2).err
    # A name is one testbed's on all sites.
    other = FakeSite()
    monkeypatch.setattr(other, "kind", "other", raising=False)
    monkeypatch.setattr(choose, "existing", lambda: [(other, "small")])
    error = ask("up", spec_file, code=2).err
    assert "'small' is there already" in error
    assert "--name" in error
    assert site.names() == []


def test_exec_prefixes_lines_and_fails_when_one_does(site, spec_file, ask, monkeypatch):
    ask("up", spec_file)
    lines = ask("exec", "osd", "--", "echo", "two  words", "$HOME").out.splitlines()
    assert sorted(lines) == ["osd0 | two  words $HOME", "osd1 | two  words $HOME"]
    shown = ask("exec", "admin", "--", "echo a; echo b >&2")
    assert (shown.out, shown.err) == ("admin | a\n", "admin | b\n")
    osd1 = site.provision(site._kept["small"].spec).node("osd1").address
    monkeypatch.setenv("FAIL_ON", osd1)
    assert ask("exec", "all", "--", "true", code=1).err.strip() == "osd1  | exit code 3"


def test_logs_of_a_unit_by_its_short_name(site, spec_file, ask, tmp_path):
    ask("up", spec_file)
    programs = tmp_path / "bin"
    listed = (
        "ceph-osd@3.service loaded active running Ceph object storage daemon osd.3",
        "ceph-mon@admin.service loaded failed failed Ceph cluster monitor daemon",
        "hotbed-controller@dlr.service loaded active running Hotbed: controller dlr",
    )
    (programs / "systemctl").write_text("#!/bin/sh\ncat << END\n" + "\n".join(listed) + "\nEND\n")
    (programs / "journalctl").write_text(
        "#!/bin/sh\necho \"$@\"; printf '\\033[31mred\\nhotbed-recorder.service\\n'\n"
    )
    for name in ("systemctl", "journalctl"):
        (programs / name).chmod(0o755)
    rows = json.loads(ask("logs", "admin", "--json").out)
    assert [row["name"] for row in rows] == ["osd.3", "mon.admin", "control-dlr", "recorder"]
    assert rows[1]["state"] == "failed (failed)"
    assert "control-dlr" in ask("logs", "admin").out
    for word, unit in (
        ("osd.3", "ceph-osd@3"),
        ("mon", "ceph-mon@admin"),
        ("control-dlr", "hotbed-controller@dlr"),
        ("ceph-osd@3.service", "ceph-osd@3"),
    ):
        first, second, _ = ask("logs", "admin", word, "--lines", "7", "-f").out.splitlines()
        assert f"--lines=7 --follow --unit={unit}.service" in first
        assert second == "\\x1b[31mred"
    error = ask("logs", "admin", "osd.4", code=2).err
    assert "did you mean osd.3?" in error
    assert "more than one node" in ask("logs", "osd", code=2).err
    assert completion.units(SimpleNamespace(params={"node": "osd0"}, args=[]), "osd") == ["osd.3"]


def test_ssh_hands_over(site, spec_file, ask, monkeypatch):
    ask("up", spec_file)
    seen: list[str] = []

    def execvp(program: str, argv: list[str]) -> None:
        seen[:] = argv
        raise SystemExit(0)

    monkeypatch.setattr(os, "execvp", execvp)
    address = site.provision(site._kept["small"].spec).node("osd1").address
    ask("ssh", "osd1")
    assert seen[-1] == f"root@{address}"
    assert "StrictHostKeyChecking=yes" in seen
    ask("ssh", "osd1", "printf", "'%s-'", "a", "'b c' | cat")
    assert f"root@{address}" in seen
    assert subprocess.check_output(["sh", "-c", seen[-1]]) == b"a-b c-"
    assert "more than one node (osd0, osd1)" in ask("ssh", "osd", code=2).err


@pytest.mark.parametrize(
    "words",
    [("top", "--once"), *(("control", *verb) for verb in (["stop"], ["status"], ["log", "dlr"]))],
)
def test_looking_and_stopping_work_on_what_is_there(site, spec_file, monkeypatch, words):
    site.fail_after = 2
    assert hotbed("up", spec_file) == 1
    assert hotbed("exec", "admin", "--", "true") == 0
    reached: list[Testbed] = []

    def client(testbed: Testbed) -> None:
        reached.append(testbed)
        raise SiteError("as far as this test goes")

    monkeypatch.setattr(agent, "agent_client", client)
    assert hotbed(*words) == 1
    assert [testbed.name for testbed in reached] == ["small"]
    assert hotbed("control", "start", "dlr") == 2
    assert len(reached) == 1


# -- deploy ----------------------------------------------------------------------------------------


class Scripted:
    """Deployer that records its requests."""

    def __init__(self, kind: str, log: list[tuple[str, str]]) -> None:
        self.kind, self._log = kind, log

    def plan(self, spec: TestbedSpec) -> DeploymentPlan:
        return DeploymentPlan(self.kind, "1", ("a step",), ("a note",))

    def deploy(self, testbed: Testbed, spec: TestbedSpec, *_: object, **__: object) -> Any:
        save_spec(testbed, spec)
        self._log.append(("deploy", self.kind))
        return {"admin": 3}

    def remove(self, testbed: Testbed, spec: TestbedSpec, *_: object, **__: object) -> Any:
        self._log.append(("remove", self.kind))
        return {"admin": 2}


@pytest.fixture
def up(site: FakeSite, spec_file: Path, ask: Ask) -> Testbed:
    """Return a testbed whose spec has a store."""
    spec_file.write_text(STORED)
    ask("up", spec_file)
    found = site.find("small")
    assert found is not None
    return found


def kind_of(testbed: Testbed) -> str:
    return spec_of(testbed).ceph().deployer.kind


def test_a_dry_run_of_a_deployment_does_nothing(up, ask):
    plan = json.loads(ask("deploy", "--deployer", "cephadm", "--dry-run", "--json").out)
    assert plan["deployer"] == "cephadm" and "untested on a live cluster" in plan["notes"][0]
    assert "own: Ceph" in ask("deploy", "--dry-run").out
    assert kind_of(up) == "own"


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ("--deployer rook", ("'rook'", "own, ceph-ansible")),
        ("--remove --deployer own", ("--remove", "--deployer")),
        ("--remove --dry-run", ("--dry-run",)),
        ("--remove --wipe", ("--wipe",)),
        ("--remove --yes-wipe /dev/sdb@osd0", ("--yes-wipe",)),
        ("--yes-wipe /dev/sdb@osd0", ("--yes-wipe", "kind fake", "--wipe")),
        ("--packages", ("--packages", "--remove")),
    ],
)
def test_mistakes_in_a_deployment(up, ask, arguments, facts):
    error = " ".join(ask("deploy", *arguments.split(), code=2).err.split())
    assert all(fact in error for fact in facts)
    assert not deployers.begun(up)


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_a_deployer_that_the_site_refuses_changes_nothing(up, site, monkeypatch, dry_run):
    def plan(spec: TestbedSpec) -> None:
        raise UserError(f"not {spec.ceph().deployer.kind}")

    monkeypatch.setattr(site, "plan", plan)
    assert hotbed("deploy", "--deployer", "cephadm", *dry_run) == 2
    assert kind_of(up) == "own"
    assert not deployers.begun(up)


def test_the_choice_of_a_deployer_is_kept_and_removal_is_by_the_same(up, ask, monkeypatch):
    log: list[tuple[str, str]] = []
    monkeypatch.setattr(deployers, "deployer", lambda kind: Scripted(kind, log))
    ask("deploy", "--deployer", "cephadm", "--no-snapshot")
    assert kind_of(up) == "cephadm"
    assert hotbed("deploy", "--deployer", "ceph-ansible", "--no-snapshot") == 2
    ask("deploy", "--no-snapshot")
    ask("deploy", "--remove")
    ask("deploy", "--deployer", "ceph-ansible", "--no-snapshot")
    by_cephadm = [(verb, "cephadm") for verb in ("deploy", "deploy", "remove")]
    assert log == [*by_cephadm, ("deploy", "ceph-ansible")]


# -- leases ----------------------------------------------------------------------------------------


def leased(monkeypatch: pytest.MonkeyPatch, lease_s: float | None) -> FakeSite:
    """Return a site with a testbed of three nodes, and a lease of so many seconds."""
    site = FakeSite(clock=lambda: NOW, lease_s=lease_s)
    groups = [{"name": "admin", "roles": ["admin"]}]
    groups += [{"name": "client", "count": 2, "roles": ["client"]}]
    site.provision(TestbedSpec.model_validate({"name": "small", "store": None, "groups": groups}))
    monkeypatch.setattr(choose, "kinds", lambda: ("fake",))
    monkeypatch.setattr(choose, "open_site", lambda kind="fake", options=None: site)
    monkeypatch.setattr("time.time", lambda: NOW)
    return site


def test_more_hours(ask, monkeypatch):
    site = leased(monkeypatch, 3600)
    report = json.loads(ask("extend", "small", "2.5", "--json").out)
    ends = {"ends_at_s": NOW + 12600, "ends_in_s": 12600, "node_hours_left": 10.5}
    assert report == {"name": "small", "extended_s": 9000, **ends}
    assert site.status("small").ends_at_s == NOW + 12600
    assert "ends 2027-01-15 12:30 UTC, in 4 h 30" in ask("extend", "small", "1").out
    monkeypatch.setattr(site, "extend", lambda name, seconds: site.status(name))
    error = ask("extend", "small", "1", code=1).err
    assert "is as it was: site fake granted nothing" in error
    known = Status(State.BUILDING, "there is no lease yet")
    monkeypatch.setattr(site, "status", lambda name: known)
    assert "is building (there is no lease yet)" in ask("extend", "small", "1", code=2).err


def test_status_reports_when_it_ends_and_what_is_still_to_come(ask, monkeypatch):
    leased(monkeypatch, 7200)
    assert "2027-01-15 10:00 UTC, in 2 h 00 min" in ask("status").out
    assert "lease ends 2027-01-15 10:00 UTC" in " ".join(ask("status", "small").out.split())
    report = json.loads(ask("status", "small", "--json").out)
    assert (report["ends_in_s"], report["node_hours_left"]) == (7200, 6)
    (row,) = json.loads(ask("status", "--json").out)
    assert row["ends_in_s"] == 7200


def test_a_campaign_that_a_lease_ended_has_an_exit_code_of_its_own():
    missing = (("seq none default (block 0)", "not started"),)
    ended = CampaignResult("tiny", 8, 0, 7, missing, lease="the lease ends soon")
    assert stopped(ended) == EXIT_LEASE == 75
    for result, code in (
        (ended, 75),
        (CampaignResult("tiny", 8, 0, 7, missing, interrupted=True, lease="both"), 130),
        (CampaignResult("tiny", 8, 0, 7, missing), 1),
    ):
        assert code_of(result) == code
    assert code_of(CampaignResult("tiny", 8, 0, 8)) == 0
