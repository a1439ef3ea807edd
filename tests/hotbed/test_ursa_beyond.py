"""`hotbed ursa` beyond the paper's model: dimensions, nested domains, groups, budgets, rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ursa_cli import answer, arrays, refused, run, write

SMALL = ["--nodes", "60", "--partitions", "6K", "--seed", "1", "--kind", "s2"]


def two(**changes: Any) -> dict[str, Any]:
    """Return the small instance with a second dimension in which no node is hot."""
    made = {
        name: np.column_stack(
            [arrays()[name], arrays()[name] * 0 + (9 if name == "capacity" else 1)]
        )
        for name in ("primary_load", "secondary_load", "capacity")
    }
    return made | {"dimension": np.array(["cpu", "bytes"])} | changes


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["--dimensions", "3"],
        ["--dimensions", "2", "--racks", "12", "--domain", "nested", "--bytes"],
        ["--group-size", "4", "--racks", "12", "--domain", "nested"],
    ],
)
def test_generate_plan_check(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "hot after swaps" in text


@pytest.mark.slow
def test_a_single_column_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, "plan", write(tmp_path / "a.npz"), "--method", "greedy")
    columns = {
        name: arrays()[name][:, None]
        for name in ("primary_load", "secondary_load", "capacity", "fault_domain")
    }
    same = answer(capsys, "plan", write(tmp_path / "b.npz", **columns), "--method", "greedy")
    for name in ("swaps", "moves", "cost", "hot_after"):
        assert same[name] == plain[name]
    assert "hot_by_dimension" not in same


@pytest.mark.slow
def test_dimensions_are_told_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.npz", **two())
    summary = answer(capsys, "plan", path, "--method", "greedy")
    assert set(summary["hot_by_dimension"]) == {"cpu", "bytes"}
    assert summary["hot_by_dimension"]["cpu"] == {"before": 1, "after_swaps": 1, "after": 0}
    code, text, _ = run(capsys, "ursa", "plan", path, "--method", "greedy")
    assert code == 0
    assert "1 before, 1 after swaps, 0 after" in text


LOADS = ("primary_load", "secondary_load", "capacity")
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "loads of other dimensions": (two(capacity=arrays()["capacity"]), "not of the same dimensions"),
    "no columns": (two(**{name: two()[name][:, :0] for name in LOADS}), "at least a column"),
    "three axes": (two(capacity=np.ones((6, 2, 1), np.float32)), "one dimension or two dimensions"),
    "a name too few": (two(dimension=np.array(["cpu"])), "allowed: 2 names"),
    "names twice": (two(dimension=np.array(["cpu", "cpu"])), "distinct names"),
    "names that are numbers": (two(dimension=np.arange(2)), "allowed: 2 names"),
    "an inner domain in two": (
        {"fault_domain": np.array([[0, 0], [0, 1], [0, 2], [1, 3], [1, 2], [1, 4]], np.int32)},
        "fault_domain 2 of level 1 lies in domains 0 and 1 of level 0 (node 4)",
    ),
    "a group apart": (
        {"group": np.array([0, 0, 1, 2], np.int32)},
        "partitions 0 and 1 are of group 0 and lie on different nodes",
    ),
    "a negative group": ({"group": np.array([0, -1, 1, 2], np.int32)}, "group[1] is -1"),
    "groups of others": ({"group": np.zeros(3, np.int32)}, "group has 3 entries"),
    "negative bytes": ({"bytes": np.array([1, 1, -1, 1], np.float32)}, "bytes[2] is -1.0"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_instance_gets_one_sentence(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, says = BAD[case]
    assert says in refused(capsys, "plan", write(tmp_path / "bad.npz", **changes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--spread", "1"], "the instance has 1 levels"),
        (["--rounds", "3"], "without a budget one round does it all"),
        (["--max-moves", "-1"], "max-moves: -1"),
        (["--budget", "5"], "needs an array bytes"),
        (["--max-moves", "1", "--method", "joint"], "method joint is for"),
    ],
)
def test_wrong_options_get_one_sentence(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "ursa", "plan", write(tmp_path / "a.npz"), *words)
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_one_level_may_be_all_that_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Racks of two nodes form one site for each partition's replicas except the last."""
    domain = np.array([[0, 0], [1, 1], [2, 2], [3, 3], [4, 4], [1, 5]], np.int32)
    path, out = write(tmp_path / "a.npz", fault_domain=domain), tmp_path / "plan.npz"
    answer(capsys, "plan", path, "--method", "greedy", "--out", out)
    assert answer(capsys, "check", path, out)["valid"] is True
    answer(capsys, "plan", path, "--method", "greedy", "--spread", "1", "--out", out)
    assert answer(capsys, "check", path, out, "--spread", "1")["valid"] is True


