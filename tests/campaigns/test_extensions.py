"""Extensions in an installed package: `tests/example`, by its path and a dist-info folder."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_campaigns import summary_of
from test_live_services import OneGround, ScriptedAgent, provisioned
from tiny_kinds import job_with

from campaigns.engine.display import Progress
from campaigns.engine.session import Request, prepare, run
from campaigns.engine.store import RunStore
from campaigns.papers.dlr import live
from campaigns.papers.dlr.cell import CellContext, CellSetting, run_cell
from campaigns.papers.dlr.other import OtherServices
from controllers.decider import declared
from controllers.registry import available, find
from schemas.cells.dlr import DLR
from schemas.errors import UserError
from schemas.extensions import installed, make
from testbed import sites
from testbed.ssh import Completed
from tests.errors import raises
from tests.testbed.fake_site import FakeSite

EXAMPLE = Path(__file__).parents[1] / "example"
TOUCH = {"op": "other", "workload": "touch", "options": {"objects": 48}}


def install(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """Write the folder from which Python reads a package's entry points."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of packages on Python's path, here and in other processes."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "hotbed_example"]:
        del sys.modules[name]


@pytest.fixture
def example(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the example; return the file that its import writes."""
    described = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "hotbed_example", packages / "hotbed_example")
    install(packages, described["name"], described["entry-points"])
    trace = tmp_path / "imported"
    monkeypatch.setenv("HOTBED_EXAMPLE_TRACE", str(trace))
    return trace


def test_names_are_known_before_anything_is_imported(example):
    controller = available()["hold-one"]
    assert controller.outside
    assert controller.folder.name == "hold_one"
    assert "lent" in sites.kinds()
    assert set(installed("store")) == {"shelf"}
    with raises(UserError, "touch"):
        make("workload", "tuch", {})
    assert not example.exists()
    assert sites.open_site("lent").kind == "lent"
    assert example.exists()


def test_a_controller_runs_in_its_own_process_unless_a_given_folder_has_it(
    example, packages, tmp_path
):
    needs, _ = declared(find("hold_one"), {})
    assert needs.acts == {"primary-affinity"}
    assert not example.exists()
    shutil.copytree(packages / "hotbed_example" / "hold_one", tmp_path / "own" / "hold_one")
    assert find("hold-one", [tmp_path / "own"]).folder.is_relative_to(tmp_path / "own")


@pytest.mark.parametrize(
    ("kind", "entries", "words"),
    [
        ("controller", {"dlr": "other_one.dlr"}, "name of one of Hotbed"),
        ("controller", {"absent": "other_one.absent"}, "other_one"),
        ("controller", {"half": "email"}, "policy.py"),
        ("site", {"local": "other_one:Site"}, "name of one of Hotbed"),
        ("controller", {"hold-one": "email"}, "hotbed-example"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(example, packages, kind, entries, words):
    install(packages, "other-one", {f"hotbed.{kind}s": entries})
    with raises(UserError, words):
        available() if kind == "controller" else sites.kinds()


def test_what_does_not_import_is_an_error_of_its_package(packages):
    install(packages, "other-one", {"hotbed.sites": {"mine": "other_one:Site"}})
    with raises(UserError, "other-one"):
        sites.open_site("mine")


def test_the_code_of_a_package_is_part_of_a_run_s_identity(example, packages, campaign_file):
    path = campaign_file(ground="other", parameters={"duration_s": 10, **TOUCH}, grids=[_grid()])

    def entries() -> tuple[str, ...]:
        prepared = prepare(Request(str(path), testbed="shelf"))
        assert prepared.campaign.ground == "other"
        return prepared.plan.identity.code.entries

    own = str(packages / "hotbed_example")
    assert entries().count(own) == 2  # the store and the workload
    shelf = campaign_file(ground="sim", parameters={"duration_s": 10, **TOUCH}, grids=[_grid()])
    with raises(UserError, "no model of"):
        prepare(Request(str(shelf)))


def _grid(**fixed: Any) -> dict[str, Any]:
    vary = {"controller": ["default", "hold-one"]}
    return {"name": "one", "figures": ["1a"], "vary": vary, "fixed": fixed, "repetitions": 1}


def test_a_campaign_on_a_site_of_a_package_has_the_ground_other(example, campaign_file, tmp_path):
    spec = tmp_path / "lent.yaml"
    spec.write_text(
        (Path("testbed/specs/dlr.yaml").read_text()).replace("{kind: local}", "{kind: lent}")
    )
    path = campaign_file(ground="local", spec=str(spec), grids=[_grid(op="rand")])
    there = prepare(Request(str(path)), need_ground=False)
    assert (there.campaign.ground, there.plan.identity.site) == ("other", "lent")
    assert there.outside["hold-one"].name == "hold_one"
    with raises(UserError, "one: options", "workload touch"):
        bad = {"op": "other", "workload": "touch", "options": {"size": 1}}
        prepare(Request(str(campaign_file(grids=[_grid(**bad)]))))


@pytest.mark.slow
def test_a_campaign_runs_on_a_store_of_a_package(example, campaign_file, tmp_path):
    path = campaign_file(ground="other", grids=[_grid(op="rand", scenario="heterogeneity")])
    request = Request(str(path), testbed="shelf", artifacts=tmp_path / "artifacts")
    result = run(request, progress=Progress())
    assert result.ok, result.sentence
    store = RunStore(tmp_path / "artifacts" / "tiny")
    folders = [store.folder / one.run_id / "attempt-1" for one in store.runs()]
    assert {summary_of(folder).whole[0].throughput_mb_s for folder in folders} == {42.0}
    own = {json.loads((folder / "job.json").read_text())["controllers_dir"] for folder in folders}
    assert {str(place).rpartition("/")[2] for place in own} == {"None", "hold_one"}


class Client:
    """Shell of the client node, which has a clock."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, argv: list[str], **options: Any) -> Completed:
        self.asked.append(argv[0])
        return Completed(tuple(argv), 0, b"1700000000.5" if argv[0] == "date" else b"", b"")


def test_a_workload_runs_on_the_client_from_clean_to_summary(example, tmp_path, monkeypatch):
    class Ground(OneGround):
        shell = Client()

        def services(self, setting: CellSetting) -> Any:
            return OtherServices(self.live, setting)

    monkeypatch.setattr(live, "restore_snapshot", lambda *_: pytest.fail("nothing was written"))
    site, agent = FakeSite(tmp_path / "site"), ScriptedAgent()
    testbed = provisioned(site, "dlr")
    cell = DLR.of(**TOUCH, scenario="heterogeneity", duration_s=24, interval_s=2)
    folder = tmp_path / "run" / ".attempt-1.partial"
    (folder / "logs").mkdir(parents=True)
    ground = Ground(site, testbed, agent)
    context = CellContext(job_with(cell, "dlr", "dlr"), ground, folder, sleep=lambda seconds: None)
    assert run_cell(context).status == "done"
    assert ground.shell.asked == ["rados", "date", "timeout"]
    assert agent.verbs.count("disturb-go") == 1
    summary = summary_of(folder)
    assert (summary.whole[0].op, summary.whole[0].iops) == ("other", 2.0)
    assert summary.pressure_mean == {"osd0": 90.0}
    assert live.Snapshots(site, testbed).contents().written  # the next cell restores the store
