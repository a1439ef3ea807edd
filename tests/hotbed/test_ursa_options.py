"""`hotbed ursa`: options, and instances from the generator to the checked plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ursa_cli import answer, run, write


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--method", "best"], "allowed: alp, "),
        (["--time-limit", "0"], "time-limit"),
        (["--max-move-cost", "-1"], "max-move-cost"),
        (["--seed", "-1"], "seed"),
        (["--swap-success", "2"], "probability"),
    ],
)
def test_wrong_options_get_one_sentence_before_the_file_is_read(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "ursa", "plan", tmp_path / "none.npz", *words)
    assert code == 2
    assert says in err
    assert "none.npz" not in err
    assert len(err.strip().splitlines()) == 1


def test_a_plan_that_cannot_be_written_gets_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--method", "greedy", "--out", "/dev/null/plan.npz"]
    code, _, err = run(capsys, "ursa", "plan", write(tmp_path / "a.npz"), *words)
    assert code == 2
    assert "cannot be written" in err
    assert len(err.strip().splitlines()) == 1


def test_generate_plan_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--nodes", "60", "--partitions", "6K", "--seed", "1", "--kind", "s2"]
    facts = answer(capsys, "generate", *words)
    path = Path(facts["path"])
    assert path == tmp_path / "ursa-s2-60-6K-1.npz"
    assert (facts["nodes"], facts["partitions"]) == (60, 6000)
    again = answer(capsys, "generate", *words, "--out", tmp_path / "again.npz")
    with np.load(path) as first, np.load(again["path"]) as second:
        assert all(np.array_equal(first[name], second[name]) for name in first.files)
    plans = []
    for name in ("one.npz", "two.npz"):
        summary = answer(
            capsys,
            "plan",
            path,
            "--method",
            "greedy",
            "--seed",
            "3",
            "--out",
            name,
            "--swap-success",
            "0.9",
        )
        assert summary["hot_before"] == facts["hot"]
        plans.append(Path(name).read_bytes())
        report = answer(capsys, "check", path, name)
        assert report["valid"] is True
    with np.load("one.npz") as first, np.load("two.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first.files)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "ten", "--partitions", "10"], "nodes: 'ten'"),
        (["--nodes", "1.5", "--partitions", "10"], "nodes: '1.5'"),
        (["--nodes", "2", "--partitions", "10"], "do not fit"),
        (["--nodes", "0", "--partitions", "10"], "nodes: 0"),
        (["--nodes", "10", "--partitions", "10", "--kind", "s9"], "allowed: s1"),
        (["--nodes", "10", "--partitions", "10", "--tail", "0"], "tail"),
        (["--nodes", "10", "--partitions", "10", "--load-max", "1"], "load_max"),
        (["--nodes", "10", "--partitions", "10", "--domain", "rack"], "no racks"),
        (["--nodes", "10", "--partitions", "10", "--racks", "11"], "11 racks"),
        (["--nodes", "10", "--partitions", "10", "--seed", "-1"], "seed"),
    ],
)
def test_what_cannot_be_generated_gets_one_sentence(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "ursa", "generate", *words, "--out", tmp_path / "a.npz")
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1
