"""Users of Ceph's object gateway: created once, with lasting keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.errors import raises

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
def users(script: Load) -> ModuleType:
    return script("radosgw", "users")


def test_users_are_made_once(users: ModuleType) -> None:
    admin = FakeAdmin()
    first = users.ensure(admin, ["small", "large"])
    assert first["keys"]["large"] == {"accesskey": "A1", "secretkey": "S1"}
    assert first["changed"] == ["user small made", "user large made"]
    again = users.ensure(admin, ["small", "large"])
    assert again == {"keys": first["keys"], "changed": []}
    assert not any("S0" in word for asked in admin.asked for word in asked)


def test_what_fails_is_one_sentence(users: ModuleType) -> None:
    admin = FakeAdmin()
    admin.code = 5
    with raises(users.Failed, "user small cannot be asked"):
        users.ensure(admin, ["small"])
    with raises(users.Failed, "'Big one'"):
        users.ensure(admin, ["Big one"])
    with raises(users.Failed, "'small\\n'"):
        users.ensure(admin, ["small\n"])
    with raises(users.Failed, "user small has no keys"):
        users.user(lambda *_: (0, "{}", ""), "small")


def test_a_gateway_that_does_not_answer_is_named(users: ModuleType) -> None:
    def refuses(url: str) -> None:
        raise ConnectionRefusedError("refused")

    with raises(users.Failed, "http://x:7480/"):
        users.wait("http://x:7480/", -1.0, refuses)
    users.wait("http://x:7480/", -1.0, lambda url: None)


def test_users_are_made_when_gateways_serve_and_clients_are_told_after(root: Path) -> None:
    """This is the order of the plays; only clients of a Ceph receive a key."""
    plays = yaml.safe_load((root / "playbooks" / "site.yml").read_text())
    used = [
        (play["hosts"], role)
        for play in plays
        for role in (
            *(one["role"] for one in play.get("roles", ())),
            *(task["ansible.builtin.import_role"]["name"] for task in play.get("tasks", ())),
        )
        if role in ("ceph", "agent", "radosgw")
    ]
    ceph = next(place for place, (_, role) in enumerate(used) if role == "ceph")
    mine = [place for place, (_, role) in enumerate(used) if role == "radosgw"]
    assert [used[place][0] for place in mine] == ["rgws", "clients:!nfs:!files:!swift"]
    assert ceph < mine[0] < mine[1]
