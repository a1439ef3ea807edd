"""Enforcer parameters of a plan: at devices, at hosts, and at the switch's ports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.papers.prioritymeister.parameters import (
    load_addresses,
    network_parameters,
    parameters_of,
    storage_parameters,
)
from campaigns.papers.prioritymeister.topology import Topology
from controllers.prioritymeister.plan import Plan, StagePlan, WorkloadPlan
from schemas.errors import UserError


def topology(slos: dict[str, float | None], levels: int | None = 7) -> Topology:
    """Return workloads on one server, each with its own client; None is a completion SLO."""
    hosts = {f"c-{name}": {"link": 8e8} for name in slos}
    return Topology.model_validate(
        {
            "hosts": {"s": {"link": 1e9, "devices": {"d": "p.json"}}, **hosts},
            "workloads": [
                {
                    "name": name,
                    "client": f"c-{name}",
                    "server": "s",
                    "trace": "t.csv",
                    "slo": {"completion": 60} if slo is None else {"latency": slo},
                }
                for name, slo in slos.items()
            ],
            "network_levels": levels,
        }
    )


def plan_for(given: Topology) -> Plan:
    """Return a plan with priorities in workload order, and reversed levels on the way out."""
    count = len(given.workloads)

    def stage(name: str, queues: tuple[str, ...], priority: int, level: int | None) -> StagePlan:
        pairs = ((0.9, 0.01 * priority), (0.2, 0.5))
        return StagePlan(name, queues, priority, level, pairs, 0.0, 1.0, 1.0)

    workloads = []
    for k, workload in enumerate(given.workloads, start=1):
        routes = given.routes(workload)
        stages = (
            stage("network-in", routes["network-in"], k, k),
            stage("storage", routes["storage"], k, None),
            stage("network-out", routes["network-out"], count + 1 - k, count + 1 - k),
        )
        workloads.append(WorkloadPlan(workload.name, "latency", 1.0, 1.0, 1.0, True, stages))
    return Plan(True, tuple(workloads), ())


THREE: dict[str, float | None] = {"a": 0.05, "b": 0.02, "l": None}


def test_the_proxy_is_told_priorities_pairs_slos_and_clients() -> None:
    given = topology(THREE)
    addresses = {"c-a": ["10.0.0.1"], "c-b": ["10.0.0.2"], "b": ["10.0.0.9"]}
    told = storage_parameters(given, plan_for(given), "s:d", addresses=addresses)
    assert told == {
        "policy": "pm",
        "depth": 1,
        "mode": "hold",
        "workloads": [
            {
                "name": "a",
                "clients": ["10.0.0.1"],
                "weight": 1.0,
                "slo": 0.05,
                "priority": 1,
                "pairs": [[0.9, 0.01], [0.2, 0.5]],
            },
            {
                "name": "b",
                "clients": ["10.0.0.9"],
                "weight": 1.0,
                "slo": 0.02,
                "priority": 2,
                "pairs": [[0.9, 0.02], [0.2, 0.5]],
            },
            {
                "name": "l",
                "clients": [],
                "weight": 1.0,
                "priority": 3,
                "pairs": [[0.9, 0.03], [0.2, 0.5]],
            },
        ],
    }


def test_other_policies_are_told_what_they_go_by() -> None:
    given = topology(THREE)
    plan = plan_for(given)
    mclock = storage_parameters(given, plan, "s:d", policy="mclock")["workloads"]
    assert [w["reservation"] for w in mclock] == [0.2, 0.2, 0.2]
    mclock = storage_parameters(
        given, plan, "s:d", policy="mclock", reservations={"a": 0.5}, weights={"b": 3}
    )["workloads"]
    assert [w["reservation"] for w in mclock] == [0.5, 0.0, 0.0]
    assert [w["weight"] for w in mclock] == [1.0, 3.0, 1.0]
    cake = storage_parameters(
        given, None, "s:d", policy="cake", cake={"upper": 2}, slos={"a": 9.0}, only=["a", "l"]
    )
    assert cake["cake"] == {"upper": 2}
    assert [(w["name"], w.get("slo")) for w in cake["workloads"]] == [("a", 9.0), ("l", None)]
    assert "pairs" not in cake["workloads"][0] and "mode" not in cake


def test_hosts_are_told_what_leaves_them() -> None:
    given = topology(THREE)
    addresses = {"c-a": ["10.0.0.1"], "s": ["10.0.0.100"]}
    told = network_parameters(given, plan_for(given), addresses=addresses)
    assert [(m.level, m.dscp, m.name) for m in told.levels] == [
        (1, 56, "cs7"),
        (2, 48, "cs6"),
        (3, 40, "cs5"),
    ]
    client, server = told.hosts["c-a"], told.hosts["s"]
    assert (client.queue, client.rate) == ("c-a->switch", 1e8)
    flow = client.flows[0]
    assert (flow.workload, flow.stage, flow.to, flow.level, flow.dscp) == (
        "a",
        "network-in",
        "s",
        1,
        56,
    )
    assert (flow.source, flow.destination) == (("10.0.0.1",), ("10.0.0.100",))
    assert flow.pairs == ((0.9, 0.01), (0.2, 0.5))
    assert [(f.workload, f.to, f.level) for f in server.flows] == [
        ("a", "c-a", 3),
        ("b", "c-b", 2),
        ("l", "c-l", 1),
    ]
    assert server.flows[0].source == ("10.0.0.100",)
    assert told.ports == {
        "switch->c-a": 1e8,
        "switch->c-b": 1e8,
        "switch->c-l": 1e8,
        "switch->s": 1.25e8,
    }


def test_by_slo_has_levels_alone_and_others_have_nothing() -> None:
    given = topology(THREE)
    told = network_parameters(given, None, policy="byslo")
    assert told.mode == "levels"
    flows = {f.workload: (f.level, f.dscp, f.pairs) for f in told.hosts["s"].flows}
    assert flows == {"a": (2, 48, ()), "b": (1, 56, ()), "l": (3, 40, ())}
    for policy in ("ps", "cake", "edf", "none"):
        told = network_parameters(given, None, policy=policy)
        assert (told.mode, told.levels) == ("fifo", ())
        assert {(f.level, f.dscp, f.pairs) for h in told.hosts.values() for f in h.flows} == {
            (1, 0, ())
        }


def test_more_slos_than_levels_share_them_in_order() -> None:
    slos: dict[str, float | None] = {f"w{k}": 0.1 * k + 0.1 for k in range(10)}
    flows = network_parameters(topology(slos, 4), None, policy="byslo").hosts["s"].flows
    levels = [f.level for f in flows]
    assert levels == sorted(levels)
    assert set(levels) == {1, 2, 3, 4}
    free = network_parameters(topology(slos, None), None, policy="byslo")
    assert [f.level for f in free.hosts["s"].flows] == list(range(1, 11))
    assert [m.dscp for m in free.levels] == list(range(63, 53, -1))


def test_more_levels_than_dscp_has_are_refused() -> None:
    slos: dict[str, float | None] = {f"w{k}": 0.1 * k + 0.1 for k in range(64)}
    with pytest.raises(UserError, match="64 network levels"):
        network_parameters(topology(slos, None), None, policy="byslo")


def test_all_parameters_are_by_device_and_host() -> None:
    given = topology(THREE)
    told = parameters_of(given, plan_for(given), mode="best-effort", depth=4)
    assert list(told.storage) == ["s:d"]
    assert told.storage["s:d"]["mode"] == "best-effort" and told.storage["s:d"]["depth"] == 4
    assert told.network.mode == "priority"
    assert json.loads(told.model_dump_json())["network"]["hosts"]["s"]["rate"] == 1.25e8


def test_mistakes_are_told(tmp_path: Path) -> None:
    given = topology(THREE)
    plan = plan_for(given)
    for options, reason in (
        ({"policy": "x"}, "there are pm, ps"),
        ({"mode": "x"}, "there are hold and best-effort"),
    ):
        with pytest.raises(UserError, match=reason):
            parameters_of(given, plan, **options)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no workload uses it; those in use are s:d"):
        storage_parameters(given, plan, "s:x")
    with pytest.raises(UserError, match="from a plan"):
        parameters_of(given, None)
    with pytest.raises(UserError, match="from a plan"):
        network_parameters(given, None, policy="ps", mode="priority")
    with pytest.raises(UserError, match="workload a is not in the plan"):
        parameters_of(given, Plan(True, (), ()))
    file = tmp_path / "a.json"
    with pytest.raises(UserError, match="cannot be read"):
        load_addresses(file)
    for text in ("x", "[]", '{"a": 1}'):
        file.write_text(text)
        with pytest.raises(UserError, match="is not a JSON object of addresses"):
            load_addresses(file)
    file.write_text('{"a": ["10.0.0.1"]}')
    assert load_addresses(file) == {"a": ("10.0.0.1",)}


def test_names_end_where_they_end() -> None:
    with pytest.raises(ValueError, match="a name is 1 to 63"):
        topology({"a\n": 0.1})
    with pytest.raises(ValueError, match=r"host s: 'd\\n' is no name"):
        Topology.model_validate(
            {
                "hosts": {"s": {"link": 1e9, "devices": {"d\n": "p.json"}}, "c": {"link": 8e8}},
                "workloads": [
                    {"name": "a", "client": "c", "server": "s", "trace": "t", "slo": {"latency": 1}}
                ],
            }
        )
