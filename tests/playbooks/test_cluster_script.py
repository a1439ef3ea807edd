"""The script that brings a cluster's maps to the inventory, against monitors of our own."""

from __future__ import annotations

import base64
import errno
import json
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class Monitors:
    """Answers librados' `mon_command` from a small OSD map, as Ceph 16.2 does."""

    def __init__(self) -> None:
        self.osds: dict[int, str] = {}
        self.keys: dict[str, str] = {}
        self.hosts: dict[str, list[int]] = {}
        self.weights: dict[int, float] = {}
        self.config: dict[str, str] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.min_client = "jewel"
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
        self.keys[f"osd.{command['id']}"] = json.loads(data)["cephx_secret"]
        return ""

    def auth_ls(self, command: dict[str, Any], data: bytes) -> object:
        return {"auth_dump": [{"entity": entity} for entity in self.keys]}

    def auth_get_key(self, command: dict[str, Any], data: bytes) -> object:
        return self.keys[command["entity"]] + "\n"

    def auth_get_or_create_key(self, command: dict[str, Any], data: bytes) -> object:
        assert len(command["caps"]) % 2 == 0
        return self.keys.setdefault(command["entity"], "made")

    def osd_tree(self, command: dict[str, Any], data: bytes) -> object:
        nodes = [{"name": "default", "type": "root", "children": [-2]}]
        nodes += [{"name": h, "type": "host", "children": c} for h, c in self.hosts.items()]
        return {"nodes": nodes}

    def osd_crush_add(self, command: dict[str, Any], data: bytes) -> object:
        host = next(arg[5:] for arg in command["args"] if arg.startswith("host="))
        assert "root=default" in command["args"]
        self.hosts.setdefault(host, []).append(command["id"])
        self.weights[command["id"]] = command["weight"]
        return ""

    def config_dump(self, command: dict[str, Any], data: bytes) -> object:
        return [{"section": "mgr", "name": n, "value": v} for n, v in self.config.items()]

    def config_set(self, command: dict[str, Any], data: bytes) -> object:
        assert command["force"] is True
        self.config[command["name"]] = command["value"]
        return ""

    def osd_set_require_min_compat_client(self, command: dict[str, Any], data: bytes) -> object:
        self.min_client = command["version"]
        return ""

    def osd_pool_ls(self, command: dict[str, Any], data: bytes) -> object:
        return [{"pool_name": name, **body} for name, body in self.pools.items()]

    def osd_pool_create(self, command: dict[str, Any], data: bytes) -> object:
        body = {"pg_num": command["pg_num"], "size": 3, "min_size": 2, "pg_autoscale_mode": "warn"}
        self.pools[command["pool"]] = {**body, "application_metadata": {}}
        return ""

    def osd_pool_set(self, command: dict[str, Any], data: bytes) -> object:
        value = command["val"]
        self.pools[command["pool"]][command["var"]] = int(value) if value.isdigit() else value
        return ""

    def osd_pool_application_enable(self, command: dict[str, Any], data: bytes) -> object:
        self.pools[command["pool"]]["application_metadata"][command["app"]] = {}
        return ""


WANTED = {
    "step": "register",
    "osds": {f"osd{n}": {"id": n, "uuid": f"uuid-{n}"} for n in range(3)},
    "bytes": {"osd0": 2**40, "osd1": 2**39, "osd2": 5 * 2**30},
    "mgr": ["admin"],
    "client.rgw": [],
    "modules": {"mgr/balancer/active": "false"},
    "min_client": "luminous",
}
POOL = {"name": "bench", "pg_num": 128, "size": 2, "min_size": 1}
POOLS = {"step": "pools", "pools": [POOL], "osd_count": 0, "timeout_s": 0}


@pytest.fixture
def cluster_script(script: Callable[[str, str], ModuleType]) -> ModuleType:
    return script("ceph", "cluster")


def test_register_makes_osds_places_and_keys(cluster_script: ModuleType) -> None:
    monitors = Monitors()
    done = cluster_script.register(cluster_script.Cluster(monitors), WANTED)
    assert monitors.osds == {0: "uuid-0", 1: "uuid-1", 2: "uuid-2"}
    assert monitors.hosts == {"osd0": [0], "osd1": [1], "osd2": [2]}
    assert monitors.weights == {0: 1.0, 1: 0.5, 2: 0.00488}
    assert monitors.min_client == "luminous"
    assert done["keys"]["osd2"]["osd"] == monitors.keys["osd.2"]
    assert done["keys"]["admin"] == {"mgr.admin": "made"}
    assert "osd.1 registered" in done["changed"]


def test_register_again_changes_nothing_and_gives_the_same_keys(
    cluster_script: ModuleType,
) -> None:
    monitors = Monitors()
    first = cluster_script.register(cluster_script.Cluster(monitors), WANTED)
    monitors.seen.clear()
    second = cluster_script.register(cluster_script.Cluster(monitors), WANTED)
    assert second["changed"] == []
    assert second["keys"] == first["keys"]
    assert not {"osd new", "osd crush add", "config set"} & set(monitors.seen)


def test_an_osd_of_another_life_is_refused_by_name(cluster_script: ModuleType) -> None:
    monitors = Monitors()
    monitors.osds[1] = "somebody else's"
    with pytest.raises(cluster_script.Refused, match=r"osd\.1 exists .*ceph osd purge 1"):
        cluster_script.register(cluster_script.Cluster(monitors), WANTED)


def test_what_the_monitors_say_is_handed_on(cluster_script: ModuleType) -> None:
    cluster = cluster_script.Cluster(Monitors())
    with pytest.raises(cluster_script.Refused, match="refused `ceph auth get-key`: missing"):
        cluster.call("auth get-key", entity="osd.9")


def test_pools_are_made_with_their_numbers_and_then_left_alone(cluster_script: ModuleType) -> None:
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


def test_osds_that_stay_down_are_named(cluster_script: ModuleType) -> None:
    monitors = Monitors()
    monitors.osds[0], monitors.up = "u", False
    with pytest.raises(cluster_script.Refused, match=r"still down: osd\.0"):
        cluster_script.wait_for_osds(cluster_script.Cluster(monitors), 1, 0)


def test_a_key_has_cephx_form(cluster_script: ModuleType) -> None:
    raw = base64.b64decode(cluster_script.new_key())
    kind, seconds, _, length = struct.unpack("<HIIH", raw[:12])
    assert (kind, length, len(raw)) == (1, 16, 28)
    assert seconds > 1_700_000_000
