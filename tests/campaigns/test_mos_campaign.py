"""Cells of microstores: allowed parameters, requests, and division of the pool."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.plan import Cell, block_order
from campaigns.engine.session import Request, prepare, typed_cells
from campaigns.papers.mos.course import COURSES, layers, workers_at
from campaigns.papers.mos.division import LARGE, MEGABIT, SMALL, Pool, division_of, problem
from campaigns.papers.mos.kind import planned_s
from campaigns.papers.mos.loads import length_s, loads_of, measured, objects_of
from campaigns.validate import figures_of, select
from schemas.campaign import MosCampaign
from schemas.cells.mos import MOS
from schemas.errors import UserError

FIGURES = {
    *("1", "2", "3a", "3b", "3c", "4a", "4b", "5"),
    *("8", "9", "10", "11a", "11b", "11c", "12"),
}
HALF_HOUR, QUICK_S = 1800, 200


@pytest.mark.parametrize("name", ["mos-quick", "mos-local"])
def test_campaigns_are_whole(name: str, tmp_path: Path) -> None:
    file = find_campaign(name)
    campaign = load_campaign(file)
    assert isinstance(campaign, MosCampaign)
    request = Request(name, artifacts=tmp_path)
    prepared = prepare(request)
    pool = Pool()
    for typed in typed_cells(campaign, file).values():
        for parameters in typed:
            whole = parameters.experiment in ("load", "adaptation")
            assert problem(division_of(parameters, pool), pool, whole=whole) is None
    assert session.dry_run(request).cells == len(prepared.plan.cells)


def test_every_figure_takes_half_an_hour_at_most() -> None:
    file = find_campaign("mos-local")
    campaign = load_campaign(file)
    cells = typed_cells(campaign, file)
    assert set(figures_of(campaign)) == FIGURES
    for figure in FIGURES:
        chosen = select(campaign, cells, figure, file)
        repetitions = {grid.name: grid.repetitions for grid in campaign.grids}
        assert all(repetitions[name] >= 3 for name in chosen)
        took = sum(repetitions[name] * sum(map(planned_s, typed)) for name, typed in chosen.items())
        assert took <= HALF_HOUR, figure
    quick = load_campaign(find_campaign("mos-quick"))
    (grid,) = quick.grids
    (typed,) = typed_cells(quick, find_campaign("mos-quick")).values()
    assert grid.repetitions * sum(map(planned_s, typed)) <= QUICK_S


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "experiment is missing; allowed: setups, sizes, proxy, storage, network, disks, load"),
        ({"experiment": "setups", "speed": 1}, "unknown parameter 'speed'"),
        (
            {"experiment": "setups", "setup": "static"},
            "setup: 'static' is not allowed; allowed",
        ),
        (
            {"experiment": "load", "setup": "favors-small"},
            "not allowed; allowed: default, static",
        ),
        (
            {"experiment": "load", "object_kb": 10},
            "object_kb belongs to experiment sizes: leave",
        ),
        ({"experiment": "proxy", "ssds": 1}, "ssds belongs to experiment network, disks: leave"),
        ({"experiment": "disks", "ssds": 0, "hdds": 0}, "storage servers need a disk"),
        ({"experiment": "proxy", "proxies": 3}, "proxies: 3 is not allowed; allowed: a whole"),
        ({"experiment": "disks", "ssds": True}, "ssds: True is not allowed"),
        ({"experiment": "disks", "ssds": "x"}, "ssds: 'x' is not allowed"),
    ],
)
def test_a_mistake_in_a_cell_is_a_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        MOS.check(values, "file")


def test_disks_that_are_no_ssds_are_hdds() -> None:
    found = [MOS.of(experiment="disks", workload="C", ssds=n) for n in range(4)]
    assert [(one.ssds, one.hdds) for one in found] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    for one in found:
        assert MOS.check(one.model_dump(mode="json"), "again") == one


steps_of_load = st.lists(st.integers(0, 12), min_size=1, max_size=12).map(
    lambda counts: [(float(3 * at), count) for at, count in enumerate(counts)]
)


@settings(max_examples=40)
@given(steps=steps_of_load.filter(lambda steps: any(count for _, count in steps)))
def test_layers_are_as_many_workers_as_steps_say(steps: list[tuple[float, int]]) -> None:
    ends = steps[-1][0] + 3
    found = layers(steps, ends)
    for minute in [at + 0.5 for at, _ in steps]:
        there = sum(one.workers for one in found if one.begins <= minute < one.ends)
        assert there == workers_at(steps, minute)
    assert all(one.begins < one.ends <= ends for one in found)
    assert len({(one.begins, one.ends) for one in found}) == len(found)


def test_steps_that_do_not_rise_are_refused() -> None:
    for steps in ([], [(1.0, 2)], [(0.0, 1), (0.0, 2)], [(0.0, 1), (9.0, 2)]):
        with pytest.raises(ValueError, match="must begin at 0 and rise"):
            layers(steps, 8.0)


@pytest.mark.parametrize("name", list(COURSES))
def test_courses_are_section_8_1_s(name: str) -> None:
    course = COURSES[name]
    small, large = (course.steps[letter] for letter in "AC")
    first, second, third = course.stages
    assert first == 0
    assert workers_at(large, 0) > workers_at(small, 0)  # stage 1: large objects dominate
    assert workers_at(small, second) > 4 * workers_at(small, second - 1)  # A spikes
    between = [count for at, count in small if second <= at < third]
    assert all(b < a for a, b in pairwise(between))  # then A gradually shifts down
    rising = [count for at, count in large if second <= at < third]
    assert all(b > a for a, b in pairwise(rising))  # while C slowly increases
    assert rising[0] < workers_at(large, second - 1)
    assert workers_at(small, third) == max(count for _, count in small)
    assert workers_at(large, third) * 2 == workers_at(large, third - 1)
    spike_ends = next(at for at, _ in small if at > second)
    assert spike_ends - second >= 3 * 3  # epochs of three minutes
    if name == "paper":
        assert course.stages == (0, 40, 230)


def test_what_cells_send() -> None:
    four = loads_of(MOS.of(experiment="setups", small_workers=6, large_workers=3))
    assert [(one.letter, one.workers) for one in four] == [("A", 6), ("B", 6), ("C", 3), ("D", 3)]
    assert [one.mix for one in four] == [(90, 5, 5), (5, 90, 5)] * 2
    assert [one.objects.most for one in four] == [128_000] * 2 + [16_000_000] * 2
    load = MOS.of(experiment="load", setup="mos-pp", settle_epochs=2, epoch_s=10)
    assert {one.rampup_s for one in loads_of(load)} == {22.0}
    assert measured(load) == (22.0, 34.0)
    assert measured(load.model_copy(update={"setup": "static"})) == measured(load)
    sizes = MOS.of(experiment="sizes", object_kb=16_000)
    (one,) = loads_of(sizes)
    assert (one.objects.least, one.objects.most, one.mix) == (16_000_000, 16_000_000, (100, 0, 0))
    assert one.objects.containers * one.objects.each == 4
    course = MOS.of(experiment="adaptation", setup="mos-pp")
    assert length_s(course) == 42 * 4
    assert measured(course) == (0.0, 168.0)


def test_cells_that_read_the_same_follow_each_other() -> None:
    one = MOS.of(experiment="setups", setup="default")
    assert one.contents() == MOS.of(experiment="setups", setup="favors-small").contents()
    assert one.contents() != MOS.of(experiment="setups", large_mb=4).contents()


def test_setups_at_one_load_follow_each_other() -> None:
    """Compared setups must be measured within minutes of each other."""
    cells = [
        MOS.of(experiment="load", setup=setup, small_workers=small, large_workers=large)
        for setup in ("default", "static", "mos-pp")
        for small, large in ((2, 16), (8, 8))
    ]
    found = {
        name: Cell(name, cell, 0, 1, 0, ("load",), ("8",))
        for name, cell in zip("abcdef", cells, strict=True)
    }
    for seed in range(20):
        loads = [found[name].parameters.contents() for name in block_order(found, seed)]
        assert loads[0] == loads[1] == loads[2] != loads[3] == loads[4] == loads[5]
    prefixes = {
        objects_of(MOS.of(experiment="setups", large_mb=size), "C").prefix for size in (4, 16)
    }
    assert len(prefixes) == 2  # objects of different sizes have different names


# Division of the pool.

POOL = Pool()


def test_static_is_section_8_1_s() -> None:
    found = division_of(MOS.of(experiment="load", setup="static"), POOL)
    small, large = found.shares[SMALL], found.shares[LARGE]
    assert (small.proxy_cores, large.proxy_cores) == (0.6, 0.2)
    assert (small.storage_cores, large.storage_cores) == (0.6, 0.2)
    assert small.network == pytest.approx(120 * MEGABIT)
    assert large.network == pytest.approx(280 * MEGABIT)
    for setup in ("mos", "mos-pp"):
        assert division_of(MOS.of(experiment="load", setup=setup), POOL) == found
    default = division_of(MOS.of(experiment="adaptation", setup="default"), POOL)
    assert default.layout == "default"
    assert default.shares[SMALL] == default.shares[LARGE]


def test_section_1_s_proxies_change_hands() -> None:
    found = {
        setup: division_of(MOS.of(experiment="setups", setup=setup), POOL)
        for setup in ("default", "favors-small", "favors-large")
    }
    small, large = found["favors-small"].shares, found["favors-large"].shares
    assert small[SMALL] == large[LARGE]
    assert small[LARGE] == large[SMALL]
    # 32 cores behind 1 Gbit/s, 8 cores behind 10 Gbit/s.
    assert small[SMALL].network == 10 * small[LARGE].network
    assert small[SMALL].proxy_cores < small[LARGE].proxy_cores
    assert set(found["default"].shares.values()) == set(small.values())
    assert [one.layout for one in found.values()] == ["default", "static", "static"]
    assert len({one.storage_cores for one in small.values()}) == 1


def test_one_workload_alone_has_what_it_asks_for() -> None:
    one = division_of(
        MOS.of(experiment="proxy", workload="C", proxy_cores=0.05, proxy_workers=2), POOL
    )
    share = one.shares[LARGE]
    assert (share.proxy_cores, share.proxy_workers, share.storage_cores) == (0.05, 2, 0.7)
    assert one.shares[SMALL] == POOL.step
    assert one.disks == ()
    two = division_of(MOS.of(experiment="proxy", proxies=2, proxy_cores=0.4), POOL)
    assert two.layout == "default"
    assert {share.proxy_cores for share in two.shares.values()} == {0.4}
    assert sum(share.storage_cores for share in two.shares.values()) == pytest.approx(0.7)
    mixed = division_of(MOS.of(experiment="disks", workload="C", ssds=2), POOL)
    assert [disk.positioning < 0.001 for disk in mixed.disks] == [True, True, False]


def test_what_a_pool_cannot_give_is_told() -> None:
    load = division_of(MOS.of(experiment="load", setup="static"), POOL)
    poor = Pool(total=POOL.step)
    assert "0.8 cores of proxies are asked for, and the pool has 0.1" in str(
        problem(load, poor, whole=True)
    )
    mixed = division_of(MOS.of(experiment="disks", workload="C", ssds=2), POOL)
    assert problem(mixed, POOL, whole=False) is None
    assert "3 disks of each storage server are asked for, not 1" in str(
        problem(mixed, Pool(disks=1), whole=False)
    )