@pytest.mark.slow
def test_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"capacity": np.array([1, 12, 12, 12, 12, 12], np.float32)}
    path, out = write(tmp_path / "a.npz", **one), tmp_path / "plan.npz"
    words = ["plan", path, "--method", "greedy", "--max-moves", "1", "--out", out]
    first = answer(capsys, *words, code=3)
    assert first["moves"] == 1
    assert first["still_hot"] == [0]
    assert answer(capsys, "check", path, out)["valid"] is True
    every = answer(capsys, *words, "--rounds", "9")
    assert [told["moves"] for told in every["rounds"]] == [1] * every["moves"]
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
def test_rounds_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path / "a.npz"), tmp_path / "plans"
    change = _changes(tmp_path / "change.npz")
    back = _changes(tmp_path / "back.npz", primary_load=np.array([2], np.float32))
    words = ["rounds", path, change, back, "--method", "greedy", "--check"]
    told = answer(capsys, *words, "--out", out, "--instances", "--scratch")["rounds"]
    assert [one["round"] for one in told] == [0, 1, 2]
    assert [one["changed"] for one in told] == [0, 1, 1]
    assert all(one["valid"] for one in told)
    assert told[1]["hot_before"] == 1
    assert all(one["cost"] == one["scratch"]["cost"] for one in told)
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
    assert answer(capsys, "rounds", path, heavy, "--method", "greedy", code=3)["rounds"][1][
        "still_hot"
    ]


@pytest.mark.slow
def test_rounds_at_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    answer(capsys, "generate", *SMALL, "--out", path)
    words = ["rounds", path, "--random", "0.05", "--rounds", "3", "--method", "greedy", "--check"]
    first = answer(capsys, *words)["rounds"]
    assert [one["changed"] for one in first] == [0, 300, 300, 300]
    again = answer(capsys, *words)["rounds"]
    assert [one["cost"] for one in again] == [one["cost"] for one in first]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--random", "2"], "random: 2.0"),
        (["--random", "0.1", "--rounds", "-1"], "rounds: -1"),
        (["CHANGE", "--random", "0.1"], "not both"),
        (["--time-limit", "0"], "time-limit"),
        (["LACKS"], "lacks partition"),
    ],
)
def test_wrong_rounds_get_one_sentence(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "CHANGE": str(_changes(tmp_path / "change.npz")),
        "LACKS": str(_changes(tmp_path / "lacks.npz", partition=None)),
    }
    path = write(tmp_path / "a.npz")
    assert says in refused(capsys, "rounds", path, *(files.get(word, word) for word in words))


@pytest.mark.slow
def test_a_very_hot_object_that_fits_only_far_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 0 has an excess of 4: one object of 5 fits 100 away, two of 2 fit on adjacent nodes."""
    path = write(
        tmp_path / "a.npz",
        replica_node=np.array([[0], [0], [0], [1], [2], [3]], np.int32),
        primary_load=np.array([5, 2, 2, 1, 1, 1], np.float32),
        secondary_load=np.zeros(6, np.float32),
        capacity=np.array([5, 3, 3, 9], np.float32),
        fault_domain=np.arange(4, dtype=np.int32),
        node_xy=np.array([[0, 0], [1, 0], [-1, 0], [100, 0]], np.float32),
    )
    alp, joint = answer(capsys, "compare", path)["methods"]
    assert alp["cost"] == pytest.approx(100)
    assert joint["cost"] == pytest.approx(2)
    assert joint["saved"] == pytest.approx(0.98)
    assert alp["above_joint_bound"] == pytest.approx(49)
    assert joint["above_joint_bound"] == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    tight = ["--ratio-median", "0.6", "--ratio-sigma", "0.5"]
    few = ["--nodes", "20", "--partitions", "600", "--seed", "2"]
    answer(capsys, "generate", *few, *tight, "--out", path)
    alp, joint = answer(capsys, "compare", path)["methods"]
    assert (alp["method"], joint["method"]) == ("alp", "joint")
    assert alp["saved"] == 0
    assert joint["saved"] == pytest.approx(1 - joint["cost"] / alp["cost"])
    assert joint["saved"] >= 0
    code, text, _ = run(capsys, "ursa", "compare", path, "--method", "greedy", "--method", "alp")
    assert code == 0
    assert "greedy" in text
    assert "%" in text
    assert "above joint bound" in text
