"""Cells on microstores with a pool of whole machines, as in basic MOS."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mos_fakes import FakeBed
from testbed_jobs import job_with

from campaigns.papers.mos.division import Share
from campaigns.papers.mos.live import drives as driving
from campaigns.papers.mos.live.cell import REPORT_FILE
from campaigns.papers.mos.live.cell import make as make_cell
from campaigns.papers.mos.live.results import held_of
from campaigns.papers.mos.loads import loads_of
from schemas.cells.mos import MOS
from schemas.errors import UserError
from workloads.cosbench.workload import to_xml

START = 1000.0
SPEC = Path("testbed/specs/mos-machines.yaml")
LOAD: dict[str, Any] = {
    **{"experiment": "load", "small_workers": 3, "large_workers": 2, "seconds": 4, "rampup_s": 1},
    **{"epoch_s": 2, "settle_epochs": 1},
}
ONE = Share(0.2, 0.2, 12.5e6)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "campaigns.papers.mos.live.drives.time.time", lambda: START - driving.LEAD_S
    )


def make(bed: FakeBed, folder: Path, **parameters: Any) -> dict[str, float]:
    (folder / "logs").mkdir(parents=True)
    make_cell(bed.swift, job_with(MOS.of(**parameters), "mos"), folder)
    found: dict[str, float] = json.loads((folder / "summary.json").read_text())["extra"]
    return found


def test_drivers_follow_machines_that_come_and_go(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 8, SPEC)
    assert bed.swift.pool().machines == {"small": ONE, "large": ONE}
    found = make(bed, tmp_path / "run", setup="mos", **LOAD)
    # One driver per workload: its workers use the proxies in the client's file.
    assert sorted(name for name in bed.xmls if not name.startswith("objects")) == ["a", "c"]
    assert "proxies_file=/etc/hotbed/swift/small.json" in bed.xmls["a"]
    assert "proxies_file=/etc/hotbed/swift/large.json" in bed.xmls["c"]
    started = next(payload for verb, payload in bed.agent.calls if verb == "control-start")
    assert (started["name"], started["parameters"]) == ("mos", {})
    # The number of held cores changes, so no busy fraction exists.
    assert "proxy_busy" not in found
    assert found["proxy_cores_used"] == pytest.approx(4 * 0.2)
    report = json.loads((tmp_path / "run" / REPORT_FILE).read_text())
    assert report["division"]["shares"]["small"]["proxy_cores"] == 0.2


def test_static_are_the_machines_that_microstores_begin_with(tmp_path: Path) -> None:
    bed = FakeBed(tmp_path / "site", START, 8, SPEC)
    make(bed, tmp_path / "run", setup="static", **LOAD)
    assert bed.layout["layout"] == "static"
    assert "control-start" not in bed.agent.verbs()


@pytest.mark.parametrize(
    ("spec", "parameters", "said"),
    [
        (SPEC, {**LOAD, "setup": "mos-pp"}, "handed out as whole machines .*static and mos"),
        (SPEC, {**LOAD, "setup": "default"}, "handed out as whole machines"),
        (SPEC, {"experiment": "setups", "setup": "default"}, "handed out as whole machines"),
        (
            Path("testbed/specs/mos.yaml"),
            {**LOAD, "setup": "mos"},
            r"mos hands out whole machines, and its pool has none .*mos-machines\.yaml",
        ),
    ],
)
def test_a_setup_that_is_not_for_the_pool_is_refused(
    tmp_path: Path, spec: Path, parameters: dict[str, Any], said: str
) -> None:
    bed = FakeBed(tmp_path / "site", START, 8, spec)
    with pytest.raises(UserError, match=said):
        make(bed, tmp_path / "run", **parameters)
    assert "swift-layout" not in bed.agent.verbs()


def test_what_is_held_counts_machines_that_were_just_given() -> None:
    holds = {"proxy_cores": 0.2, "storage_cores": 0.2, "network": 12.5e6, "ssds": 0, "hdds": 0}
    machines = [
        {"name": "proxy0", "holds": holds, "microstore": "small"},
        {"name": "proxy1", "holds": holds, "microstore": "large"},
        {"name": "proxy2", "holds": holds, "microstore": ""},
    ]
    stores: list[dict[str, Any]] = [
        {"name": name, "resources": holds, "utilization": {"proxy_cpu": 0.9}, "slots": []}
        for name in ("small", "large")
    ]
    actions = [
        {"action": "AssignMachine", "machine": machine, "microstore": to, "kind": "machines"}
        for machine, to in (("proxy1", ""), ("proxy2", "small"))
    ]
    seen = {"microstores": {"stores": stores, "machines": machines}}
    (line,) = held_of([{"wall": START, "observation": seen, "actions": actions}], START)
    assert line["stores"]["small"]["proxy_cores"] == pytest.approx(0.4)
    assert line["stores"]["large"]["network"] == 0


@pytest.mark.parametrize("told", ["http://10.0.0.9:8080/auth/v1.0", ""])
def test_a_driver_that_begins_later_logs_in_where_its_tenant_is_served_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """The proxy that served at the start of the cell may have returned to the pool."""
    program, file = tmp_path / "cosdrive", tmp_path / "small.json"
    program.write_text("#!/bin/sh\ncat /dev/fd/3\n")
    program.chmod(0o755)
    file.write_text(json.dumps({"auth_url": told, "key": "k", "proxies": []}))
    monkeypatch.setattr(driving, "FOLDER", str(tmp_path))
    monkeypatch.setattr(driving, "REMOTE_PROGRAM", str(program))
    (load, *_) = loads_of(MOS.of(experiment="load", setup="mos"))
    began = "http://10.0.0.1:8080/auth/v1.0"
    access = driving.ProxyLogin("proxy0", began, "small:small", "a-key", str(file))
    xml = to_xml(driving.workload_of(load.objects, access, load))
    (tmp_path / "a.xml").write_text(xml)
    text = driving.script([driving.ProxyDriver("a", load, access, "client0")], 0.0, 1)
    subprocess.run(["bash", "-c", text], check=True, timeout=60)
    assert (tmp_path / "a.out").read_text() == xml.replace(began, told or began)
    assert xml.count(began) == 1
