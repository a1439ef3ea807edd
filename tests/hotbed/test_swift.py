"""`hotbed swift`: its requests to the agent, and its output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from typer.testing import Result

from schemas.errors import UserError
from tests.hotbed.runner import Runner

STATUS: dict[str, Any] = {
    "state": {
        "layout": "static",
        "proxies": {"proxy0": "small", "proxy1": "large"},
        "tenants": {"a": ["small", "large"]},
    },
    "microstores": {
        "stores": [
            {
                "name": "small",
                "resources": {"proxy_cores": 0.4, "storage_cores": 0.6, "network": 25e6},
                "utilization": {"proxy_cpu": 0.5, "network": 0.25},
                "slots": [],
            }
        ],
        "tenants": [
            {"name": "a", "requests_s": 12.5, "bytes_s": 2e6, "failed_s": 0.0}
            | {"mean_latency_s": 0.05, "p95_latency_s": None}
        ],
    },
    "down": {"storage0": ["hotbed-swift-object-small.service"]},
    "lost": {"storage1": "is away"},
}
EFFECT = {"ok": True, "message": "done", "seconds": 1.5, "detail": {"requests": 8, "failed": 2}}


class FakeAgent:
    def __init__(self, effect: Mapping[str, Any] = EFFECT) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.effect = effect

    def call(self, verb: str, payload: Any = None, *, timeout_s: float = 60.0) -> Any:
        self.calls.append((verb, payload))
        if verb == "swift-status":
            return STATUS
        return {"seconds": 0.25} if verb == "swift-layout" else [self.effect]


@pytest.fixture
def agent(reach: Callable[[object], None]) -> FakeAgent:
    found = FakeAgent()
    reach(found)
    return found


def hotbed(*arguments: str) -> Result:
    return Runner().run(["swift", *arguments])


def test_status_shows_shares_use_tenants_and_what_is_amiss(agent):
    said = hotbed("status").output
    row = next(line for line in said.splitlines() if line.strip().startswith("small"))
    assert row.split() == ["small", "0.40", "0.60", "200", "50%", "-", "25%", "-", "proxy0"]
    tenant = next(line for line in said.splitlines() if line.strip().startswith("a "))
    assert tenant.split() == ["a", "small,", "large", "12.5", "2.0", "0.0", "50", "-"]
    assert "hotbed-swift-object-small.service" in said
    assert "storage1: is away" in said
    assert json.loads(hotbed("status", "--json").output) == STATUS


def test_changes_are_asked_for_in_the_agents_units(agent):
    def act(**action: Any) -> tuple[str, Any]:
        return "swift-act", {"actions": [action]}

    said = hotbed("share", "small", "--proxy-cores", "0.6", "--network", "120Mbit").output
    assert "small has its share after 0.25 s" in said
    said = hotbed("workers", "small", "2").output
    assert "1.50 s; 2 of 10 requests failed" in said
    hotbed("map", "a", "large")
    hotbed("machine", "proxy2", "small")
    hotbed("machine", "proxy2", "--free")
    hotbed("add-storage", "s2", "small", "--disk", "d1")
    assert agent.calls == [
        ("swift-layout", {"microstores": {"small": {"proxy_cores": 0.6, "network": 15e6}}}),
        act(action="workers", microstore="small", workers=2),
        act(action="MapTenant", tenant="a", microstore="large"),
        *(act(action="AssignMachine", machine="proxy2", microstore=to) for to in ("small", "")),
        act(action="add-storage", node="s2", microstore="small", disks=["d1"]),
    ]
    agent.calls.clear()
    for arguments in (["proxy2"], ["proxy2", "small", "--free"]):
        found = hotbed("machine", *arguments)
        assert isinstance(found.exception, UserError)
        assert "name its microstore, or give --free" in str(found.exception)
    assert not agent.calls
    agent.effect = EFFECT | {"ok": False, "message": "node storage2 still holds 3 objects"}
    found = hotbed("remove-storage", "storage2")
    assert (found.exit_code, "still holds 3 objects" in found.output) == (1, True)
