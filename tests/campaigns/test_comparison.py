"""Plans and runs of `hotbed compare` on the fake ground."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from campaigns.comparison import Ask, Compared, compare, plan
from campaigns.engine.display import Progress
from campaigns.engine.store import RunStore
from campaigns.new_controller import new_controller
from controllers.registry import available
from schemas.errors import UserError
from tests.errors import raises

OF_MICROSTORES = {  # no Ceph store can run them
    *("mos", "mos-at-once", "mos-pp", "mos-pp-resource", "mos-pp-learning", "static-microstores"),
}
BUILT_IN = set(available()) - OF_MICROSTORES
pytestmark = pytest.mark.usefixtures("in_process")
QUICK: dict[str, Any] = {"duration_s": 5, "interval_s": 1}


def ask(tmp_path: Path, **changes: Any) -> Ask:
    base: dict[str, Any] = {
        "controllers": ("dlr",),
        "ground": "fake",
        "blocks": 2,
        "ops": ("seq",),
        "parameters": QUICK,
        "time_scale": 0.001,
        "artifacts": tmp_path / "artifacts",
    }
    return Ask(**(base | changes))


def go(tmp_path: Path, **changes: Any) -> Compared:
    return compare(ask(tmp_path, **changes), progress=Progress())


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return a folder outside the repository with one controller, called mine."""
    new_controller("mine", tmp_path / "own")
    return tmp_path / "own"


def test_a_block_holds_everybody_once_with_one_seed(tmp_path, own):
    planned = plan(ask(tmp_path, controllers=("mine", "dlr"), controllers_dir=own))
    made = planned.comparison
    assert made.controllers == ("default", "mine", "dlr")
    assert (made.baseline, made.blocks, made.left_out) == ("default", 2, {})
    cells = planned.prepared.plan.cells
    assert len(made.cells) == len(cells) == 6
    for block in (0, 1):
        those = [cell for cell in cells if cell.block == block]
        assert {cell.parameters.controller for cell in those} == set(made.controllers)
        assert len({cell.seed for cell in those}) == 1
    assert {cell.run_id for cell in made.cells} == {cell.run_id for cell in cells}
    assert not (tmp_path / "artifacts").exists()


def test_all_is_every_controller_that_can_run(tmp_path, own, monkeypatch):
    everybody = plan(ask(tmp_path, controllers=("all",), controllers_dir=own)).comparison
    assert set(everybody.controllers) == BUILT_IN | {"mine"}
    assert everybody.controllers[0] == "default"
    monkeypatch.setenv("HOTBED_FAKE_LACKS", "pg-upmap,hot")
    able = plan(ask(tmp_path, controllers=("all",), controllers_dir=own)).comparison
    left_out = {"dlr-pg", "dlr-even", "dlr-fast", "dlr-move", "oracle-move", "ursa", "nearest"}
    left_out |= {"htoc", "oracle"} | OF_MICROSTORES
    assert set(able.controllers) == (BUILT_IN | {"mine"}) - left_out
    assert set(able.left_out) == left_out
    assert "cannot change pg-upmap" in able.left_out["dlr-pg"]
    assert "cannot sense hot" in able.left_out["oracle"]


BROKEN = {
    "syntax": ("def create(parameters, seed) return 1", "does not load"),
    "nothing": ("x = 1", "defines no create"),
    "raises": ("def create(parameters, seed):\n    raise ValueError('no')", "could not be created"),
    "dies": ("import os\nos._exit(3)", "ended with code 3"),
}


def test_a_controller_that_cannot_be_created(tmp_path, own):
    for name, (text, _) in BROKEN.items():
        (own / name).mkdir()
        (own / name / "policy.py").write_text(text)
    # With `all`, the plan skips these controllers by name and compares the others.
    made = plan(ask(tmp_path, controllers=("all",), controllers_dir=own)).comparison
    assert "mine" in made.controllers
    assert not set(BROKEN) & set(made.controllers)
    for name, (_, why) in BROKEN.items():
        assert why in made.left_out[name]
        # Requested by name, the controller is refused.
        with raises(UserError, why):
            plan(ask(tmp_path, controllers=(name,), controllers_dir=own))


def test_one_more_controller_runs_only_what_is_new(tmp_path, own):
    first = go(tmp_path)
    assert (first.result.ok, first.result.ran) == (True, 4)
    assert first.folder == tmp_path / "artifacts" / "compare-fake"
    before = contents(first.folder)
    second = go(tmp_path, controllers=("dlr", "mine"), controllers_dir=own)
    assert (second.result.already_done, second.result.ran) == (4, 2)
    after = contents(second.folder)
    assert before.items() <= after.items(), "what was there has changed"
    assert go(tmp_path, controllers=("mine", "dlr"), controllers_dir=own).result.ran == 0
    assert go(tmp_path, blocks=3).result.ran == 2
    # A changed controller gets new cells; the other controllers keep theirs.
    policy = own / "mine" / "policy.py"
    policy.write_text(policy.read_text().replace("0.3", "0.4"))
    assert go(tmp_path, controllers=("dlr", "mine"), controllers_dir=own).result.ran == 2


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.glob("*/attempt-*/*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_failing_controllers_do_not_stop_the_others(tmp_path, own, monkeypatch):
    new_controller("other", own)
    effects = {"mine": {"fails": "decide() took more than 10 s"}, "other": {"fails": "it died"}}
    monkeypatch.setenv("HOTBED_FAKE_CONTROLLERS", json.dumps(effects))
    done = go(tmp_path, controllers=("mine", "other"), controllers_dir=own, blocks=3)
    assert not done.result.ok
    assert done.result.gave_up is None
    assert (done.result.ran, len(done.result.missing)) == (3, 6)
    statuses = Counter(
        (run.parameters["controller"], run.status) for run in RunStore(done.folder).runs()
    )
    # A failed cell is tried exactly once more.
    assert statuses == {("default", "done"): 3, ("mine", "failed"): 6, ("other", "failed"): 6}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"controllers": ("dlx",)}, "'dlx'"),
        ({"baseline": "all"}, "--baseline"),
        ({"controllers": ()}, "--controllers is empty"),
        ({"controllers": ("default",)}, "nothing to compare with"),
        ({"controllers_dir": Path("nowhere")}, "nowhere"),
        ({"ground": "moon"}, "--ground: there is no ground 'moon'"),
        ({"blocks": 0}, "--blocks: 0"),
        ({"time_scale": float("nan")}, "--time-scale: nan"),
        ({"ops": ()}, "--op is empty"),
        ({"parameters": {"op": "seq"}}, "--parameter op"),
        ({"spec": Path("no.yaml")}, "--spec: no.yaml"),
        ({"ground": "sim", "model": Path("no.yaml")}, "no.yaml: there is no such file"),
        ({"model": Path("no.yaml")}, "a model belongs to the"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, changes, said):
    with raises(UserError, said) as raised:
        plan(ask(tmp_path, **changes))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "artifacts").exists()
