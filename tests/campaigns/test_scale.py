"""Cells of stores of any size, and the sweeps of `hotbed scale`."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.plan import raw_cells
from campaigns.engine.session import Request
from campaigns.scale import CAMPAIGN, ScaleRequest, request, vary
from schemas.cells.dlr import DLR
from schemas.errors import UserError
from tests.errors import raises

GRID: dict[str, Any] = {
    "name": "osds",
    "figures": ["osds"],
    "vary": {"osds": [8, 20], "controller": ["default", "dlr"]},
    "fixed": {"op": "rand", "scenario": "heterogeneity", "hot_share": 0.25},
    "repetitions": 1,
}


@settings(deadline=None)
@given(share=st.floats(0.001, 1), nodes=st.integers(1, 10_000))
def test_a_share_is_at_least_one_node_and_never_too_many(share, nodes):
    count = DLR.of(op="seq", hot_share=share).hot_count(nodes)
    assert 1 <= count <= nodes
    assert count == 1 or abs(count - share * nodes) <= 0.5 + 1e-9


def test_more_hot_nodes_than_the_store_has_are_refused(campaign_file):
    fixed = {**GRID["fixed"], "hot_share": None, "osds": 3}
    grid = {**GRID, "vary": {"controller": ["dlr"]}, "fixed": fixed}
    file = campaign_file(ground="sim", parameters={}, grids=[grid])
    with raises(UserError, "cell has 3 OSD nodes"):
        session.prepare(Request(str(file)), need_ground=False)


def test_only_the_simulator_makes_stores_of_any_size(campaign_file):
    file = campaign_file(ground="local", parameters={}, grids=[GRID])
    with pytest.raises(UserError):
        session.prepare(Request(str(file)), need_ground=False)
    assert session.prepare(Request(str(file), ground="sim"), need_ground=False).plan.cells


def test_a_limit_grows_with_the_store(campaign_file):
    """The limit also grows for a requested size that the campaign lacks."""
    asked = ScaleRequest(osds=[100, 300, 10_000], figure="osds", controllers=["dlr-pg", "dlr"])
    for cell in session.prepare(request(asked), need_ground=False).plan.cells:
        swaps = {"max_swaps": 8 * (cell.parameters.osds or 0)}
        is_pg = cell.parameters.controller == "dlr-pg"
        assert cell.parameters.controller_parameters == (swaps if is_pg else {})
    # Other controllers keep their parameters, and a cell's own value takes precedence.
    grown: dict[str, Any] = {"controller_parameters_per_osd": {"dlr-pg": {"max_swaps": 8}}}
    own: dict[str, Any] = {**GRID, "vary": {"controller": ["dlr_pg"]}}
    for fixed, said in (
        ({"osds": 20}, {"max_swaps": 160}),
        ({"osds": 20, "controller_parameters": {"max_swaps": 3}}, {"max_swaps": 3}),
        ({"osds": None}, {}),
    ):
        grid = own | {"fixed": {**GRID["fixed"], **fixed}}
        file = campaign_file(ground="sim", parameters={}, grids=[grid], **grown)
        (cell,) = session.prepare(Request(str(file)), need_ground=False).plan.cells
        assert cell.parameters.controller_parameters == said


@pytest.mark.parametrize(
    ("per_osd", "said"),
    [
        ({"nobody": {"max_swaps": 8}}, "per_osd"),
        ({"dlr-pg": {"max_swops": 8}}, "max_swops"),
        ({"dlr-pg": {"max_swaps": 0.3}}, "max_swaps"),
    ],
)
def test_a_limit_that_cannot_be_is_one_sentence(campaign_file, per_osd, said):
    grid = {**GRID, "vary": {"controller": ["dlr-pg"]}, "fixed": {**GRID["fixed"], "osds": 21}}
    file = campaign_file(
        ground="sim", parameters={}, grids=[grid], controller_parameters_per_osd=per_osd
    )
    with raises(UserError, said) as raised:
        session.prepare(Request(str(file)), need_ground=False)
    assert "\n" not in str(raised.value)


@settings(deadline=None, max_examples=50)
@given(
    osds=st.lists(st.integers(2, 10_000), min_size=1, max_size=5),
    hot=st.lists(st.floats(0.01, 1), min_size=1, max_size=5),
)
def test_every_value_asked_for_is_run_once(osds, hot):
    campaign = vary(load_campaign(find_campaign(CAMPAIGN)), ScaleRequest(osds=osds, hot=hot))
    for figure in ("osds", "hot", "move"):
        grids = [grid for grid in campaign.grids if figure in grid.figures]
        cells = [cell for grid in grids for cell in raw_cells(campaign, grid)]
        assert {cell["osds"] for cell in cells} <= set(osds)
    runs = [
        cell
        for grid in campaign.grids
        if "osds" in grid.figures
        for cell in raw_cells(campaign, grid)
    ]
    assert {cell["osds"] for cell in runs} == set(osds)
    keys = [(cell["osds"], cell["controller"]) for cell in runs]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (ScaleRequest(osds=[]), "--osds is empty"),
        (ScaleRequest(blocks=0), "--blocks: 0"),
        (ScaleRequest(osds=[0]), "osds: 0 is not allowed"),
        (ScaleRequest(move=[math.inf]), "move_every_s"),
        (ScaleRequest(controllers=["nobody"]), "'nobody'"),
        (ScaleRequest(figure="6"), "'6'"),
    ],
)
def test_a_sweep_that_cannot_be_is_one_sentence(ask, said):
    with raises(UserError, said):
        session.prepare(request(ask), need_ground=False)
