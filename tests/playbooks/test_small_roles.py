"""Scripts and templates of the roles ceph (ceph.conf), hostname, radosgw and swift."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.plugins.filter.core import FilterModule
from jinja2 import Environment

from tests.errors import raises

SETTINGS = {"global": {"ms_bind_ipv4": True}, "osd": {"osd_max_backfills": 1}}
OVERRIDE = "osd_mclock_override_recovery_settings"


def ceph_conf(root: Path, **variables: Any) -> list[str]:
    role = root / "playbooks/roles/ceph"
    made = Environment(trim_blocks=True)  # Ansible's settings
    made.filters["combine"] = FilterModule().filters()["combine"]
    known = {
        "ceph_objectstore": "bluestore",
        "ceph_default_settings": SETTINGS,
        "ceph_mclock_settings": {OVERRIDE: True},
        "ceph_settings": {},
    }
    template = made.from_string((role / "templates/ceph.conf.j2").read_text())
    return [line for line in template.render(known | variables).splitlines() if line]


@pytest.mark.parametrize("report", [None, {"ceph_major": None}, {"ceph_major": 16}])
def test_what_pacific_does_not_know_is_not_in_it(root, report):
    more = {} if report is None else {"validate_report": report}
    lines = ceph_conf(root, **more)
    assert lines[1:] == ["[global]", "ms_bind_ipv4 = true", "[osd]", "osd_max_backfills = 1"]


@pytest.mark.parametrize("major", [17, 20])
def test_settings_of_recovery_are_in_force_under_mclock(root, major):
    report = {"ceph_major": major}
    assert f"{OVERRIDE} = true" in ceph_conf(root, validate_report=report)
    given = {"osd": {OVERRIDE: False}}
    lines = ceph_conf(root, validate_report=report, ceph_settings=given)
    assert f"{OVERRIDE} = false" in lines


def test_the_old_name_comes_back(script, tmp_path, monkeypatch):
    module = script("hostname", "hostname")
    now = ["leased-17"]
    (tmp_path / "cloud").mkdir()
    monkeypatch.setattr(module, "BEFORE", tmp_path / "before")
    monkeypatch.setattr(module, "CLOUD", tmp_path / "cloud" / "keep.cfg")
    monkeypatch.setattr(module.socket, "gethostname", lambda: now[0])
    monkeypatch.setattr(module, "call", lambda name: now.__setitem__(0, name))

    assert len(module.name_it("osd0")) == 2
    assert module.name_it("osd0") == []
    assert now == ["osd0"]
    assert (tmp_path / "cloud" / "keep.cfg").read_text() == "preserve_hostname: true\n"
    assert len(module.undo()) == 2
    assert now == ["leased-17"] and module.undo() == []
    assert list(tmp_path.rglob("*.cfg")) == []


Load = Callable[[str, str], ModuleType]


class FakeAdmin:
    """radosgw-admin with users in memory."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, str]] = {}
        self.code = 22
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self.asked.append(arguments)
        name = arguments[3]
        if arguments[1] == "create":
            number = len(self.users)
            self.users[name] = {"access_key": f"A{number}", "secret_key": f"S{number}"}
        elif name not in self.users:
            return self.code, "", "could not fetch user info: no user info saved\n"
        return 0, json.dumps({"user_id": name, "keys": [self.users[name]]}), ""


@pytest.fixture
def users(script):
    return script("radosgw", "users")


def test_users_are_made_once(users):
    admin = FakeAdmin()
    first = users.ensure(admin, ["small", "large"])
    assert first["keys"]["large"] == {"accesskey": "A1", "secretkey": "S1"}
    assert first["changed"] == ["user small made", "user large made"]
    again = users.ensure(admin, ["small", "large"])
    assert again == {"keys": first["keys"], "changed": []}
    assert not any("S0" in word for asked in admin.asked for word in asked)


