"""Engine's side of enforcement, with an agent that records its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from schemas.errors import StoreError, UserError
from testbed.deploy.enforcement import NfsEnforcement, storage_by_server
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.fake_site import FakeSite

DISK = {"size": "2GiB", "scratch": 0}
GROUPS = [
    {"name": "admin", "roles": ["admin"]},
    {"name": "s", "count": 2, "roles": ["nfs"], "disk": DISK},
    {"name": "c", "count": 2, "roles": ["client"]},
]
FLOW = {"workload": "web", "level": 1}
NETWORK = {
    "mode": "priority",
    "hosts": {"c0": {"rate": 1.0, "flows": [FLOW]}, "s1": {"rate": 1.0, "flows": []}},
}


class FakeAgent:
    """Agent that answers every action with success except on `broken` nodes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.broken: set[str] = set()
        self.differences: dict[str, list[str]] = {}

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        given = payload or {}
        self.calls.append((verb, given))
        if verb == "nfs-check":
            return {"admin": [], **self.differences}
        if verb == "nfs-act":
            return [
                {
                    "ok": self._where(action) not in self.broken,
                    "message": f"{self._where(action)} is broken",
                    "detail": {"changed": 1.0},
                }
                for action in given["actions"]
            ]
        return {"text": "page", "asked": given}

    @staticmethod
    def _where(action: Mapping[str, Any]) -> str:
        return str(action.get("server") or action["host"])

    def actions(self, place: int = -1) -> list[tuple[str, str, Any]]:
        """Return kind, node and presence of parameters of one call's actions."""
        return [
            (one["action"], self._where(one), one["parameters"])
            for one in self.calls[place][1]["actions"]
        ]


@pytest.fixture
def testbed():
    store = {"kind": "nfs"}
    return FakeSite().provision(
        TestbedSpec.model_validate({"name": "t", "groups": GROUPS, "store": store})
    )


@pytest.fixture
def agent():
    return FakeAgent()


@pytest.fixture
def enforcement(testbed, agent):
    return NfsEnforcement(testbed, agent)  # type: ignore[arg-type]


def test_a_network_that_is_left_alone_or_removed_gets_nothing(enforcement, agent):
    enforcement.network_apply({**NETWORK, "mode": "fifo"})
    assert {parameters for _, _, parameters in agent.actions()} == {None}
    enforcement.remove()
    assert {parameters for _, _, parameters in agent.actions()} == {None}
    assert [kind for kind, _, _ in agent.actions()] == ["put-parameters"] * 2 + ["set-network"] * 5


def test_what_fails_at_one_host_is_taken_away_from_all(enforcement, agent):
    agent.broken.add("c0")
    with raises(StoreError, "c0 is broken"):
        enforcement.network_apply(NETWORK)
    assert len(agent.actions()) == 5
    assert {parameters for _, _, parameters in agent.actions()} == {None}


def test_names_that_the_testbed_does_not_have_are_reported(enforcement):
    with raises(UserError, "'web0'"):
        enforcement.network_apply({"mode": "priority", "hosts": {"web0": {"flows": [FLOW]}}})
    with raises(UserError, "s0"):
        storage_by_server({"storage": {"s0:a": {}, "s0:b": {}}})
    spec = TestbedSpec.model_validate({"name": "t", "groups": GROUPS[:1], "store": None})
    with pytest.raises(UserError):
        NfsEnforcement(FakeSite().provision(spec), FakeAgent())  # type: ignore[arg-type]
