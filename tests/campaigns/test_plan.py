"""Expansion of grids into cells, blocks and run ids."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tiny_campaigns import TINY, plan_of, tiny

from campaigns.engine.plan import block_seed, raw_cells
from testbed.closure import Closure

OPS = ["write", "seq", "rand"]
CONTROLLERS = ["default", "reweight", "dlr", "oracle"]


@given(
    ops=st.lists(st.sampled_from(OPS), min_size=1, unique=True),
    controllers=st.lists(st.sampled_from(CONTROLLERS), min_size=1, unique=True),
    blocks=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_block_holds_every_cell_once(
    ops: list[str], controllers: list[str], blocks: int, seed: int
) -> None:
    grid = {
        **TINY["grids"][0],
        "vary": {"op": ops, "controller": controllers},
        "repetitions": blocks,
    }
    plan = plan_of(tiny(grids=[grid], seed=seed))
    wanted = set(itertools.product(ops, controllers))
    assert len({cell.run_id for cell in plan.cells}) == len(plan.cells)
    for block in range(blocks):
        cells = [cell for cell in plan.cells if cell.block == block]
        assert {(c.parameters.op, c.parameters.controller) for c in cells} == wanted
        assert len(cells) == len(wanted)
        assert [cell.order for cell in cells] == list(range(len(cells)))
        assert {cell.seed for cell in cells} == {block_seed(seed, block)}
    assert [cell.block for cell in plan.cells] == sorted(cell.block for cell in plan.cells)


def test_the_order_is_random_and_repeatable() -> None:
    campaign = tiny(grids=[{**TINY["grids"][0], "repetitions": 30}])
    first = plan_of(campaign)
    assert first == plan_of(campaign)
    leads = Counter(cell.parameters.controller for cell in first.cells if cell.order == 0)
    assert leads["default"] >= 5
    assert leads["dlr"] >= 5


def test_cells_that_need_the_same_objects_follow_each_other() -> None:
    vary = {"op": OPS, "object_size": [65536, 4194304], "controller": CONTROLLERS}
    grid = {**TINY["grids"][0], "vary": vary, "repetitions": 20}
    plan = plan_of(tiny(grids=[grid]))
    firsts = set()
    for block in range(20):
        cells = [cell.parameters for cell in plan.cells if cell.block == block]
        needs = ["" if c.op == "write" else c.object_size for c in cells]
        assert [len(list(same)) for _, same in itertools.groupby(needs)] == [8, 8, 8]
        firsts.add((cells[0].op, cells[0].object_size, cells[0].controller))
    assert len(firsts) > 8  # still random, between and within groups


def test_grids_share_equal_cells() -> None:
    grid = TINY["grids"][0]
    other = {
        "name": "fig1",
        "figures": ["1a"],
        "vary": {"op": ["seq"]},
        "fixed": {"scenario": "heterogeneity", "controller": "default"},
        "repetitions": 3,
    }
    plan = plan_of(tiny(grids=[grid, other]))
    assert len(plan.cells) == 4 * 2 + 1
    shared = [cell for cell in plan.cells if len(cell.grids) == 2]
    assert [cell.figures for cell in shared] == [("6a", "6b", "1a")] * 2


def test_exclude_drops_cells() -> None:
    grid = {**TINY["grids"][0], "exclude": [{"op": "rand", "controller": "dlr"}]}
    campaign = tiny(grids=[grid])
    left = [(raw["op"], raw["controller"]) for raw in raw_cells(campaign, campaign.grids[0])]
    assert left == [("seq", "default"), ("seq", "dlr"), ("rand", "default")]


def test_the_run_id_depends_on_what_matters_alone() -> None:
    plan = plan_of(tiny())
    ids = {cell.run_id for cell in plan.cells}
    same = plan_of(tiny(name="other", retries=5), versions={"ceph": "16", "python": "3.13"})
    assert {cell.run_id for cell in same.cells} == ids
    for changed in (
        plan_of(tiny(), versions={"ceph": "17"}),
        plan_of(tiny(), spec_digest="another"),
        plan_of(tiny(), site="inventory"),
        plan_of(tiny(), code=Closure((), "changed")),
        plan_of(tiny(time_scale=0.002)),
        plan_of(tiny(seed=9)),
        plan_of(tiny(parameters={"duration_s": 11})),
    ):
        assert not ids & {cell.run_id for cell in changed.cells}