def test_what_fails_is_reported(users):
    admin = FakeAdmin()
    admin.code = 5
    for name, said in (("small", "user small cannot be asked"), ("Big one", "'Big one'")):
        with raises(users.Failed, said):
            users.ensure(admin, [name])
    with raises(users.Failed, "'small\\n'"):
        users.ensure(admin, ["small\n"])
    with raises(users.Failed, "user small has no keys"):
        users.user(lambda *_: (0, "{}", ""), "small")

    def refuses(url: str) -> None:
        raise ConnectionRefusedError("refused")

    with raises(users.Failed, "http://x:7480/"):
        users.wait("http://x:7480/", -1.0, refuses)
    users.wait("http://x:7480/", -1.0, lambda url: None)


def test_users_are_made_when_gateways_serve_and_clients_are_reported_after(root):
    """This is the order of the plays; only clients of a Ceph receive a key."""
    plays = yaml.safe_load((root / "playbooks" / "site.yml").read_text())
    used = [
        (play["hosts"], role)
        for play in plays
        for role in (
            *(one["role"] for one in play.get("roles", ())),
            *(
                task["ansible.builtin.import_role"]["name"]
                for task in play.get("tasks", ())
                if "ansible.builtin.import_role" in task
            ),
        )
        if role in ("ceph", "agent", "radosgw")
    ]
    ceph = next(place for place, (_, role) in enumerate(used) if role == "ceph")
    mine = [place for place, (_, role) in enumerate(used) if role == "radosgw"]
    assert [used[place][0] for place in mine] == ["rgws", "clients:!nfs:!files:!swift"]
    assert ceph < mine[0] < mine[1]


HERE = "{}.{}-{}".format(*sys.version_info[:2], platform.machine())


@pytest.fixture
def prepare(script, tmp_path, monkeypatch):
    module = script("swift", "prepare")
    monkeypatch.setattr(module, "LINK", tmp_path / "link")
    monkeypatch.setattr(module, "run", lambda *argv, check=True: "")
    return module


def wanted(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "digest": "abc",
        "packages": True,
        "platform": HERE,
        "archive": str(folder / "packages.tar"),
        "venv": str(folder / "venv"),
        "etc": str(folder / "etc/hotbed/swift"),
        "user": "root",
        "devices": str(folder / "srv"),
        "disks": [],
        "min_bytes": 1,
        "label": "hotbed-swift",
        "wipe": False,
        **changes,
    }


@pytest.fixture
def said(prepare, capsys, monkeypatch):
    """Return a function that gives the script's answer to a verb."""

    def said(verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["-", verb, json.dumps(asked)])
        prepare.main()
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return said


def test_nodes_that_run_no_swift_get_no_packages(said, tmp_path):
    """Clients have only the daemon, which is standard library: any Python is enough."""
    whole = wanted(tmp_path)
    found = said("look", whole)
    assert found == {"problems": [], "needs_packages": True}
    other = said("look", whole | {"platform": "3.9-riscv"})
    assert "Swift's packages are for 3.9-riscv" in other["problems"][0]
    client = wanted(tmp_path, packages=False, platform="3.9-riscv")
    found = said("look", client)
    assert found == {"problems": [], "needs_packages": False}
    made = said("make", client)
    assert made["changed"] == [f"{client['etc']} made", f"{tmp_path / 'link'} made"]
    assert not Path(client["venv"]).exists()
    assert Path(client["etc"]).stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "link").readlink() == Path(client["etc"])
    assert said("make", client) == {"changed": []}


def test_a_link_to_another_swifts_settings_is_not_taken(said, tmp_path):
    ours, link = wanted(tmp_path), tmp_path / "link"
    link.symlink_to(ours["etc"])  # from an earlier deployment
    assert said("look", ours)["problems"] == []
    for other in (tmp_path, tmp_path / "gone"):
        link.unlink()
        link.symlink_to(other)
        (problem,) = said("look", ours)["problems"]
        assert "has a Swift of its own" in problem
