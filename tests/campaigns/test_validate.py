"""Refusal of wrong campaign files: one sentence with file, grid, key and allowed values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_campaigns import ONE_CELL, TINY

from campaigns.engine.campaign_file import FILES, find_campaign, load_campaign
from campaigns.engine.session import Request, dry_run
from campaigns.papers.dlr.kind import KIND
from campaigns.validate import figures_of, validate
from controllers.registry import available
from schemas.cells.dlr import DlrCell
from schemas.errors import UserError
from testbed.spec import load_spec
from tests.errors import raises


def grid(**changes: Any) -> list[dict[str, Any]]:
    return [{**ONE_CELL[0], **changes}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grids": grid(fixed={"scenaro": "none"})}, ["grid one", "scenaro", "op, scenario"]),
        ({"grids": grid(vary={"op": ["read"]})}, ["grid one", "op", "'read'", "write, seq, rand"]),
        ({"grids": grid(vary={"op": [True]})}, ["grid one", "op", "True"]),
        ({"grids": grid(fixed={"controller": "dir"})}, ["controller", "'dir'", "default", "dlr"]),
        (
            {"grids": grid(fixed={"controller": "dlr", "controller_parameters": {"theta": 1}})},
            ["grid one", "controller_parameters", "theta"],
        ),
        ({"grids": grid(fixed={"hot_nodes": 9})}, ["hot_nodes", "9", "8 OSD nodes"]),
        ({"grids": grid(fixed={"hot_nodes": 0})}, ["hot_nodes", "whole number", "at least 1"]),
        (
            {"grids": grid(fixed={"scenario": "mix"})},
            ["grid one", "mix is missing", "A, B"],
        ),
        (
            {"grids": grid(fixed={"scenario": "none", "spread": 0.5})},
            ["belongs to scenario spread"],
        ),
        ({"grids": grid(exclude=[{"op": "seq"}])}, ["grid one", "leaves no cell"]),
        ({"grids": grid(exclude=[{"opp": "seq"}])}, ["grid one", "exclude", "'opp'"]),
        ({"grids": grid(repetitions=0)}, ["grid one", "repetitions", "a number of at least 1"]),
        ({"grids": grid(vary={"op": []})}, ["grid one", "vary.op is empty"]),
        ({"grids": grid(vary={"op": ["seq", "seq"]})}, ["vary.op names a value twice"]),
        ({"grids": grid(fixed={"op": "seq"})}, ["op is both varied and fixed"]),
        ({"grids": []}, ["grids", "at least 1"]),
        ({"time_scale": 0}, ["time_scale", "a number above 0"]),
        ({"tries": 3}, ["tries", "no such key", "retries?"]),
        ({"ground": "moon"}, ["ground", "local"]),
        ({"spec": "nowhere.yaml"}, ["nowhere.yaml", "neither next to"]),
        ({"parameters": {"interval_s": -1}}, ["interval_s", "-1", "above 0"]),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    campaign_file: Callable[..., Path], changes: dict[str, Any], words: list[str]
) -> None:
    path = campaign_file(**changes)
    with pytest.raises(UserError) as error:
        dry_run(Request(str(path), artifacts=path.parent / "artifacts"))
    for word in [str(path), *words]:
        assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert not (path.parent / "artifacts").exists()


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with raises(UserError, "'dlr-quik'"):
        find_campaign("dlr-quik")
    with pytest.raises(UserError):
        find_campaign(str(tmp_path / "none.yaml"))
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [")
    with raises(UserError, "is not YAML"):
        load_campaign(broken)
    broken.write_text("- 1\n")
    with raises(UserError, "is a mapping"):
        load_campaign(broken)


def test_an_unknown_figure_is_refused_with_those_there_are(
    campaign_file: Callable[..., Path],
) -> None:
    path = campaign_file()
    with raises(UserError, "'9'", "6b", allowed="6a"):
        dry_run(Request(str(path), figure="9", artifacts=path.parent))


@pytest.mark.parametrize("figure", ["6", "6a", "fig6", "figure 6b"])
def test_a_figure_selects_its_grids(campaign_file: Callable[..., Path], figure: str) -> None:
    other = {**ONE_CELL[0], "name": "other", "figures": ["10"]}
    path = campaign_file(grids=[*TINY["grids"], other])
    report = dry_run(Request(str(path), figure=figure, artifacts=path.parent / "none"))
    assert report.cells == 8


@pytest.mark.parametrize("name", ["dlr-quick", "dlr-full", "dlr-paper"])
def test_the_campaigns_that_come_with_hotbed_are_right(name: str) -> None:
    path = FILES / f"{name}.yaml"
    campaign = load_campaign(path)
    assert campaign.name == name
    root = FILES.parents[1]
    spec = load_spec(root / campaign.spec)
    cells = validate(campaign, path, controllers=available(), spec=spec)
    assert all(isinstance(cell, DlrCell) for typed in cells.values() for cell in typed)
    assert (root / campaign.notebook).is_file()


FIGURES = {"1a", "1b", "1c", "1d", "3", "4", "5", "6a", "6b", "6c", "7", "8a", "8b", "8c", "9"}


@pytest.mark.parametrize("name", ["dlr-full", "dlr-paper"])
def test_full_and_paper_feed_every_figure(name: str) -> None:
    campaign = load_campaign(FILES / f"{name}.yaml")
    assert set(figures_of(campaign)) >= FIGURES | {"10", "11"}


def _no_testbed(*_: object) -> None:
    raise UserError("no testbed is asked by a unit test")


def test_quick_fits_its_time_and_every_full_figure_half_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = replace(KIND.grounds["local"], open=_no_testbed)
    monkeypatch.setitem(KIND.grounds, "local", local)
    quick = dry_run(Request("dlr-quick", artifacts=tmp_path))
    assert quick.cells == 30
    assert quick.pending_s <= 22 * 60
    for figure in figures_of(load_campaign(FILES / "dlr-full.yaml")):
        report = dry_run(Request("dlr-full", figure=figure, artifacts=tmp_path))
        assert report.pending_s <= 30 * 60, figure
