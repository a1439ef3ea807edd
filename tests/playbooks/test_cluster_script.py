"""Script that updates a cluster's maps to the inventory, against monitors of our own."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from tests.errors import raises


class Monitors:
    """Stand-in for librados' `mon_command` on a small OSD map, as in Ceph 16.2."""

    def __init__(self) -> None:
        self.osds: dict[int, str] = {}
        self.keys: dict[str, str] = {}
        self.hosts: dict[str, list[int]] = {}
        self.racks: dict[str, str] = {}  # rack, or "", of every host
        self.rack_names: list[str] = []
        self.rules: list[tuple[str, str]] = [("replicated_rule", "host")]
        self.weights: dict[int, float] = {}
        self.config: dict[str, str] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.min_client = "jewel"
        self.commands = '"osd pg-upmap"'
        self.up = True
        self.seen: list[str] = []

    def mon_command(self, text: str, data: bytes, timeout: int) -> tuple[int, bytes, str]:
        command = json.loads(text)
        prefix = command.pop("prefix")
        command.pop("format", None)
        self.seen.append(prefix)
        try:
            answer = getattr(self, prefix.replace(" ", "_").replace("-", "_"))(command, data)
        except KeyError as error:
            return -errno.EINVAL, b"", f"missing {error}"
        if isinstance(answer, str):
            return 0, answer.encode(), ""
        return 0, json.dumps(answer).encode(), ""

    def osd_dump(self, command: dict[str, Any], data: bytes) -> object:
        rows = [
            {"osd": number, "uuid": uuid, "up": int(self.up), "in": int(self.up)}
            for number, uuid in self.osds.items()
        ]
        return {"osds": rows, "require_min_compat_client": self.min_client}

    def osd_new(self, command: dict[str, Any], data: bytes) -> object:
        assert isinstance(command["id"], int)
        self.osds[command["id"]] = command["uuid"]
        assert not data  # a key of a kind that the release refuses
        return ""

    def auth_ls(self, command: dict[str, Any], data: bytes) -> object:
        return {"auth_dump": [{"entity": entity} for entity in self.keys]}

    def auth_get_or_create_key(self, command: dict[str, Any], data: bytes) -> object:
        assert len(command["caps"]) % 2 == 0
        return self.keys.setdefault(command["entity"], f"key of {command['entity']}") + "\n"

    def osd_tree(self, command: dict[str, Any], data: bytes) -> object:
        ids = {name: -2 - n for n, name in enumerate([*self.rack_names, *self.hosts])}
        nodes = [{"id": -1, "name": "default", "type": "root", "children": [-2]}]
        for rack in self.rack_names:
            children = [ids[host] for host in self.hosts if self.racks[host] == rack]
            nodes.append({"id": ids[rack], "name": rack, "type": "rack", "children": children})
        for host, osds in self.hosts.items():
            nodes.append({"id": ids[host], "name": host, "type": "host", "children": osds})
        return {"nodes": nodes}

    def osd_crush_add(self, command: dict[str, Any], data: bytes) -> object:
        where = dict(arg.split("=") for arg in command["args"])
        assert where["root"] == "default"
        host, rack = where["host"], where.get("rack", "")
        # As in Ceph, an existing host stays where it is.
        self.racks.setdefault(host, rack)
        assert rack == "" or rack in self.rack_names
        self.hosts.setdefault(host, []).append(command["id"])
        self.weights[command["id"]] = command["weight"]
        return ""

    def osd_crush_add_bucket(self, command: dict[str, Any], data: bytes) -> object:
        assert (command["type"], command["args"]) == ("rack", ["root=default"])
        self.rack_names.append(command["name"])
        return ""

    def osd_crush_move(self, command: dict[str, Any], data: bytes) -> object:
        self.racks[command["name"]] = dict(a.split("=") for a in command["args"]).get("rack", "")
        return ""

    def osd_crush_rule_create_replicated(self, command: dict[str, Any], data: bytes) -> object:
        rule = (command["name"], command["type"])
        self.rules += [] if rule in self.rules else [rule]
        return ""

    def osd_crush_rule_dump(self, command: dict[str, Any], data: bytes) -> object:
        return [{"rule_id": n, "rule_name": name} for n, (name, _) in enumerate(self.rules)]

    def config_dump(self, command: dict[str, Any], data: bytes) -> object:
        return [{"section": "mgr", "name": n, "value": v} for n, v in self.config.items()]

    def config_set(self, command: dict[str, Any], data: bytes) -> object:
        assert command["force"] is True
        self.config[command["name"]] = command["value"]
        return ""

    def osd_set_require_min_compat_client(self, command: dict[str, Any], data: bytes) -> object:
        self.min_client = command["version"]
        return ""

    def get_command_descriptions(self, command: dict[str, Any], data: bytes) -> object:
        return self.commands

    def osd_pool_ls(self, command: dict[str, Any], data: bytes) -> object:
        return [{"pool_name": name, **body} for name, body in self.pools.items()]

    def osd_pool_create(self, command: dict[str, Any], data: bytes) -> object:
        body = {"pg_num": command["pg_num"], "size": 3, "min_size": 2, "pg_autoscale_mode": "warn"}
        self.pools[command["pool"]] = {**body, "crush_rule": 0, "application_metadata": {}}
        return ""

    def osd_pool_set(self, command: dict[str, Any], data: bytes) -> object:
        value = command["val"]
        if command["var"] == "crush_rule":
            value = str([name for name, _ in self.rules].index(value))
        self.pools[command["pool"]][command["var"]] = int(value) if value.isdigit() else value
        return ""

    def osd_pool_application_enable(self, command: dict[str, Any], data: bytes) -> object:
        self.pools[command["pool"]]["application_metadata"][command["app"]] = {}
        return ""


