"""Campaign files: refusals in one sentence with file, grid, key and allowed values, and the
expansion of grids into cells."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_campaigns import ONE_CELL, TINY, plan_of, tiny

from campaigns.engine.campaign_file import FILES, find_campaign, load_campaign
from campaigns.engine.plan import block_seed
from campaigns.engine.session import Request, dry_run, prepare
from campaigns.papers.dlr.kind import KIND
from campaigns.validate import figures_of
from schemas.errors import UserError
from testbed.closure import Closure
from tests.errors import raises


def grid(**changes: Any) -> list[dict[str, Any]]:
    return [{**ONE_CELL[0], **changes}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grids": grid(fixed={"scenaro": "none"})}, ["grid one", "scenaro", "op, scenario"]),
        ({"grids": grid(fixed={"controller": "dir"})}, ["controller", "'dir'", "default", "dlr"]),
        (
            {"grids": grid(fixed={"controller": "dlr", "controller_parameters": {"theta": 1}})},
            ["grid one", "controller_parameters", "theta"],
        ),
        ({"grids": grid(fixed={"hot_nodes": 9})}, ["hot_nodes", "9", "8 OSD nodes"]),
        ({"grids": grid(exclude=[{"op": "seq"}])}, ["grid one", "leaves no cell"]),
        ({"grids": grid(exclude=[{"opp": "seq"}])}, ["grid one", "exclude", "'opp'"]),
        ({"grids": grid(repetitions=0)}, ["grid one", "repetitions", "a number of at least 1"]),
        ({"grids": grid(vary={"op": []})}, ["grid one", "vary.op is empty"]),
        ({"grids": grid(vary={"op": ["seq", "seq"]})}, ["vary.op names a value twice"]),
        ({"grids": grid(fixed={"op": "seq"})}, ["op is both varied and fixed"]),
        ({"grids": []}, ["grids", "at least 1"]),
        ({"tries": 3}, ["tries", "no such key", "retries?"]),
        ({"ground": "moon"}, ["ground", "local"]),
        ({"spec": "nowhere.yaml"}, ["nowhere.yaml", "neither next to"]),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(campaign_file, changes, words):
    path = campaign_file(**changes)
    with pytest.raises(UserError) as error:
        dry_run(Request(str(path), artifacts=path.parent / "artifacts"))
    for word in [str(path), *words]:
        assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert not (path.parent / "artifacts").exists()


def test_a_missing_or_broken_file_is_named(tmp_path):
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


def test_an_unknown_figure_is_refused_with_those_there_are(campaign_file):
    path = campaign_file()
    with raises(UserError, "'9'", "6b", allowed="6a"):
        dry_run(Request(str(path), figure="9", artifacts=path.parent))


@pytest.mark.parametrize("figure", ["6", "6a", "fig6", "figure 6b"])
def test_a_figure_selects_its_grids(campaign_file, figure):
    other = {**ONE_CELL[0], "name": "other", "figures": ["10"]}
    path = campaign_file(grids=[*TINY["grids"], other])
    report = dry_run(Request(str(path), figure=figure, artifacts=path.parent / "none"))
    assert report.cells == 8


@pytest.mark.parametrize("file", sorted(FILES.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_campaign_of_hotbed_is_whole(file, tmp_path):
    campaign = load_campaign(file)
    assert campaign.name == file.stem
    cells = prepare(Request(file.stem, artifacts=tmp_path), need_ground=False).plan.cells
    assert {name for cell in cells for name in cell.grids} == {grid.name for grid in campaign.grids}
    assert all(cell.planned_s > 0 for cell in cells)
    assert not list(tmp_path.iterdir())


def _no_testbed(*_: object) -> None:
    raise UserError("no testbed is asked by a unit test")


def test_quick_fits_its_time_and_every_full_figure_half_an_hour(tmp_path, monkeypatch):
    local = replace(KIND.grounds["local"], open=_no_testbed)
    monkeypatch.setitem(KIND.grounds, "local", local)
    quick = dry_run(Request("dlr-quick", artifacts=tmp_path))
    assert quick.cells == 30
    assert quick.pending_s <= 22 * 60
    cells = prepare(Request("dlr-full", artifacts=tmp_path), need_ground=False).plan.cells
    for figure in figures_of(load_campaign(FILES / "dlr-full.yaml")):
        planned_s = sum(cell.planned_s for cell in cells if figure in cell.figures)
        assert 0 < planned_s <= 30 * 60, figure


def test_on_another_spec_a_campaign_has_a_folder_and_draws_of_its_own(tmp_path):
    spec = FILES.parents[1] / "testbed" / "specs" / "dlr-hdd5400-6.yaml"
    made = [
        prepare(Request("dlr-shapes", spec=other, artifacts=tmp_path), need_ground=False)
        for other in (None, spec)
    ]
    own, moved = (one.campaign for one in made)
    assert (own.name, moved.name) == ("dlr-shapes", "dlr-shapes-dlr-hdd5400-6")
    assert own.seed != moved.seed
    assert made[1].testbed == "dlr-hdd5400-6"
    hot = {cell.parameters.hot_count(6) for cell in made[1].plan.cells}
    assert hot == {3}
    with raises(UserError, "leave out --spec"):
        prepare(Request("ursa-quick", spec=spec, artifacts=tmp_path), need_ground=False)


# Expansion of grids into cells, blocks and run ids.


OPS = ["write", "seq", "rand"]
CONTROLLERS = ["default", "reweight", "dlr", "oracle"]


@given(
    ops=st.lists(st.sampled_from(OPS), min_size=1, unique=True),
    controllers=st.lists(st.sampled_from(CONTROLLERS), min_size=1, unique=True),
    blocks=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_block_holds_every_cell_once(ops, controllers, blocks, seed):
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


def test_a_block_holds_repeats_of_a_cell_under_their_own_ids():
    once = plan_of(tiny())
    plan = plan_of(tiny(grids=[{**TINY["grids"][0], "repeats": 3}]))
    assert len({cell.run_id for cell in plan.cells}) == len(plan.cells) == 3 * len(once.cells)
    assert {cell.run_id for cell in once.cells} < {cell.run_id for cell in plan.cells}
    times = Counter((cell.block, cell.parameters.label()) for cell in plan.cells)
    assert set(times.values()) == {3}


def test_the_order_is_random_and_repeatable():
    campaign = tiny(grids=[{**TINY["grids"][0], "repetitions": 30}])
    first = plan_of(campaign)
    assert first == plan_of(campaign)
    leads = Counter(cell.parameters.controller for cell in first.cells if cell.order == 0)
    assert leads["default"] >= 5
    assert leads["dlr"] >= 5


def test_cells_that_need_the_same_objects_follow_each_other():
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


def test_grids_share_equal_cells():
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


def test_the_run_id_depends_on_what_matters_alone():
    plan = plan_of(tiny())
    ids = {cell.run_id for cell in plan.cells}
    same = plan_of(tiny(name="other", retries=5), versions={"ceph": "16", "python": "3.13"})
    assert {cell.run_id for cell in same.cells} == ids
    for changed in (
        plan_of(tiny(), versions={"ceph": "17"}),
        plan_of(tiny(), versions={"ceph": "16", "packages": "ceph-osd=16-2"}),
        plan_of(tiny(), versions={"ceph": "16", "nfs-ganesha": "6.5"}),
        plan_of(tiny(), spec_digest="another"),
        plan_of(tiny(), site="inventory"),
        plan_of(tiny(), code=Closure((), "changed")),
        plan_of(tiny(time_scale=0.002)),
        plan_of(tiny(seed=9)),
        plan_of(tiny(parameters={"duration_s": 11})),
    ):
        assert not ids & {cell.run_id for cell in changed.cells}
