"""The bench of the scheduler's overhead: what it makes of the programs' results."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHES = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHES))
    return importlib.import_module("bench_twochoice_overhead")


def test_rounds_are_paired_and_take_turns(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def program(*arguments: str) -> dict[str, Any]:
        name = Path(arguments[arguments.index("--cluster") + 1]).stem
        order.append(name)
        # Every second round is on a slower machine, for both.
        slow = 1.0 + (len(order) - 1) // 2 % 2
        took = slow * (1.02 if name == "both" else 1.0)
        return {"seconds": took * 5, "writes": 5, "redirected": 0}

    monkeypatch.setattr(bench, "program", program)
    monkeypatch.setattr(bench, "ROUNDS", 4)
    row = bench.overhead({"both": Path("both.json"), "fixed": Path("fixed.json")})
    assert order == ["both", "fixed", "fixed", "both"] * 2
    assert row["value"] == pytest.approx(2.0)
    assert (row["limit"], row["n"]) == (3.0, 4)


def test_rounds_that_tell_nothing_say_so(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([5.0, 6.0, 5.0, 9.0, 5.0, 4.0, 7.0, 5.0])

    def program(*_: str) -> dict[str, Any]:
        return {"seconds": next(seconds), "writes": 5, "redirected": 0}

    monkeypatch.setattr(bench, "program", program)
    monkeypatch.setattr(bench, "ROUNDS", 4)
    row = bench.overhead({"both": Path("both.json"), "fixed": Path("fixed.json")})
    assert row["value"] is None
    assert row["note"].startswith("the machine is too busy to tell")


def test_what_probing_takes_is_of_the_write_without_it(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {
        "steps": {"probe": {"n": 9, "mean": 0.002}},
        "apps": [{"latency": {"n": 9, "mean": 0.102}, "redirected": 0}],
    }
    monkeypatch.setattr(bench, "program", lambda *_: found)
    row = bench.probing(tmp_path / "both.json", tmp_path)
    assert row["value"] == pytest.approx(2.0)
    assert (row["limit"], row["n"]) == (3.0, 9)


def test_without_root_nothing_is_measured(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "PROGRAMS", Path("/nonexistent"))
    bench.main()
    assert "not built: make setup" in capsys.readouterr().out
