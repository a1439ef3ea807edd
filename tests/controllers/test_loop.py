"""Control loop on an in-memory store and a virtual clock: order, failures, restoring, and illegal
actions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from controllers.decider import ChildDecider
from controllers.legality import illegal
from controllers.loop import EXIT_FAILED, EXIT_NOT_RESTORED, EXIT_POLICY, EXIT_STOPPED
from controllers.registry import create, find
from testbed.stores.contract import (
    PRIMARY_AFFINITY,
    Action,
    ClearUpmapPrimary,
    Effect,
    MoveReplica,
    Needs,
    Observation,
    OsdLatency,
    ReweightByUtilization,
    RunReadBalancer,
    RunSizeBalancer,
    SetBalancer,
    SetOption,
    SetPrimaryAffinity,
    SetUpmapPrimary,
    SwapPrimary,
    action_from_json,
)
from testbed.stores.microstores import (
    MACHINES,
    MICROSTORES,
    NOTHING,
    RESOURCES,
    TENANTS,
    AssignableMachine,
    AssignMachine,
    MapTenant,
    Microstore,
    Microstores,
    Resources,
    SetResources,
    Tenant,
)
from tests.campaigns.disk_faults import Disk
from tests.controllers import naughty, virtual
from tests.controllers.clusters import HOT
from tests.controllers.virtual import VirtualClock, run_loop
from tests.testbed.fake_store import EVERYTHING, FakeStore


def untouched(store: FakeStore) -> bool:
    fresh = FakeStore()
    return store.save() == fresh.save()


class Scripted:
    """Policy that returns scripted actions step by step, then none."""

    name = "scripted"

    def __init__(self, *steps: object, acts: frozenset[str] = frozenset({PRIMARY_AFFINITY})):
        self._steps = steps
        self.needs = Needs(frozenset({"pressure", "osds", "pgs"}), acts)

    def parameters(self):
        return {}

    def initial(self):
        return {"n": 0}

    def decide(self, state, observation):
        n = state["n"]
        step = self._steps[n] if n < len(self._steps) else []
        return {"n": n + 1}, step


def test_senses_decides_acts_and_puts_back(tmp_path):
    during = []

    class Watched(FakeStore):
        def act(self, actions):
            during.append(json.loads((tmp_path / "saved.json").read_text()))
            return super().act(actions)

    store = Watched(pressures=lambda _: HOT)
    outcome, journal = run_loop(tmp_path, store, create(find("dlr"), {}, 1))
    assert (outcome.code, outcome.reason, outcome.steps) == (EXIT_STOPPED, "stopped", 5)
    # The initial state was on disk before the first action.
    assert during[0] == FakeStore().save()
    assert [len(step["actions"]) for step in journal.steps] == [4, 4, 0, 0, 0]
    # After a first sense, steps are at multiples of the interval.
    assert [step["t_s"] for step in journal.steps] == [20, 40, 60, 80, 100]
    assert [step["observation"]["t_s"] for step in journal.steps] == [20, 40, 60, 80, 100]
    assert store.senses == 6
    assert untouched(store)
    assert not (tmp_path / "saved.json").exists()
    assert journal.footer is not None
    assert journal.footer["reason"] == "stopped"
    assert [effect["message"] for effect in journal.footer["restored"]] == ["put back"]


def test_a_late_step_is_not_made_up_for(tmp_path):
    clock = VirtualClock()

    class Slow(FakeStore):
        def sense(self, senses):
            if self.senses == 2:
                clock.now += 47
            return super().sense(senses)

    _, journal = run_loop(tmp_path, Slow(), create(find("dlr"), {}, 1), steps=4, clock=clock)
    assert [step["t_s"] for step in journal.steps] == [20, 40, 100, 120]


def test_a_stop_ends_the_wait(tmp_path):
    clock = VirtualClock(stop_at=50)
    store = FakeStore(pressures=lambda _: HOT)
    policy = create(find("dlr"), {}, 1)
    outcome, journal = run_loop(tmp_path, store, policy, steps=None, clock=clock)
    assert (outcome.code, clock.now, len(journal.steps)) == (EXIT_STOPPED, 50, 2)
    assert untouched(store)


@pytest.mark.parametrize("kind", ["fail_senses", "fail_acts"])
def test_single_failures_are_journalled_and_survived(tmp_path, kind):
    store = FakeStore(pressures=lambda _: HOT, **{kind: frozenset({1, 3, 5})})
    policy = create(find("dlr"), {}, 1)
    outcome, journal = run_loop(tmp_path, store, policy, steps=8)
    assert outcome.code == EXIT_STOPPED
    errors = [step["error"] for step in journal.steps if step["error"]]
    word = "sense" if kind == "fail_senses" else "act"
    assert errors
    assert all(error.startswith(f"{word}: {word} ") for error in errors)
    assert len(journal.steps) == 8
    assert untouched(store)


def test_three_failures_in_a_row_end_it(tmp_path):
    store = FakeStore(pressures=lambda _: HOT, fail_senses=frozenset({3, 4, 5}))
    policy = create(find("dlr"), {}, 1)
    outcome, journal = run_loop(tmp_path, store, policy, steps=20)
    assert outcome.code == EXIT_FAILED
    assert "3 steps in a row failed" in outcome.reason
    assert len(journal.steps) == 5
    assert untouched(store)


def test_a_refused_action_is_a_failed_act(tmp_path):
    class Refusing(FakeStore):
        def act(self, actions):
            return [Effect(False, "the monitor said no") for _ in actions]

    policy = create(find("dlr"), {}, 1)
    outcome, journal = run_loop(tmp_path, Refusing(pressures=lambda _: HOT), policy)
    assert outcome.code == EXIT_FAILED
    assert journal.steps[0]["error"].startswith("act: 4 of 4 actions failed")
    assert journal.steps[0]["effects"][0]["ok"] is False


def test_a_sense_that_is_no_number_is_a_failed_sense(tmp_path):
    store = FakeStore(pressures=lambda n: {0: math.nan if n == 2 else 5.0})
    outcome, journal = run_loop(tmp_path, store, create(find("dlr"), {}, 1))
    assert outcome.code == EXIT_STOPPED
    assert [bool(step["error"]) for step in journal.steps] == [False, True, False, False, False]


FIRST_PG = FakeStore().pgs()[0]
STRANGER = next(osd for osd in range(8) if osd not in FIRST_PG.up)
MOST = EVERYTHING.acts - {"balancer-read", "crush_location"} | {"debug_osd"}
ILLEGAL: list[tuple[Action | object, str]] = [
    (SetPrimaryAffinity(99, 0.5), "no osd.99"),
    (SetPrimaryAffinity(0, 1.5), "from 0 to 1"),
    (SetPrimaryAffinity(0, -0.1), "from 0 to 1"),
    (SetPrimaryAffinity(0, math.nan), "from 0 to 1"),
    (SetPrimaryAffinity(0, "high"), "from 0 to 1"),  # type: ignore[arg-type]
    (SetPrimaryAffinity("0", 0.5), "no osd.0"),  # type: ignore[arg-type]
    (SetPrimaryAffinity([0], 0.5), "malformed"),  # type: ignore[arg-type]
    (SwapPrimary(FIRST_PG.id, STRANGER), "holds no replica"),
    (SwapPrimary("9.99", 0), "no placement group"),
    (MoveReplica(FIRST_PG.id, STRANGER, 0), "holds no replica"),
    (MoveReplica(FIRST_PG.id, FIRST_PG.up[0], FIRST_PG.up[1]), "holds a replica of it already"),
    (ReweightByUtilization(oload=90), "above 100"),
    (ReweightByUtilization(max_change=0), "above 0"),
    (SetBalancer("crush-compat"), "upmap-read or none"),
    (SetBalancer("read"), "do not declare 'balancer-read'"),
    (SetUpmapPrimary(FIRST_PG.id, STRANGER), "holds no replica"),
    (ClearUpmapPrimary("9.99"), "no placement group"),
    (RunSizeBalancer(0), "at least 1"),
    (SetOption("osd_mclock_profile", "fast"), "must match"),
    (SetOption("osd_mclock_profile", None), "must match"),  # type: ignore[arg-type]
    (SetOption("debug_osd", "20"), "must be one of osd_mclock_profile"),
    (SetOption("crush_location", "host=a"), "needs do not declare"),
    ("affinity", "not an action"),
]


@pytest.mark.parametrize(("action", "words"), ILLEGAL)
def test_an_illegal_action_ends_the_controller_and_nothing_of_it_is_done(tmp_path, action, words):
    good = SetPrimaryAffinity(3, 0.5)
    store = FakeStore()
    policy = Scripted([good], [SetPrimaryAffinity(4, 0.5), action], acts=MOST)
    outcome, journal = run_loop(tmp_path, store, policy)
    assert outcome.code == EXIT_POLICY
    assert words in outcome.reason
    assert words in journal.steps[-1]["error"]
    assert len(journal.steps) == 2
    assert store.acts == 1
    assert untouched(store)


TODAY: list[Action] = [
    SetBalancer("upmap-read"),
    SetUpmapPrimary(FIRST_PG.id, FIRST_PG.up[1]),
    RunReadBalancer(),
    SetOption("osd_mclock_profile", "high_client_ops"),
    SetOption("rados_replica_read_policy", "localize"),
    SetOption("crush_location", "host=node1 root=default"),
]


def test_acts_of_todays_ceph_are_carried_out_journalled_and_put_back(tmp_path):
    store = FakeStore(latency={0: OsdLatency(reads=3, read_s=0.1)})
    during = []

    class Seeing(Scripted):
        def decide(self, state, observation):
            during.append((observation, store.save()))
            return super().decide(state, observation)

    policy = Seeing([], TODAY, [ClearUpmapPrimary(FIRST_PG.id)], acts=EVERYTHING.acts)
    policy.needs = Needs(EVERYTHING.senses, EVERYTHING.acts)
    outcome, journal = run_loop(tmp_path, store, policy)
    assert outcome.code == EXIT_STOPPED
    assert [action_from_json(one) for one in journal.steps[1]["actions"]] == TODAY
    before, after = during[1][0], during[3][0]
    assert before.latency == {0: OsdLatency(reads=3, read_s=0.1)}
    assert before.read_balance["bench"] > after.read_balance["bench"] >= 1
    assert during[2][1]["options"]["osd_mclock_profile"] == "high_client_ops"
    assert FIRST_PG.id in during[2][1]["upmap_primaries"]
    assert FIRST_PG.id not in during[3][1]["upmap_primaries"]
    assert untouched(store)


BAD = {
    "raises": ('raise KeyError("osd")', "decide() raised KeyError: 'osd' (policy.py line"),
    "hangs": ("time.sleep(60)", "took more than 0.5 s"),
    "spins": ("while True: pass", "took more than 0.5 s"),
    "exits": ("os._exit(7)", "process ended with code 7"),
    "dies": ("os.kill(os.getpid(), 9)", "process ended with code -9"),
    "returns-none": ("return None", "instead of (state, actions)"),
    "bad-state": ("return {'n': {1, 2}}, []", "JSON cannot hold"),
    "nan": ("return {'n': n}, [SetPrimaryAffinity(0, float('nan'))]", "from 0 to 1"),
    "unknown-osd": ("return {'n': n}, [SetPrimaryAffinity(77, 0.5)]", "no osd.77"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_policy_that_misbehaves_in_its_own_process(tmp_path, name):
    bad, words = BAD[name]
    dirs = [naughty.write(tmp_path / "outside", name, bad)]
    store = FakeStore()
    decider = ChildDecider(name, {}, 1, dirs, limit_s=0.5)
    outcome, journal = run_loop(tmp_path, store, decider=decider, needs=decider.needs)
    assert outcome.code == EXIT_POLICY
    assert words in outcome.reason
    assert [bool(step["error"]) for step in journal.steps] == [False, False, True]
    assert untouched(store)


def test_output_of_a_policy_does_not_disturb_it(tmp_path):
    bad = "print('hello', flush=True); return {'n': n + 1}, []"
    dirs = [naughty.write(tmp_path / "outside", "chatty", bad)]
    decider = ChildDecider("chatty", {}, 1, dirs)
    outcome, journal = run_loop(tmp_path, FakeStore(), decider=decider, needs=decider.needs)
    assert outcome.code == EXIT_STOPPED
    assert [step["state_after"]["n"] for step in journal.steps] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("fails", "code"), [(2, EXIT_STOPPED), (3, EXIT_NOT_RESTORED)])
def test_restoring_is_tried_again_and_its_saved_state_kept_until_then(tmp_path, fails, code):
    store = FakeStore(pressures=lambda _: HOT)
    store.fail_restores = fails
    outcome, journal = run_loop(tmp_path, store, create(find("dlr"), {}, 1))
    assert outcome.code == code
    assert journal.footer is not None
    assert untouched(store) == (code == EXIT_STOPPED)
    if code == EXIT_NOT_RESTORED:
        assert "could not be put back" in outcome.reason
        assert json.loads((tmp_path / "saved.json").read_text()) == FakeStore().save()


def test_an_older_saved_state_is_the_one_that_is_put_back(tmp_path):
    """A killed controller's saved state is older and more accurate than the store's state."""
    (tmp_path / "saved.json").write_text(json.dumps(FakeStore().save()))
    store = FakeStore(pressures=lambda _: HOT)
    store.act([SetPrimaryAffinity(6, 0.3)])
    run_loop(tmp_path, store, create(find("default"), {}, 1))
    assert untouched(store)


def test_nothing_is_done_when_the_state_cannot_be_saved(tmp_path):
    class Unsaveable(FakeStore):
        def save(self):
            raise OSError("disk full")

    outcome, journal = run_loop(tmp_path, Unsaveable(), create(find("dlr"), {}, 1))
    assert outcome.code == EXIT_FAILED
    assert "disk full" in outcome.reason
    assert journal.steps == []


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_nothing_is_steered_without_a_journal(tmp_path, monkeypatch, call, fault):
    """A step that cannot be journalled is the last step and is undone."""
    monkeypatch.setattr(virtual, "read_journal", Path.read_text)
    disk = Disk(monkeypatch, tmp_path)
    # The first sync is the folder's; without it the loop has no journal.
    for nth in range(1 if call == "write" else 2, 20):
        store = FakeStore(pressures=lambda _: HOT)
        folder = tmp_path / str(nth)
        folder.mkdir()
        disk.fail((call, fault), nth=nth)
        outcome, text = run_loop(folder, store, create(find("dlr"), {}, 1), steps=4)
        lines = [json.loads(line) for line in text.splitlines()]
        journalled = [line["step"] for line in lines if "step" in line]
        assert untouched(store)
        assert not (folder / "saved.json").exists()
        if not disk.fired:
            assert (outcome.code, journalled) == (EXIT_STOPPED, [0, 1, 2, 3])
            return
        assert outcome.code == EXIT_FAILED
        assert str(folder) in outcome.reason
        assert journalled == list(range(len(journalled)))
        assert outcome.steps <= len(journalled) + 1
    pytest.fail("it never passed")


# Actions on microstores: pool limits hold, an illegal action refuses the whole step.


HALF = Resources(0.4, 0.4, 1e6, 1, 1)
SEEN = Observation(
    t_s=0.0,
    interval_s=10.0,
    microstores=Microstores(
        stores=(Microstore("small", HALF), Microstore("large", HALF)),
        tenants=(Tenant("web", "small"),),
        total=Resources(0.8, 0.8, 2e6, 2, 2),
        machines=(AssignableMachine("m1", HALF, "small"),),
    ),
)
NEEDS = Needs(frozenset({MICROSTORES}), frozenset({RESOURCES, MACHINES, TENANTS}))


@pytest.mark.parametrize(
    "actions",
    [
        [],
        [MapTenant("web", "large"), AssignMachine("m1", "large")],
        [AssignMachine("m1", "")],
        [SetResources("small", NOTHING)],
        # One releases the share that the other takes, in either order.
        [
            SetResources("small", replace(HALF, proxy_cores=0.6)),
            SetResources("large", replace(HALF, proxy_cores=0.2)),
        ],
    ],
)
def test_legal(actions):
    assert illegal(actions, SEEN, NEEDS) is None


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([MapTenant("game", "large")], "no tenant 'game'"),
        ([MapTenant("web", "")], "no microstore ''"),
        ([AssignMachine("m9", "large")], "no machine 'm9'"),
        ([AssignMachine("m1", "huge")], "no microstore 'huge'"),
        ([SetResources("huge", HALF)], "no microstore 'huge'"),
        ([SetResources("small", replace(HALF, network=-1.0))], "network must be 0 or more"),
        ([SetResources("small", replace(HALF, network=math.nan))], "network must be 0 or more"),
        ([SetResources("small", replace(HALF, ssds=0.5))], "ssds must be a whole number"),
        ([SetResources("small", replace(HALF, ssds=True))], "ssds is not a number"),
        ([SetResources("small", replace(HALF, hdds=2))], "the pool is"),
        ([AssignMachine("m1", ""), AssignMachine("m1", "large")], "second order"),
        ([MapTenant("web", "small"), MapTenant("web", "large")], "second order"),
        ([SetResources("small", HALF), SetResources("small", NOTHING)], "second order"),
    ],
)
def test_illegal(actions, words):
    assert words in (illegal(actions, SEEN, NEEDS) or "")