WANTED = {
    "step": "register",
    "osds": {f"osd{n}": [{"id": n, "uuid": f"uuid-{n}"}] for n in range(3)},
    "racks": {f"osd{n}": "" for n in range(3)},
    "bytes": {"osd0": [2**40], "osd1": [2**39], "osd2": [5 * 2**30]},
    "mgr": ["admin"],
    "client.rgw": [],
    "modules": {"mgr/balancer/active": "false"},
}
PRIMARY = ' "osd pg-upmap-primary"'
POOL = {"name": "bench", "pg_num": 128, "size": 2, "min_size": 1}
POOLS = {"step": "pools", "pools": [POOL], "failure_domain": "host", "osd_count": 0, "timeout_s": 0}


@pytest.fixture
def cluster_script(script):
    return script("ceph", "cluster")


def test_register_makes_osds_places_and_keys_once(cluster_script):
    monitors = Monitors()
    done = cluster_script.register(cluster_script.Cluster(monitors), WANTED)
    assert monitors.osds == {0: "uuid-0", 1: "uuid-1", 2: "uuid-2"}
    assert monitors.hosts == {"osd0": [0], "osd1": [1], "osd2": [2]}
    assert monitors.weights == {0: 1.0, 1: 0.5, 2: 0.00488}
    assert monitors.min_client == "luminous"
    assert done["keys"]["osd2"] == {"osd.2": "key of osd.2"}
    assert done["keys"]["admin"] == {"mgr.admin": "key of mgr.admin"}
    assert "osd.1 registered" in done["changed"]
    monitors.seen.clear()
    second = cluster_script.register(cluster_script.Cluster(monitors), WANTED)
    assert (second["changed"], second["keys"]) == ([], done["keys"])
    assert not {"osd new", "osd crush add", "config set"} & set(monitors.seen)


def test_a_killed_registration_is_resumed(cluster_script):
    """It ended between an OSD and its key."""
    monitors = Monitors()
    monitors.osds[1] = "uuid-1"
    done = cluster_script.register(cluster_script.Cluster(monitors), WANTED)
    assert done["keys"]["osd1"] == {"osd.1": "key of osd.1"}
    assert monitors.hosts["osd1"] == [1]


