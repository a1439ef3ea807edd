"""Open-loop writer on a deployed testbed."""

from __future__ import annotations

import json

import pytest

from schemas.errors import UserError
from testbed.client import AgentClient, agent_client
from testbed.reach import shell_to
from testbed.sites.contract import Testbed
from tests.errors import raises
from workloads.open_loop import OpenLoop, run_open_loop

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

OBJECTS = """
import json, sys, rados
cluster = rados.Rados(conffile="/etc/ceph/ceph.conf"); cluster.connect(timeout=10)
ioctx = cluster.open_ioctx("bench")
found = {}
for each in ioctx.list_objects():
    if each.key.startswith("hotbed-ol-"):
        ask = {"prefix": "osd map", "pool": "bench", "object": each.key, "format": "json"}
        answer = json.loads(cluster.mon_command(json.dumps(ask), b"")[1])
        found[each.key] = [answer["pgid"], ioctx.stat(each.key)[0]]
print(json.dumps(found))
"""


@pytest.fixture
def agent(deployed: Testbed) -> AgentClient:
    return agent_client(deployed)


@pytest.fixture
def pool(deployed: Testbed) -> int:
    dump = shell_to(deployed, deployed.admin).run(["ceph", "osd", "dump", "-f", "json"]).text
    return next(p["pool"] for p in json.loads(dump)["pools"] if p["pool_name"] == "bench")


def test_writes_go_to_the_groups_that_were_asked(
    deployed: Testbed, agent: AgentClient, pool: int
) -> None:
    rates = {f"{pool}.0": 6.0, f"{pool}.1f": 3.0, f"{pool}.a": 1.0}
    config = OpenLoop.model_validate(
        {
            "duration_s": 10.0,
            "rates": rates,
            "object_bytes": 65536,
            "objects_per_pg": 3,
            "arrivals": "constant",
            "keep_requests": True,
        }
    )
    result = run_open_loop(agent, deployed.admin.name, config)
    assert (result.failed, result.outstanding, result.held, result.errors) == (0, 0, 0, ())
    assert result.done == result.intended == len(result.requests) > 0
    assert result.pgs.keys() == rates.keys()
    for pgid, rate in rates.items():
        assert abs(result.pgs[pgid].done - 10 * rate) <= 1
    assert all(latency is not None and latency > 0 for _, latency, _ in result.requests)
    assert sum(row["done"] for row in result.series) == result.done
    assert result.settled_s(below_s=60.0) == 0.0
    # Each group has three objects, where Ceph itself places them, overwritten and not extended.
    objects = json.loads(shell_to(deployed, deployed.admin).run(["python3", "-c", OBJECTS]).text)
    groups = sorted(pgid for pgid, _ in objects.values())
    assert groups == sorted(pgid for pgid in rates for _ in range(3))
    assert {size for _, size in objects.values()} == {65536}
    assert agent.units() == {}


def test_what_is_not_there_is_refused_and_nothing_is_left(
    deployed: Testbed, agent: AgentClient, pool: int
) -> None:
    for wrong, said in (
        ({"pool": "nothing"}, "there is no pool 'nothing'"),
        ({"rates": {f"{pool}.20": 1.0}}, rf"PG {pool}.20 is not in pool {pool}"),
    ):
        body = {"duration_s": 5.0, "rates": {f"{pool}.0": 1.0}, **wrong}
        with raises(UserError, said):
            run_open_loop(agent, deployed.admin.name, OpenLoop.model_validate(body))
    assert agent.units() == {}
