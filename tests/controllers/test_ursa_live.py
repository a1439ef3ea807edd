"""`ursa` and `htoc` on a running store: their actions, the order, and untouched parts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.journal import read_journal
from controllers.legality import illegal
from controllers.registry import code_of, find
from controllers.replay import replay
from controllers.ursa.live import Steering
from testbed import closure
from testbed.stores.contract import (
    Activity,
    MoveReplica,
    Observation,
    OpRates,
    SwapPrimary,
    observation_to_json,
)
from tests.controllers.clusters import observations
from tests.controllers.ursa_stores import loads, steer, steering, written
from tests.controllers.virtual import run_loop
from tests.testbed.fake_store import FakeStore

pytestmark = pytest.mark.slow  # the planner is compiled

RACKS = 3


def writing(seed: int = 1, **more: object) -> FakeStore:
    """Return 12 OSDs in 3 racks, 3 replicas; the PGs of OSDs 0 and 1 have the most writes."""
    store = FakeStore(12, 96, 3, seed=seed, racks=RACKS, **more)
    written(store, hot=(0, 1), rate=1.0, cold=0.4)
    return store


def threshold(store: FakeStore, factor: float = 1.1) -> float:
    """Return a capacity with which several OSDs are hot and all can be relieved."""
    now = loads(store, steering().parameters())
    return factor * sum(now.values()) / len(now)


def steered(
    name: str = "ursa", *, recovery: int = 0, **parameters: object
) -> tuple[FakeStore, Steering]:
    """Return a store with hot OSDs, and a controller that can relieve them all at once."""
    store = writing(recovery=recovery) if recovery else writing()
    given = {"capacity": threshold(store), "threshold": 1.0, "max_moves": 1000} | parameters
    return store, steering(name, **given)


@pytest.mark.parametrize("name", ["ursa", "nearest", "htoc"])
def test_every_hot_osd_is_relieved_by_moves_alone_when_only_writes_load_it(name):
    store = writing()
    capacity = threshold(store)
    policy = steering(name, capacity=capacity, threshold=1.0, max_moves=1000)
    before = loads(store, policy.parameters())
    assert max(before.values()) > capacity * 1.05
    report = steer(policy, store, 4)
    after = loads(store, policy.parameters())
    assert max(after.values()) <= capacity * 1.05
    done = [action for _, _, actions in report for action in actions]
    assert done
    assert all(isinstance(action, MoveReplica) for action in done)


def test_where_leaders_send_they_are_not_hot_and_targets_are_near_them():
    store, policy = steered(copied_by="leader")
    seen = store.sense(policy.needs.senses)
    rack = {osd.id: osd.rack for osd in seen.osds}
    placed = {pg.id: set(pg.up) for pg in seen.pgs}
    report = steer(policy, store, 4)
    decision = next(state["decision"] for _, state, _ in report if state["decision"])
    hot = {int(osd) for osd in decision["hot"]}
    cost = crowded = 0
    for now, _, actions in report:
        leader = {pg.id: pg.primary for pg in now.pgs}
        for move in (action for action in actions if isinstance(action, MoveReplica)):
            assert leader[move.pg] != move.source
            cost += 1 if rack[leader[move.pg]] == rack[move.target] else 5
            if placed[move.pg] <= hot:  # the sender depends on the replicas that leave
                crowded += 1
            else:
                assert leader[move.pg] not in hot
    assert 0 <= crowded < len(decision["moves"]) / 4
    assert abs(cost - decision["cost"]) <= 4 * crowded
    assert decision["cost"] < 2 * len(decision["moves"])
    swapped = {action.pg for _, _, actions in report for action in actions if is_swap(action)}
    assert swapped
    assert swapped <= {pg for pg, _, _ in decision["moves"]}


def is_swap(action: object) -> bool:
    return isinstance(action, SwapPrimary)


def test_reads_are_relieved_by_swaps_alone():
    store = FakeStore(8, 64, 2, seed=3)
    for pg, osds in store.crush.items():
        store.rates[pg] = OpRates(reads=3.0 if osds[0] in (0, 1) else 1.0)
    capacity = threshold(store, 1.4)
    policy = steering(capacity=capacity, threshold=1.0)
    done = [action for _, _, actions in steer(policy, store, 3) for action in actions]
    assert done
    assert all(isinstance(action, SwapPrimary) for action in done)
    assert max(loads(store, policy.parameters()).values()) <= capacity * 1.05


def test_the_mean_is_taken_before_anything_is_decided():
    store, policy = steered(observe_s=50)
    report = steer(policy, store, 3)  # 20 s each
    assert [bool(actions) for _, _, actions in report] == [False, False, True]


def test_as_the_paper_does_it_decides_once():
    store, policy = steered(max_decisions=1, observe_s=0)
    steer(policy, store, 6)
    for pg in store.rates:
        store.rates[pg] = OpRates(writes=9.0 if 5 in store.crush[pg] else 0.1)
    state = policy.initial() | {"decisions": 1}
    _, actions = policy.decide(state, store.sense(policy.needs.senses))
    assert not actions


def test_a_dry_run_journals_what_would_be_done_and_does_nothing():
    store, policy = steered(dry_run=True)
    report = steer(policy, store, 3)
    assert not any(actions for _, _, actions in report)
    state = report[-1][1]
    assert state["decision"]["moves"]
    assert state["queue"] == []
    assert store.upmaps == {}


def test_no_decision_before_what_was_moved_is_clean():
    store, policy = steered(recovery=3)
    report = steer(policy, store, 20)
    first = next(i for i, (_, _, actions) in enumerate(report) if actions)
    for seen, state, _ in report[first + 1 :]:
        assert seen.activity is not None
        if seen.activity.unclean:
            assert state["window"]["seconds"] == 0
    checks = [state["check"] for _, state, _ in report if state["check"]]
    assert len(checks) == 1
    assert checks[0]["worst"] < 0.01  # the store's loads follow the map


def test_what_was_predicted_is_held_against_what_is_measured():
    store, policy = steered()
    report = steer(policy, store, 1)
    assert report[0][2]
    for pg in store.rates:
        store.rates[pg] = OpRates(writes=2 * store.rates[pg].writes)
    state = report[0][1] | {"queue": []}  # until then, a group that moves twice waits
    seen = store.sense(policy.needs.senses)
    after, _ = policy.decide(state, seen)
    assert after["check"]["worst"] > 0.5


def test_what_is_never_to_be_done_keeps_nothing_waiting():
    done, last = {}, {}
    for never in ("max_moves", "max_swaps"):
        store, policy = steered(copied_by="leader", **{never: 0})
        report = steer(policy, store, 6)
        done[never] = {type(action) for _, _, actions in report for action in actions}
        last[never] = report[-1][1]
        assert last[never]["queue"] == []
    # Writes load all replicas, so only leaders of moved PGs can be swapped.
    assert done == {"max_moves": set(), "max_swaps": {MoveReplica}}
    assert last["max_moves"]["decisions"] > 1
    # A partial plan is not compared with the whole plan's prediction.
    assert last["max_moves"]["expected"] is None


def test_groups_that_somebody_else_pinned_are_left_alone():
    store = writing()
    pinned = {pg for pg, osds in store.crush.items() if 0 in osds}
    store.upmaps = {pg: store.crush[pg] for pg in pinned}
    policy = steering(capacity=threshold(store), threshold=1.0, max_moves=1000)
    done = [action for _, _, actions in steer(policy, store, 4) for action in actions]
    assert done
    assert not {action.pg for action in done} & pinned


def test_replicas_stay_in_different_racks_when_racks_are_the_fault_domain():
    store = FakeStore(12, 96, 3, racks=4)
    racks = {osd.id: osd.rack for osd in store.osds.values()}
    store.crush = {  # initially one replica per rack
        pg: tuple(4 * ((n + i) % 3) + (n // 2 + i) % 4 for i in range(3))
        for n, pg in enumerate(store.crush)
    }
    written(store, hot=(0, 1), rate=1.0, cold=0.4)
    policy = steering(capacity=threshold(store), threshold=1.0, max_moves=1000, fault_domain="rack")
    assert any(actions for _, _, actions in steer(policy, store, 4))
    for pg in store.pgs():
        assert len({racks[osd] for osd in pg.up}) == 3


def test_load_that_no_group_explains_is_not_moved_but_counted():
    store, policy = steered()
    seen = store.sense(policy.needs.senses)
    assert seen.activity is not None
    busy = dict(seen.activity.osds)
    cold = min(busy, key=lambda osd: busy[osd].writes)
    busy[cold] = OpRates(writes=10 * threshold(store))
    report = seen.__class__(
        0,
        20,
        osds=seen.osds,
        pgs=seen.pgs,
        activity=seen.activity.__class__(seen.activity.pgs, busy, ()),
    )
    _, actions = policy.decide(policy.initial(), report)
    assert actions
    assert not any(isinstance(a, MoveReplica) and a.target == cold for a in actions)


def test_an_osd_that_went_down_takes_nothing_that_was_decided_for_it():
    store, policy = steered(max_moves=1)
    report = steer(policy, store, 1)
    state = report[0][1]
    target = state["queue"][0][3]
    seen = store.sense(policy.needs.senses)
    osds = tuple(
        osd if osd.id != target else osd.__class__(osd.id, osd.node, up=False) for osd in seen.osds
    )
    gone = seen.__class__(0, 20, osds=osds, pgs=seen.pgs, activity=seen.activity)
    after, actions = policy.decide(state, gone)
    assert not any(
        isinstance(action, MoveReplica) and action.target == target for action in actions
    )
    assert not any(item[3] == target for item in after["queue"])
    assert after["expected"] is None


@pytest.mark.parametrize("name", ["ursa", "nearest", "htoc"])
def test_a_journal_replays_and_the_store_is_put_back(tmp_path, name):
    store, policy = steered(name, recovery=1, max_moves=5)
    outcome, journal = run_loop(tmp_path, store, policy, steps=10)
    assert outcome.code == 0
    assert any(step["actions"] for step in journal.steps)
    assert store.upmaps == {}
    found = replay(read_journal(tmp_path / "journal.jsonl"))
    assert found.equal, found.sentence()
    assert found.decisions == 10


@pytest.mark.parametrize(("fails", "code"), [((), 0), ((2, 3, 4), 1)])
def test_restore_on_stop_false_keeps_the_changes_except_after_a_failure(tmp_path, fails, code):
    store = writing(fail_senses=frozenset(fails))
    policy = steering(
        capacity=threshold(store), threshold=1.0, max_moves=1000, restore_on_stop=False
    )
    outcome, journal = run_loop(tmp_path, store, policy, steps=8)
    assert outcome.code == code
    assert any(step["actions"] for step in journal.steps)
    assert bool(store.upmaps) is not bool(fails)
    assert journal.footer is not None
    assert bool(journal.footer["restored"]) is bool(fails)
    assert not (tmp_path / "saved.json").exists()


def test_the_planner_is_part_of_htoc_s_code():
    found = closure.files(code_of(find("htoc")).entries)
    assert {"controllers/ursa/plan.py", "controllers/ursa/swap.py"} <= set(found)


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


@given(
    st.lists(busy(), min_size=1, max_size=3), st.sampled_from(["ursa", "nearest", "htoc"]), BUDGETS
)
@settings(max_examples=25, deadline=None)
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
