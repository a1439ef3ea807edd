"""The comparison dlr-today: its files, its plan, and the controllers that each release has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.session import Request, dry_run, prepare
from campaigns.papers.dlr.kind import KIND
from controllers.registry import available, create
from schemas.campaign import Campaign
from schemas.errors import UserError

MEASURED = ("dlr-today", "dlr-today-tentacle", "dlr-today-goals", "dlr-today-gateway")
FROM_SQUID_ON = {"upmap-read", "balance-reads", "localize-reads"}
OTHER = {"reweight-capped", "ursa", "nearest", "htoc"}
"""A variant of reweight, and Ursa's controllers, which balance writes."""


@pytest.fixture(autouse=True)
def no_testbed(monkeypatch):
    def refuse(*_: object) -> None:
        raise UserError("no testbed is asked by a unit test")

    monkeypatch.setitem(KIND.grounds, "local", replace(KIND.grounds["local"], open=refuse))


def of_ceph() -> set[str]:
    """Return the controllers that the comparison is about."""
    others = ("mos", "static-microstores")
    return {name for name in available(()) if not name.startswith(others)} - OTHER


def longest(campaign: Campaign) -> Campaign:
    """Return the campaign with the most blocks that its precision may ask for."""
    grids = [
        grid.model_copy(
            update={
                "repetitions": (grid.precision and grid.precision.max_blocks) or grid.repetitions,
                "precision": None,
            }
        )
        for grid in campaign.grids
    ]
    return campaign.model_copy(update={"grids": grids})


def cells(name: str, tmp_path: Any, *, most: bool = False) -> list[Any]:
    campaign = load_campaign(find_campaign(name))
    asked = Request(longest(campaign) if most else campaign, artifacts=tmp_path)
    return list(prepare(asked, need_ground=False).plan.cells)


def test_all_of_it_takes_at_most_ten_hours(tmp_path):
    planned = [cell for name in MEASURED for cell in cells(name, tmp_path, most=True)]
    assert sum(cell.planned_s + 1 for cell in planned) <= 10 * 3600


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("dlr-today", FROM_SQUID_ON),
        ("dlr-today-tentacle", set()),
        ("dlr-today-1000", {"jj", "mclock"}),
    ],
)
def test_every_controller_of_the_release_takes_part(name, missing, tmp_path):
    there = {cell.parameters.controller for cell in cells(name, tmp_path)}
    assert there == of_ceph() - missing


def test_dlr_short_decides_as_often_as_dlr_fast():
    both = (create(available(())[name], {}, 0).parameters() for name in ("dlr-short", "dlr-fast"))
    assert [one["window_s"] for one in both] == [2.0, 2.0]


def test_what_the_store_lacks_is_left_out_with_the_reason(tmp_path):
    report = dry_run(Request("dlr-today", ground="sim", artifacts=tmp_path))
    assert {cell.parameters.controller for cell in report.pending} == (
        of_ceph() - FROM_SQUID_ON - {"jj", "mclock"}
    )
    assert any("left out: controller jj cannot run" in note for note in report.notes)
