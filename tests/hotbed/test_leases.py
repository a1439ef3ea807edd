"""Leases on the command line: extend, status, and the exit code when a lease ends a campaign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console

from campaigns.engine.display import CampaignResult
from hotbed.exit_codes import EXIT_LEASE, end_with, stopped
from testbed import choose
from testbed.sites.contract import Cost, State, Status
from testbed.sites.fake import FakeSite
from testbed.spec import TestbedSpec
from tests.hotbed.runner import hotbed

NOW = 1_800_000_000.0
SPEC = TestbedSpec.model_validate(
    {
        "name": "small",
        "store": None,
        "groups": [
            {"name": "admin", "roles": ["admin"]},
            {"name": "client", "count": 2, "roles": ["client"]},
        ],
    }
)


def up(monkeypatch: pytest.MonkeyPatch, lease_s: float | None) -> FakeSite:
    site = FakeSite(clock=lambda: NOW, lease_s=lease_s)
    site.provision(SPEC)
    monkeypatch.setattr(choose, "kinds", lambda: ("fake",))
    monkeypatch.setattr(choose, "open_site", lambda kind="fake", options=None: site)
    monkeypatch.setattr("time.time", lambda: NOW)
    return site


def test_more_hours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    site = up(monkeypatch, 3600)
    assert hotbed("extend", "small", "2.5", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "name": "small",
        "extended_s": 9000,
        "ends_at_s": NOW + 12600,
        "ends_in_s": 12600,
        "node_hours_left": 10.5,
    }
    assert site.status("small").ends_at_s == NOW + 12600
    assert hotbed("extend", "small", "1") == 0
    said = capsys.readouterr().out
    assert "ends 2027-01-15 12:30 UTC, in 4 h 30" in said
    monkeypatch.setattr(site, "extend", lambda name, seconds: site.status(name))
    assert hotbed("extend", "small", "1") == 1
    assert "is as it was: site fake granted nothing" in capsys.readouterr().err


def test_a_testbed_that_has_no_lease_yet_or_no_longer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = up(monkeypatch, 3600)
    known = Status(State.BUILDING, "there is no lease yet")
    monkeypatch.setattr(site, "status", lambda name: known)
    assert hotbed("extend", "small", "1") == 2
    error = capsys.readouterr().err
    assert "is building (there is no lease yet)" in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("small", "0"), "0 hours"),
        (("small", "-1"), "above 0"),
        (("small", "nan"), "above 0"),
        (("gone", "1"), "there is no testbed 'gone'"),
        (("small", "1"), "has no lease: it stays until `hotbed down`"),
    ],
)
def test_hours_that_cannot_be(
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    up(monkeypatch, None)
    assert hotbed("extend", "--", *arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_status_tells_when_it_ends_and_what_is_still_to_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    up(monkeypatch, 7200)
    assert hotbed("status") == 0
    assert "2027-01-15 10:00 UTC, in 2 h 00 min" in capsys.readouterr().out
    assert hotbed("status", "small") == 0
    assert "lease ends 2027-01-15 10:00 UTC" in capsys.readouterr().out
    assert hotbed("status", "small", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ends_in_s"], told["node_hours_left"]) == (7200, 6)
    assert hotbed("status", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["ends_in_s"] == 7200


def test_status_of_a_testbed_that_stays_has_no_lease(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    up(monkeypatch, None)
    assert hotbed("status") == 0
    assert "lease" not in capsys.readouterr().out
    assert hotbed("status", "small", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ends_in_s"] is None


def test_states_and_costs_show_themselves() -> None:
    shown = Status(State.READY, "<3 of 3>", {"osd<0>": "running"}, NOW)._repr_html_()
    assert "ready: &lt;3 of 3&gt;" in shown
    assert "osd&lt;0&gt;" in shown
    assert "2027-01-15 08:00 UTC" in shown
    assert "lease" not in Status(State.ABSENT, "none")._repr_html_()
    cost = Cost(216.0, 9, 2**40, 0, "9 <nodes>", hours=24)._repr_html_()
    assert "216.0" in cost
    assert "24 h" in cost
    assert "9 &lt;nodes&gt;" in cost


def test_a_campaign_that_a_lease_ended_has_an_exit_code_of_its_own() -> None:
    missing = (("seq none default (block 0)", "not started"),)
    ended = CampaignResult("tiny", 8, 0, 7, missing, lease="the lease ends soon")
    assert stopped(ended) == EXIT_LEASE == 75
    for result, code in (
        (ended, 75),
        (CampaignResult("tiny", 8, 0, 7, missing, interrupted=True, lease="both"), 130),
        (CampaignResult("tiny", 8, 0, 7, missing), 1),
    ):
        with pytest.raises(typer.Exit) as left:
            end_with(result)
        assert left.value.exit_code == code
    end_with(CampaignResult("tiny", 8, 0, 8))


def test_a_dry_run_shows_whether_it_fits(tmp_path: Path) -> None:
    from campaigns.engine.estimate import DryRunReport
    from campaigns.engine.lease import Outlook
    from hotbed.views import dry_run_table

    outlook = Outlook(NOW, NOW + 3600, 180, 7200, 24, 11, False)
    report = DryRunReport("c", "t", 1.0, 24, 0, (), 7200, {}, lease=outlook)
    console = Console(width=240, record=True, quiet=False, file=(tmp_path / "x").open("w"))
    console.print(dry_run_table(report))
    assert "11 of 24 cells fit, 63 min 00 s" in console.export_text()
