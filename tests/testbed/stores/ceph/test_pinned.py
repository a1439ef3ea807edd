"""Pools pinned to one OSD each, on an in-memory cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.errors import StoreError, UserError
from testbed.stores.ceph import Connection, pinned
from testbed.stores.ceph.pinned import CODE
from tests.errors import raises
from tests.testbed.stores.ceph.fake_rados import FakeRados, Refused


class PinnableRados(FakeRados):
    """Cluster with pools, rules, weight sets and users that are added and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.named = {"replicated_rule": 0}
        self.last = 0
        self.takes: dict[int, str] = {}
        self.weightless: dict[str, set[int]] = {}
        self.users: dict[str, list[str]] = {"client.admin": []}
        self.muted: set[str] = set()
        self.warns = True
        for pool in self.dump["pools"]:
            pool.setdefault("application_metadata", {"rados": {}})

    def state(self) -> str:
        dump = {key: value for key, value in self.dump.items() if key != "epoch"}
        return json.dumps([dump, self.named, sorted(self.weightless), sorted(self.users)])

    def host_osds(self, host: str) -> list[int]:
        node = next(n for n in self.tree["nodes"] if n["name"] == host)
        return sorted(node["children"])

    def pool(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(p for p in self.dump["pools"] if p["pool_name"] == name)
        return found

    def mon_osd_crush_rule_dump(self) -> Any:
        return [{"rule_name": n, "rule_id": number} for n, number in self.named.items()]

    def mon_osd_crush_rule_create_replicated(self, name: str, root: str, type: str) -> str:
        assert type == "osd"
        number = next(n for n in range(99) if n not in self.named.values())
        self.named[name] = number
        self.takes[number] = root
        return self._changed("")

    def mon_osd_crush_weight_set_create(self, pool: str, mode: str) -> str:
        if pool in self.weightless:
            raise Refused(-17, "there is one")
        self.weightless[pool] = set()
        return self._changed("")

    def mon_osd_crush_weight_set_reweight(self, pool: str, item: str, weight: list[float]) -> str:
        assert weight == [0.0]
        self.weightless[pool].add(int(item.removeprefix("osd.")))
        self.place(self.pool(pool))
        return self._changed("")

    def place(self, pool: dict[str, Any]) -> None:
        here = self.host_osds(self.takes[pool["crush_rule"]])
        light = self.weightless.get(pool["pool_name"], set())
        heavy = [osd for osd in here if osd not in light]
        for place in range(pool["pg_num"]):
            self.maps[f"{pool['pool']}.{place:x}"] = [heavy[place % len(heavy)]]

    def mon_osd_crush_rule_rm(self, name: str) -> str:
        number = self.named[name]
        if any(pool["crush_rule"] == number for pool in self.dump["pools"]):
            raise Refused(-16, f"crush rule {name} is in use")
        del self.named[name]
        return self._changed("")

    def mon_osd_pool_create(self, pool: str, pg_num: int, rule: str, **rest: Any) -> str:
        self.last = number = max(self.last, *(p["pool"] for p in self.dump["pools"])) + 1
        made = {
            "pool": number,
            "pool_name": pool,
            "pg_num": pg_num,
            "size": rest["size"],
            "min_size": 1,
            "crush_rule": self.named[rule],
            "application_metadata": {},
        }
        self.dump["pools"].append(made)
        self.place(made)
        return self._changed(f"pool '{pool}' created")

    def mon_osd_pool_set(self, pool: str, var: str, val: str, **_: Any) -> str:
        self.pool(pool)[var] = int(val)
        return self._changed("")

    def mon_osd_pool_application_enable(self, pool: str, app: str, **_: Any) -> str:
        self.pool(pool)["application_metadata"][app] = {}
        return self._changed("")

    def mon_osd_pool_delete(self, pool: str, **_: Any) -> str:
        gone = self.pool(pool)
        self.dump["pools"].remove(gone)
        self.weightless.pop(pool, None)
        for pgid in [pgid for pgid in self.maps if pgid.startswith(f"{gone['pool']}.")]:
            del self.maps[pgid]
        return self._changed("")

    def mon_auth_ls(self) -> Any:
        return {"auth_dump": [{"entity": user} for user in self.users]}

    def mon_auth_get_or_create_key(self, entity: str, caps: list[str]) -> Any:
        self.users.setdefault(entity, caps)
        return {"key": f"secret-{entity}"}

    def mon_auth_rm(self, entity: str) -> str:
        del self.users[entity]
        return ""

    def mon_health(self, detail: str) -> Any:
        small = [p["pool_name"] for p in self.dump["pools"] if p["size"] == 1]
        if not small or not self.warns:
            return {"status": "HEALTH_OK", "checks": {}}
        lines = [{"message": f"pool '{name}' has no replicas configured"} for name in small]
        return {"checks": {CODE: {"detail": lines, "muted": CODE in self.muted}}}

    def mon_health_mute(self, code: str) -> str:
        self.muted.add(code)
        return ""

    def mon_health_unmute(self, code: str) -> str:
        self.muted.discard(code)
        return ""


@pytest.fixture
def raw():
    return PinnableRados()


@pytest.fixture
def connection(raw):
    return Connection(raw, timeout_s=2.0)


def test_what_was_cut_off_is_finished_or_removed(raw, connection):
    before = raw.state()

    def dies(prefix: str) -> None:
        if prefix == "osd pool application enable":
            raise Refused(-110, "cut off")

    raw.before = dies
    with raises(StoreError, "cut off"):
        pinned.pin(connection, "twochoice.", [0, 1])
    raw.before = lambda prefix: None
    pinned.unpin(connection, "twochoice.")
    assert raw.state() == before
    raw.before = dies
    with raises(StoreError, "cut off"):
        pinned.pin(connection, "twochoice.", [0, 1])
    raw.before = lambda prefix: None
    pinned.pin(connection, "twochoice.", [0, 1])
    assert "twochoice" in raw.pool("twochoice.1")["application_metadata"]
    pinned.unpin(connection, "twochoice.")
    assert raw.state() == before


def test_on_a_host_with_several_osds_the_others_weigh_nothing_for_the_pool(raw, connection):
    hosts = [node for node in raw.tree["nodes"] if node["type"] == "host"]
    hosts[0]["children"], hosts[1]["children"], hosts[2]["children"] = [0, 1], [2], []
    before = raw.state()
    pinned.pin(connection, "twochoice.", [0, 1, 2])
    assert raw.weightless == {"twochoice.0": {1}, "twochoice.1": {0}}
    pinned.pin(connection, "twochoice.", [0, 1, 2])
    assert len(raw.sent("osd crush weight-set reweight")) == 2
    pinned.unpin(connection, "twochoice.")
    assert raw.state() == before
    hosts[0]["children"] = [0]
    with raises(UserError, "osd.1 is under no host"):
        pinned.pin(connection, "twochoice.", [1])


def test_an_upmap_that_moves_a_pool_is_reported(raw, connection):
    pinned.pin(connection, "twochoice.", [0])
    raw.maps[f"{raw.pool('twochoice.0')['pool']}.1"] = [2]
    with raises(StoreError, "twochoice.0", "osd.0"):
        pinned.pin(connection, "twochoice.", [0])


def test_others_pools_rules_and_warnings_are_left_alone(raw, connection):
    pinned.pin(connection, "twochoice.", [0])
    raw.muted.clear()
    raw.dump["pools"][0]["size"] = 1  # belongs to a client without permission
    raw.dump["pools"].append(raw.pool("twochoice.0") | {"pool": 99, "pool_name": "twochoice.x"})
    pinned.pin(connection, "twochoice.", [1])
    assert CODE not in raw.muted
    pinned.unpin(connection, "twochoice.")
    assert raw.pool("twochoice.x")
    # The other pool uses the rule, so it stays.
    assert set(raw.named) == {"replicated_rule", "twochoice.0"}


@pytest.mark.parametrize(
    ("prefix", "osds", "said"),
    [
        ("twochoice", [0], "prefix is 'twochoice'"),
        ("a*.", [0], "prefix is"),
        ("twochoice.\n", [0], "prefix is"),
        ("twochoice.", [0, 77], "osd.77"),
    ],
)
def test_bad_input_is_a_sentence(connection, prefix, osds, said):
    with raises(UserError, said):
        pinned.pin(connection, prefix, osds)
