"""Legality and budget of every action of `ursa` and `htoc`, on any store."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from clusters import observations
from hypothesis import given, settings
from hypothesis import strategies as st
from ursa_stores import steering

from controllers.legality import illegal
from testbed.stores.contract import (
    Activity,
    MoveReplica,
    Observation,
    OpRates,
    SwapPrimary,
    observation_to_json,
)

pytestmark = pytest.mark.slow

RATE = st.floats(0, 50, width=32)


@st.composite
def busy(draw: st.DrawFn) -> Observation:
    """Draw any cluster under any load, with PGs in transit."""
    seen = draw(observations(8, 24))
    pgs = {pg.id: OpRates(draw(RATE), draw(RATE)) for pg in seen.pgs if draw(st.integers(0, 5))}
    osds = {osd.id: OpRates(draw(RATE), draw(RATE)) for osd in seen.osds if draw(st.booleans())}
    unclean = tuple(pg.id for pg in seen.pgs if not draw(st.integers(0, 8)))
    racks = tuple(replace(osd, rack=f"rack{osd.id % 3}") for osd in seen.osds)
    return replace(seen, osds=racks, activity=Activity(pgs, osds, unclean))


BUDGETS = st.fixed_dictionaries(
    {
        "capacity": st.floats(0, 200),
        "max_swaps": st.integers(0, 4),
        "max_moves": st.integers(0, 4),
        "max_recovery_mb": st.floats(1, 3000),
    }
)


@given(st.lists(busy(), min_size=1, max_size=3), st.sampled_from(["ursa", "htoc"]), BUDGETS)
@settings(max_examples=60, deadline=None)
def test_every_action_is_legal_and_within_the_budget(seen, name, budgets):
    max_swaps, max_moves = budgets["max_swaps"], budgets["max_moves"]
    budget = budgets["max_recovery_mb"]
    policy = steering(name, threshold=1.0, observe_s=0, **budgets)
    state = policy.initial()
    for observation in seen:
        before = json.dumps([state, observation_to_json(observation)])
        after, actions = policy.decide(state, observation)
        assert json.dumps([state, observation_to_json(observation)]) == before  # not mutated
        assert illegal(actions, observation, policy.needs) is None
        swaps = [action for action in actions if isinstance(action, SwapPrimary)]
        moves = [action for action in actions if isinstance(action, MoveReplica)]
        assert len(swaps) + len(moves) == len(actions)
        assert not (swaps and moves)
        assert len(swaps) <= max_swaps
        assert len(moves) <= max_moves
        _within(observation, moves, budget)
        _separate(observation, moves)
        again, same = policy.decide(state, observation)
        assert (again, list(same)) == (after, list(actions))
        state = json.loads(json.dumps(after))


def _within(observation: Observation, moves: list[MoveReplica], budget: float) -> None:
    assert observation.activity is not None
    size = {pg.id: pg.bytes for pg in observation.pgs}
    under_way = {pg for pg in observation.activity.unclean if pg in size}
    assert len({move.pg for move in moves}) == len(moves)
    total = sum(size[pg] for pg in under_way) + sum(size[move.pg] for move in moves)
    assert not moves or total <= budget * 1e6 or (len(moves) == 1 and not under_way)


def _separate(observation: Observation, moves: list[MoveReplica]) -> None:
    """Assert C2: no two replicas on one host, and only on OSDs that are up and in."""
    osds = {osd.id: osd for osd in observation.osds}
    up = {pg.id: pg.up for pg in observation.pgs}
    for move in moves:
        assert osds[move.target].up
        assert osds[move.target].in_
        others = {osds[osd].node for osd in up[move.pg] if osd != move.source}
        assert osds[move.target].node not in others
