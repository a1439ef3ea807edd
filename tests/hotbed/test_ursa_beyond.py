"""`hotbed ursa` beyond the paper's model: dimensions, nested domains, groups, budgets, rounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ursa_cli import answer, write

from tests.hotbed.runner import run

SMALL = ["--nodes", "60", "--partitions", "6K", "--seed", "1", "--kind", "s2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["--dimensions", "3"],
        ["--dimensions", "2", "--racks", "12", "--domain", "nested", "--bytes"],
        ["--group-size", "4", "--racks", "12", "--domain", "nested"],
    ],
)
def test_generate_plan_check(more, tmp_path, capsys):
    path, out = tmp_path / "a.npz", tmp_path / "plan.npz"
    facts = answer(capsys, "generate", *SMALL, *more, "--out", path)
    summary = answer(capsys, "plan", path, "--out", out)
    assert summary["hot_before"] == facts["hot"] > 0
    report = answer(capsys, "check", path, out)
    assert report["valid"] is True
    for name in ("hot_before", "hot_after_swaps", "hot_after", "swaps", "moves"):
        assert report[name] == summary[name]
    assert report["cost"] == pytest.approx(summary["cost"])
    code, text, _ = run(capsys, "ursa", "plan", path)
    assert code == 0
    assert re.search(r"hot nodes\s+after\s+swaps", text)


@pytest.mark.slow
def test_a_budget(tmp_path, capsys):
    one = {"capacity": np.array([1, 12, 12, 12, 12, 12], np.float32)}
    path, out = write(tmp_path / "a.npz", **one), tmp_path / "plan.npz"
    words = ["plan", path, "--method", "nearest", "--max-moves", "1", "--out", out]
    first = answer(capsys, *words, code=3)
    assert first["moves"] == 1
    assert first["still_hot"] == [0]
    assert answer(capsys, "check", path, out)["valid"] is True
    every = answer(capsys, *words, "--rounds", "9")
    assert [shown["moves"] for shown in every["rounds"]] == [1] * every["moves"]
    assert answer(capsys, "check", path, out)["valid"] is True
    with np.load(out) as plan:
        assert plan["move_round"].tolist() == list(range(every["moves"]))
        wrong = dict(plan) | {"move_round": np.zeros(every["moves"], np.int32)}
    np.savez(out, **wrong)
    report = answer(capsys, "check", path, out, code=1)
    assert "1 are allowed" in report["violations"][0]
    code, text, _ = run(capsys, "ursa", *words, "--rounds", "9")
    assert code == 0
    assert "1 moves, cost" in text


def _changes(path: Path, **changes: Any) -> Path:
    made = {
        "partition": np.array([3], np.int32),
        "primary_load": np.array([20], np.float32),
        "secondary_load": np.array([1], np.float32),
    } | changes
    np.savez(path, **{name: array for name, array in made.items() if array is not None})
    return path


@pytest.mark.slow
def test_rounds_of_files(tmp_path, capsys):
    path, out = write(tmp_path / "a.npz"), tmp_path / "plans"
    change = _changes(tmp_path / "change.npz")
    back = _changes(tmp_path / "back.npz", primary_load=np.array([2], np.float32))
    words = ["rounds", path, change, back, "--method", "nearest", "--check"]
    shown = answer(capsys, *words, "--out", out, "--instances", "--scratch")["rounds"]
    assert [one["round"] for one in shown] == [0, 1, 2]
    assert [one["changed"] for one in shown] == [0, 1, 1]
    assert all(one["valid"] for one in shown)
    assert shown[1]["hot_before"] == 1
    assert all(one["cost"] == one["scratch"]["cost"] for one in shown)
    for number in range(3):
        before, plan = out / f"before-{number:03}.npz", out / f"plan-{number:03}.npz"
        assert answer(capsys, "check", before, plan)["valid"] is True
        with np.load(before) as instance, np.load(plan) as made:
            here = instance["replica_node"][made["move_partition"], made["move_replica"]]
            assert np.array_equal(here, made["move_from"])
    code, text, _ = run(capsys, "ursa", *words)
    assert code == 0
    assert len(text.strip().splitlines()) == 3
    # The only node with enough room is hot before and after.
    heavy = _changes(tmp_path / "heavy.npz", primary_load=np.array([99], np.float32))
    assert answer(capsys, "rounds", path, heavy, "--method", "nearest", code=3)["rounds"][1][
        "still_hot"
    ]


@pytest.mark.slow
def test_compare(tmp_path, capsys):
    path = tmp_path / "a.npz"
    tight = ["--ratio-median", "0.6", "--ratio-sigma", "0.5"]
    few = ["--nodes", "20", "--partitions", "600", "--seed", "2"]
    answer(capsys, "generate", *few, *tight, "--out", path)
    fast, joint = answer(capsys, "compare", path)["methods"]
    assert (fast["method"], joint["method"]) == ("alp-fast", "joint")
    assert fast["saved"] == 0
    assert joint["saved"] == pytest.approx(1 - joint["cost"] / fast["cost"])
    assert joint["saved"] >= 0
    code, text, _ = run(
        capsys, "ursa", "compare", path, "--method", "nearest", "--method", "alp-fast"
    )
    assert code == 0
    assert "nearest" in text
    assert "%" in text
    assert "above joint bound" in text
