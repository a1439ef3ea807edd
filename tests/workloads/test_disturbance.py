"""Properties of disturbance plans."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.agent.disturb import steps_from_json
from tests.errors import raises
from workloads.disturbance import DisturbancePlan, agent_plan, load_of, plan_disturbance

NODES = tuple(f"osd{index}" for index in range(8))
seeds = st.integers(0, 2**32)
scenarios = st.sampled_from(
    [
        {"scenario": "heterogeneity"},
        {"scenario": "interference", "move_every_s": 15.0},
        {"scenario": "mix", "mix": "C"},
        {"scenario": "spread", "spread": 0.75},
        {"scenario": "none"},
    ]
)


def plan(**changes: Any) -> DisturbancePlan:
    values: dict[str, Any] = {"seed": 1, "duration_s": 60.0} | changes
    return plan_disturbance(values.pop("scenario"), values.pop("nodes", NODES), **values)


@given(seeds, st.integers(2, 20), st.data())
def test_the_planned_number_of_nodes_is_hot_at_any_time(
    seed: int, count: int, data: st.DataObject
) -> None:
    nodes = tuple(f"n{index}" for index in range(count))
    hot = data.draw(st.integers(1, count))
    t_s = data.draw(st.floats(-50, 200))
    for scenario in ("heterogeneity", "interference"):
        drawn = plan(scenario=scenario, nodes=nodes, seed=seed, hot_nodes=hot, move_every_s=7.0)
        assert len(drawn.at(t_s).hot) == hot
        assert drawn.at(t_s).hot <= set(nodes)
        assert set(drawn.at(t_s).loads.values()) == {None}


@given(seeds, st.integers(2, 12), st.data())
def test_a_balanced_design_makes_nodes_hot_equally_often(
    design: int, count: int, data: st.DataObject
) -> None:
    nodes = tuple(f"n{index}" for index in range(count))
    hot = data.draw(st.integers(1, count))
    times = Counter(dict.fromkeys(nodes, 0))
    for block in range(12):
        cells = [
            plan(
                scenario="heterogeneity",
                nodes=nodes,
                hot_nodes=hot,
                design=(design, block),
                seed=seed,
            )
            for seed in (1, 2)
        ]
        assert cells[0].at(0).hot == cells[1].at(0).hot, "the block's seed does not matter"
        assert len(cells[0].at(0).hot) == hot
        times.update(cells[0].at(0).hot)
        assert max(times.values()) - min(times.values()) <= 1


def test_blocks_of_a_balanced_design_differ() -> None:
    sets = [
        plan(scenario="heterogeneity", design=(1, block)).at(0).hot for block in range(0, 40, 2)
    ]
    assert len(set(sets)) > 10


@given(seeds, st.integers(2, 8), st.data())
def test_where_too_few_others_are_left_some_node_changes(
    seed: int, count: int, data: st.DataObject
) -> None:
    nodes = NODES[:count]
    hot = data.draw(st.integers(1, count))
    drawn = plan(scenario="interference", nodes=nodes, seed=seed, hot_nodes=hot, move_every_s=9.0)
    for before, after in pairwise(drawn.stretches):
        assert 2 * hot > count or not after.hot & before.hot
        assert after.hot != before.hot or hot == count


@given(seeds, st.floats(1, 40))
def test_interference_moves_when_it_should_and_to_other_nodes(seed: int, every: float) -> None:
    stretches = plan(scenario="interference", seed=seed, move_every_s=every).stretches
    assert stretches[0].t_s == 0
    for before, after in pairwise(stretches):
        assert after.t_s - before.t_s == pytest.approx(every)
        assert not after.hot & before.hot  # "four other random OSDs" (section V-D)
    assert stretches[-1].t_s < 60.0 <= stretches[-1].t_s + every + 1e-6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scenario": "heterogeneity", "hot_nodes": 9}, "allowed: 1 to 8"),
        ({"scenario": "mix", "mix": "F"}, "A, B, C, D, E"),
        ({"scenario": "spread", "spread": 1.5}, "from 0 to 1"),
        ({"scenario": "interference", "move_every_s": 0.0}, "positive"),
        ({"scenario": "chaos"}, "heterogeneity"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    with raises(UserError, message):
        plan(**changes)


def replay(steps: list[dict[str, Any]], t_s: float) -> set[str]:
    running: set[str] = set()
    for step in steps_from_json(steps):
        if step.t_s > t_s:
            break
        assert (step.node in running) is (step.argv is None), "a stop of nothing, a second start"
        running ^= {step.node}
    return running


@given(seeds, st.floats(0, 59.9), scenarios)
def test_the_agents_steps_carry_out_the_plan(seed: int, t_s: float, chosen: dict[str, Any]) -> None:
    drawn = plan(seed=seed, **chosen)
    assert drawn == plan(seed=seed, **chosen)
    assert chosen["scenario"] != "heterogeneity" or len(drawn.stretches) == 1
    steps = agent_plan(drawn, load_of(2**27, dict.fromkeys(NODES, 200.0)), max_s=90)
    assert replay(steps, t_s) == drawn.at(t_s).hot


def test_offered_loads_become_rates_of_the_nodes_own_disk() -> None:
    """They block: load by libaio below a full queue appears in no signal (docs/queue-disk.md)."""
    drawn = plan(scenario="mix", mix="B")
    load = load_of(2**27, dict.fromkeys(NODES, 200.0))
    steps = agent_plan(drawn, load, max_s=90)
    assert {step["rate_iops"] for step in steps} == {50.0}
    for step in steps:  # for each of four jobs
        assert {"--rate_iops=12", "--ioengine=psync"} <= set(step["argv"])
    assert "--ioengine=libaio" in load(NODES[0], None).argv(10)
    with raises(UserError, do="measure it first"):
        agent_plan(drawn, load_of(2**27, {}), max_s=90)


def test_a_mix_by_size_reads_the_papers_files_through_the_page_cache() -> None:
    drawn = plan(scenario="mix", mix="A", mix_by_size=True)
    for step in agent_plan(drawn, load_of(2**27, {}), max_s=90):
        assert "--size=250000000" in step["argv"] and "--direct=0" in step["argv"]
        assert step["rate_iops"] is None


def seeds_of(seed: int) -> dict[tuple[str, float], str]:
    drawn = plan(scenario="interference", seed=seed, move_every_s=15.0)
    return {
        (step["node"], step["t_s"]): word
        for step in agent_plan(drawn, load_of(2**27, {}), max_s=90)
        for word in step["argv"] or ()
        if word.startswith("--randseed=")
    }


def test_arrivals_are_the_blocks_and_differ_between_nodes_and_moves() -> None:
    assert seeds_of(3) == seeds_of(3) != seeds_of(4)
    assert len(set(seeds_of(3).values())) == len(seeds_of(3)) >= 8
