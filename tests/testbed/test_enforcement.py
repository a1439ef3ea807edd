"""Engine's side of enforcement, with an agent that records its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from schemas.errors import StoreError, UserError
from testbed.deploy.enforcement import NfsEnforcement, storage_by_server
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.papers.live_fakes import RecordingAgent
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


def where(action: Mapping[str, Any]) -> str:
    return str(action.get("server") or action["host"])


class Hosts(RecordingAgent):
    """Agent that carries out every action except on the node `broken`."""

    broken = ""

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        super().call(verb, payload)
        return [
            {
                "ok": where(action) != self.broken,
                "message": f"{where(action)} is broken",
                "detail": {},
            }
            for action in (payload or {})["actions"]
        ]

    def last(self) -> list[tuple[str, Any]]:
        """Return kind and parameters of the last call's actions."""
        return [(one["action"], one["parameters"]) for one in self.calls[-1][1]["actions"]]


@pytest.fixture
def agent():
    return Hosts()


@pytest.fixture
def enforcement(agent):
    spec = TestbedSpec.model_validate({"name": "t", "groups": GROUPS, "store": {"kind": "nfs"}})
    return NfsEnforcement(FakeSite().provision(spec), agent)


def test_a_network_that_is_left_alone_or_removed_gets_nothing(enforcement, agent):
    enforcement.network_apply({**NETWORK, "mode": "fifo"})
    assert agent.last() == [("set-network", None)] * 5
    enforcement.remove()
    assert agent.last() == [("put-parameters", None)] * 2 + [("set-network", None)] * 5


def test_what_fails_at_one_host_is_taken_away_from_all(enforcement, agent):
    agent.broken = "c0"
    with raises(StoreError, "c0 is broken"):
        enforcement.network_apply(NETWORK)
    assert agent.last() == [("set-network", None)] * 5


def test_names_that_the_testbed_does_not_have_are_reported(enforcement):
    with raises(UserError, "'web0'"):
        enforcement.network_apply({"mode": "priority", "hosts": {"web0": {"flows": [FLOW]}}})
    with raises(UserError, "s0"):
        storage_by_server({"storage": {"s0:a": {}, "s0:b": {}}})
    spec = TestbedSpec.model_validate({"name": "t", "groups": GROUPS[:1], "store": None})
    with raises(UserError, "no NFS server"):
        NfsEnforcement(FakeSite().provision(spec), Hosts())
