"""Ground, site and run ids of a campaign follow from its testbed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.engine.session import Prepared, Request, dry_run, prepare
from campaigns.grounds.testbed import LiveGround
from schemas.errors import UserError
from testbed import sites
from testbed.faults import RECORD, Fault
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.fake_site import FakeSite

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTBED_STATE", str(tmp_path / "state"))


def spec_on(folder: Path, site: str) -> str:
    text = (ROOT / "testbed" / "specs" / "dlr.yaml").read_text()
    path = folder / f"{site}.yaml"
    path.write_text(text.replace("site: {kind: local}", f"site: {{kind: {site}}}"))
    return str(path)


def planned(path: Path, ground: str | None = None) -> Prepared:
    return prepare(Request(str(path), ground=ground), need_ground=False)


def test_a_campaign_for_this_machine_goes_where_its_spec_is(campaign_file, tmp_path):
    """The test changes one word of the spec and nothing of the campaign."""
    path = campaign_file(ground="local", spec=spec_on(tmp_path, "local"))
    here = planned(path)
    assert (here.campaign.name, here.campaign.ground) == ("tiny", "local")
    path = campaign_file(ground="local", spec=spec_on(tmp_path, "inventory"))
    there = planned(path)
    assert (there.campaign.name, there.campaign.ground) == ("tiny-inventory", "inventory")
    assert there.plan.identity.site == "inventory"
    assert there.store.folder.name == "tiny-inventory"
    assert there.plan.identity.spec_digest == here.plan.identity.spec_digest
    ids = {cell.run_id for cell in here.plan.cells} & {cell.run_id for cell in there.plan.cells}
    assert not ids  # a run measured on other machines is another run


def test_the_command_line_says_where(campaign_file, tmp_path):
    path = campaign_file(ground="local", spec=spec_on(tmp_path, "local"))
    there = planned(path, "chameleon")
    assert (there.campaign.name, there.plan.identity.site) == ("tiny-chameleon", "chameleon")
    same = campaign_file(ground="chameleon", spec=spec_on(tmp_path, "chameleon"))
    assert planned(same).campaign.name == "tiny"


def test_a_lease_is_none_of_a_run_s_identity(campaign_file, tmp_path):
    spec = tmp_path / "leased.yaml"
    text = (ROOT / "testbed" / "specs" / "dlr.yaml").read_text()
    found = []
    for hours in (8, 24):
        site = f"site: {{kind: chameleon, options: {{lease: {{hours: {hours}}}}}}}"
        spec.write_text(text.replace("site: {kind: local}", site))
        path = campaign_file(ground="chameleon", spec=str(spec), lease={"extend": hours == 24})
        found.append([cell.run_id for cell in planned(path).plan.cells])
    assert found[0] == found[1]


def test_a_failed_testbed_is_refused_and_not_called_absent(monkeypatch):
    now = [0.0]
    site = FakeSite(clock=lambda: now[0], lease_s=60)
    site.provision(
        TestbedSpec.model_validate(
            {"name": "small", "store": None, "groups": [{"name": "a", "roles": ["admin"]}]}
        )
    )
    monkeypatch.setattr(sites, "open_site", lambda kind: site)
    found = LiveGround("fake", "small")
    assert found.site.status("small").ends_at_s == 60
    monkeypatch.setattr(site, "find", lambda name: found.testbed)
    site.link("small", "a", False)
    with raises(UserError, "'small'"):
        LiveGround("fake", "small")
    now[0] = 61
    with raises(UserError, "'small'"):
        LiveGround("fake", "small")
    with raises(UserError, "'other'"):
        LiveGround("fake", "other")


@pytest.mark.parametrize("fault", ["link", "disk"])
def test_a_fault_by_hand_is_named_with_what_undoes_it(tmp_path, monkeypatch, fault):
    """A cut link makes the testbed failed, a slow disk does not."""
    site = FakeSite(tmp_path)
    spec = {"name": "small", "store": None, "groups": [{"name": "a", "roles": ["admin"]}]}
    testbed = site.provision(TestbedSpec.model_validate(spec))
    monkeypatch.setattr(sites, "open_site", lambda kind: site)
    body = {"faults": [Fault(fault, "a", {"cut": True}, 0).as_json()], "watcher": None}
    (testbed.directory / RECORD).write_text(json.dumps(body))
    if fault == "link":
        site.link("small", "a", False)
    with pytest.raises(UserError) as caught:
        LiveGround("fake", "small")
    assert "node a" in caught.value.what
    assert "hotbed fault clear" in caught.value.do


def test_the_lease_that_a_spec_asks_for_is_held_against_the_cells(
    campaign_file, tmp_path, monkeypatch
):
    path = campaign_file(ground="inventory", spec=spec_on(tmp_path, "inventory"))
    lengths = {"plenty": 5 * 3600, "short": 120, "none": None}
    report = {}
    for name, seconds in lengths.items():
        site = FakeSite(lease_s=seconds)
        plan = site.plan
        hours = None if seconds is None else seconds / 3600
        monkeypatch.setattr(site, "plan", lambda spec, p=plan, h=hours: replace(p(spec), hours=h))
        monkeypatch.setattr(sites, "open_site", lambda kind, options=None, found=site: found)
        report[name] = dry_run(Request(str(path))).notes[1:]
    assert report["none"] == ()
    assert "5 h (45 node-hours)" in report["plenty"][0]
    assert "the cells fit, which leaves 4 h " in report["plenty"][0]
    assert "do not fit by " in report["short"][0]
    assert "; 1 h and " in report["short"][0]
