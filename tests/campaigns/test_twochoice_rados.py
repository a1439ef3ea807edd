"""Cells on agents in front of OSDs and on the plain pool: commands and clean-up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from objects_fakes import FakeAgent, FakeServers, FakeShell
from testbed_jobs import job_with

from campaigns.grounds.live import LiveTestbed
from campaigns.papers.twochoice.live import plans
from campaigns.papers.twochoice.live.cell import ObjectCells
from campaigns.papers.twochoice.live.results import numbers_of_apps
from campaigns.papers.twochoice.live.servers import RadosServers, places_of, servers_of
from controllers import registry
from schemas.cells.twochoice import OBJECTS
from schemas.errors import UserError
from schemas.run import Summary
from testbed.agent.contract import UnitResult
from testbed.deploy.inventory import SCRATCH_PATH
from testbed.sites.fake import FakeSite
from testbed.spec import load_spec

SPEC = """
name: t
groups:
  - {name: admin, roles: [admin, mon, mgr]}
  - {name: client, roles: [client], cpus: 2}
  - {name: osd, count: 4, roles: [osd], disk: {size: 2GiB, scratch: 1GiB}}
store:
  kind: ceph
  pools: [{name: bench, size: 2}]
  twochoice: {}
"""
STATUS = {"agents": [{"agent": 0, "has": {"fragments": 0, "entries": 0, "in_flight": 0}}]}
HEADER = {"schema": 1, "header": True, "policy": "dlr", "parameters": {}, "seed": 1}
JOURNAL = json.dumps(HEADER | {"code_hash": registry.code_hash(registry.find("dlr"))}) + "\n"
SMALL: dict[str, Any] = {"backend": "rados", "nodes": 2, "processes": 2}


class CephAgent(FakeAgent):
    """Agent that accepts all verbs, recorded in `called`."""

    def __init__(self) -> None:
        super().__init__(UnitResult("client", "u", 0, 0.0, 1.0, json.dumps(STATUS), ""))
        self.called: list[str] = []

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        self.called.append(verb)
        return {
            "clean": {"put_right": []},
            "control-stop": {"was_running": True, "code": 0, "reason": "stopped"},
            "control-log": {"text": JOURNAL, "offset": len(JOURNAL), "size": len(JOURNAL)},
        }.get(verb, {})


def ceph(folder: Path, agent: FakeAgent, text: str = SPEC) -> tuple[LiveTestbed, dict[str, Any]]:
    path = folder / "spec.yaml"
    path.write_text(text)
    site, spec = FakeSite(folder / "site"), load_spec(path)
    testbed = site.provision(spec)
    shells = {node.name: FakeShell() for node in testbed.nodes}
    live = LiveTestbed(site, testbed, spec, agent, lambda name: shells[name])  # type: ignore[arg-type, return-value]
    return live, shells


class FakeRados(FakeServers, RadosServers):
    """Fake that answers at once, see `FakeServers`; controllers start as the real ones do."""


def made(folder: Path, agent: CephAgent, **parameters: Any) -> tuple[FakeRados, dict[str, float]]:
    live, _ = ceph(folder, agent)
    servers = FakeRados(live, places_of(live))
    out = folder / "run"
    out.mkdir()
    ObjectCells(servers).make(
        job_with(OBJECTS.of(experiment="burst", **parameters), kind="twochoice-objects"), out
    )
    summary = Summary.model_validate_json((out / "summary.json").read_bytes())
    return servers, summary.extra


def test_a_clean_state_is_empty_pools_with_the_cells_settings(tmp_path: Path) -> None:
    agent = CephAgent()
    found, shells = ceph(tmp_path, agent)
    servers_of(found).clean(plans.settings(OBJECTS.of(experiment="burst", copies=2)))
    assert {"control-stop", "disturb-stop"} <= set(agent.called)
    assert agent.called.index("pinned-empty") < agent.called.index("clean")
    assert shells["client"].ran == [["rados", "purge", "bench", "--yes-i-really-really-mean-it"]]
    for place in range(4):
        stop, start = shells[f"osd{place}"].ran
        # Includes fio's file next to the OSD from an earlier cell.
        wrote = plans.fio_command(SCRATCH_PATH, 1.0)[2].removeprefix("--filename=")
        assert stop[2] == f"systemctl stop 'hotbed-twochoice@*.service' && rm -f {wrote}"
        assert start[2] == f"systemctl start hotbed-twochoice@{place}.service"
    told = json.loads(shells["osd3"].files["/etc/hotbed/twochoice.json"])
    assert told == json.loads(shells["client"].files["/etc/hotbed/twochoice.json"])
    assert (told["copies"], len(told["agents"])) == (2, 4)


def test_crush_needs_no_scheduler_and_meets_the_same_stragglers(tmp_path: Path) -> None:
    both, crush = (
        plans.plan(
            OBJECTS.of(
                experiment="burst", scheduler=scheduler, copies=2, stragglers="table2", **SMALL
            ),
            5,
            4,
            "bench",
        )
        for scheduler in ("both", "crush")
    )
    assert crush["apps"][:-1] == both["apps"][:-1]
    assert crush["apps"][-1].pop("pool") == "bench"
    assert both["apps"][-1].pop("scheduler") == "both"
    assert crush["apps"][-1] == both["apps"][-1]
    assert crush["ceph"]["user"] == "admin"
    assert "ceph" not in both
    settings = plans.settings(OBJECTS.of(experiment="burst", scheduler="crush", **SMALL))
    assert settings["scheduler"]["scheduler"] == "fixed"


def test_where_crush_put_bytes_is_not_told() -> None:
    app = {
        "name": "measured-1",
        "scheduler": "crush",
        "writes": 4,
        "bytes": 4000,
        "redirected": 0,
        "rank_seconds": [1.0, 2.0],
        "server_bytes": [],
        "home_bytes": [],
        "latency": {"n": 4, "mean": 0.5, "max": 1.0},
    }
    report = {"apps": [app], "processes": 2, "steps": {}, "schedulers": {}}
    report["steps"] = {name: {"n": 0} for name in ("probe", "put", "register")}
    found = numbers_of_apps(report, [1])
    assert (found["bytes"], found["bytes_s"], found["seconds"]) == (4000.0, 2000.0, 2.0)
    assert found["probes_per_write"] == 0.0
    assert not {"fullest", "spread", "slowed_share", "home_fullest"} & set(found)


def test_dlr_works_during_its_cells_alone(tmp_path: Path) -> None:
    agent = CephAgent()
    servers, _ = made(
        tmp_path, agent, scheduler="dlr", copies=2, stragglers="fio", start_s=9.0, **SMALL
    )
    assert agent.called == ["control-start", "control-stop", "control-log"]
    assert (tmp_path / "run" / "journal.jsonl").read_text() == JOURNAL
    assert servers.plans[0]["apps"][-1]["start"] == 9.0
    again = tmp_path / "crush"
    again.mkdir()
    agent = CephAgent()
    made(again, agent, scheduler="crush", copies=2, **SMALL)
    assert agent.called == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"backend": "file"}, "is of backend file, and the servers of testbed t are of rados"),
        (
            {"backend": "rados", "scheduler": "crush"},
            "needs a pool of size 1, and the spec of testbed t has a first pool of size 2",
        ),
    ],
)
def test_a_cell_that_does_not_fit_its_testbed_is_a_sentence(
    tmp_path: Path, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        made(tmp_path, CephAgent(), **values)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  twochoice: {}\n", "", "has no object servers"),
        ("scratch: 1GiB", "scratch: 0", "has 1 OSDs and no scratch part"),
    ],
)
def test_a_testbed_that_does_not_do_is_a_sentence(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        places_of(ceph(tmp_path, CephAgent(), SPEC.replace(old, new))[0])