@pytest.mark.parametrize(("commands", "release"), [("", "luminous"), (PRIMARY, "reef")])
def test_clients_must_know_what_the_monitors_offer(cluster_script, commands, release):
    monitors = Monitors()
    monitors.commands += commands
    cluster = cluster_script.Cluster(monitors)
    assert release in cluster_script.require_clients(cluster)[0]
    assert monitors.min_client == release
    assert cluster_script.require_clients(cluster) == []


def test_hosts_with_several_osds_are_placed_in_their_racks(cluster_script):
    monitors = Monitors()
    cluster = cluster_script.Cluster(monitors)
    wanted = {
        **WANTED,
        "osds": {
            f"osd{host}": [{"id": 3 * host + n, "uuid": f"u-{host}-{n}"} for n in range(3)]
            for host in range(4)
        },
        "racks": {f"osd{host}": f"rack{host // 2}" for host in range(4)},
        "bytes": {f"osd{host}": [2**40] * 3 for host in range(4)},
    }
    done = cluster_script.register(cluster, wanted)
    assert monitors.hosts["osd2"] == [6, 7, 8]
    assert monitors.racks == wanted["racks"]
    assert set(done["keys"]["osd3"]) == {"osd.9", "osd.10", "osd.11"}
    assert cluster_script.register(cluster, wanted)["changed"] == []
    # One machine moves to another rack, and another machine leaves its rack.
    moved = {**wanted, "racks": {**wanted["racks"], "osd1": "rack7", "osd2": ""}}
    changed = cluster_script.register(cluster, moved)["changed"]
    assert sorted(changed) == ["osd1 moved to rack7", "osd2 moved to no rack"]
    assert monitors.racks == moved["racks"]


def test_replicas_go_to_different_racks_if_that_is_asked(cluster_script):
    monitors = Monitors()
    cluster = cluster_script.Cluster(monitors)
    cluster_script.pools(cluster, POOLS)
    assert monitors.pools["bench"]["crush_rule"] == 0
    racks = {**POOLS, "failure_domain": "rack"}
    assert cluster_script.pools(cluster, racks)["changed"] == ["pool bench: placed by hotbed-rack"]
    assert monitors.rules[monitors.pools["bench"]["crush_rule"]] == ("hotbed-rack", "rack")
    assert cluster_script.pools(cluster, racks)["changed"] == []


def test_an_osd_of_another_life_is_refused_by_name(cluster_script):
    monitors = Monitors()
    monitors.osds[1] = "somebody else's"
    with raises(cluster_script.Refused, "osd.1"):
        cluster_script.register(cluster_script.Cluster(monitors), WANTED)


def test_pools_are_made_with_their_numbers_and_then_left_alone(cluster_script):
    monitors = Monitors()
    cluster = cluster_script.Cluster(monitors)
    assert cluster_script.pools(cluster, POOLS)["changed"] == ["pool bench made"]
    body = monitors.pools["bench"]
    assert (body["pg_num"], body["size"], body["min_size"]) == (128, 2, 1)
    assert body["pg_autoscale_mode"] == "off"
    assert body["application_metadata"] == {"rados": {}}
    assert cluster_script.pools(cluster, POOLS)["changed"] == []
    more = {**POOLS, "pools": [{**POOL, "min_size": 2}]}
    assert cluster_script.pools(cluster, more)["changed"] == ["pool bench: min_size = 2"]


def test_osds_that_stay_down_and_errors_of_the_monitors_are_reported(cluster_script):
    monitors = Monitors()
    cluster = cluster_script.Cluster(monitors)
    monitors.osds[0], monitors.up = "u", False
    with raises(cluster_script.Refused, "still down: osd.0"):
        cluster_script.wait_for_osds(cluster, 1, 0)
    with raises(cluster_script.Refused, "ceph osd crush add"):
        cluster.call("osd crush add", id=9)
