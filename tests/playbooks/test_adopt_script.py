"""Script that turns a foreign cluster into a store, against monitors of our own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.errors import raises
from tests.playbooks.test_cluster_script import POOL, Monitors


class Others(Monitors):
    """Cluster with OSD numbers chosen by others."""

    def __init__(self, numbers: dict[str, list[int]]) -> None:
        super().__init__()
        self.numbers = numbers
        for host, found in numbers.items():
            self.hosts[host], self.racks[host] = found, ""
            self.osds |= {number: f"uuid-{number}" for number in found}
        self.sections: dict[str, str] = {}

    def osd_metadata(self, command: dict[str, Any], data: bytes) -> object:
        rows = [
            {"id": number, "hostname": host}
            for host, found in self.numbers.items()
            for number in found
        ]
        return [*rows, {"id": 99}]  # an OSD that was created and never started

    def config_dump(self, command: dict[str, Any], data: bytes) -> object:
        rows = []
        for name, value in self.config.items():
            section, _, mask = self.sections[name].partition("/")
            rows.append({"section": section, "mask": mask, "name": name, "value": value})
        return rows

    def config_set(self, command: dict[str, Any], data: bytes) -> object:
        self.sections[command["name"]] = command["who"]
        return super().config_set(command, data)


WANTED = {
    "osds": {"osd0": 2, "osd1": 1},
    "racks": {"osd0": "left", "osd1": ""},
    "settings": {"osd": {"osd_max_scrubs": "0"}},
    "modules": {"mgr/balancer/active": "false"},
    "pools": [POOL],
    "failure_domain": "host",
    "timeout_s": 0,
    "agent_config": {
        "testbed": "t",
        "nodes": [{"name": "osd0", "osds": [0, 1]}, {"name": "osd1", "osds": [2]}, {"name": "a"}],
    },
}


@pytest.fixture
def adopt(script):
    return script("adopt", "adopt")


@pytest.fixture
def tools(adopt, root):
    text = (root / "playbooks" / "roles" / "ceph" / "files" / "cluster.py").read_text()
    made: ModuleType = adopt.module_of(text)
    return made


def test_the_control_plane_learns_the_numbers_that_were_given_out(adopt, tools):
    monitors = Others({"osd0": [2, 0], "osd1": [1]})
    done = adopt.adopt(tools, tools.Cluster(monitors), WANTED)
    assert done["osds"] == {"osd0": [0, 2], "osd1": [1]}
    nodes = {node["name"]: node["osds"] for node in done["agent_config"]["nodes"]}
    assert nodes == {"osd0": [0, 2], "osd1": [1], "a": []}
    assert monitors.config == {"osd_max_scrubs": "0", "mgr/balancer/active": "false"}
    assert monitors.sections["osd_max_scrubs"] == "osd"
    assert monitors.racks == {"osd0": "left", "osd1": ""}
    assert monitors.pools["bench"]["size"] == 2
    assert monitors.min_client == "luminous"
    again = adopt.adopt(tools, tools.Cluster(monitors), WANTED)
    assert (again["changed"], again["agent_config"]) == ([], done["agent_config"])
    assert adopt.numbers_by_host([{"id": 4, "hostname": "osd0.example.org"}]) == {"osd0": [4]}


def test_settings_of_one_host_are_set_once_and_recoverys_after_what_lets_them_be(adopt, tools):
    monitors = Others({})
    settings = {
        "osd": {"osd_max_backfills": "3", adopt.MCLOCK_OVERRIDE: "true"},
        "osd/host:osd0": {"osd_memory_target": "2147483648"},
    }
    assert adopt.configure(tools.Cluster(monitors), settings) == [
        f"osd: {adopt.MCLOCK_OVERRIDE} = true",
        "osd: osd_max_backfills = 3",
        "osd/host:osd0: osd_memory_target = 2147483648",
    ]
    assert adopt.configure(tools.Cluster(monitors), settings) == []


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"osd0": [0, 1, 2]}, "osd0"),
        ({"osd0": [0, 2], "x": [1]}, "osd1"),
        ({"osd0": [0, 1], "osd1": [2], "x": [3]}, "there are OSDs on x"),
    ],
)
def test_a_device_that_was_not_taken_is_reported_by_its_node(adopt, tools, numbers, said):
    with raises(tools.Refused, said):
        adopt.adopt(tools, tools.Cluster(Others(numbers)), WANTED)
