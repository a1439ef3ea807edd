"""The bench of simulated bursts beside SimPy, at a small size."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "bench_twochoice_simulation.py"


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location(BENCH.stem, BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {**bench.CASE, "servers": 50, "processes": 500}
    for name, value in {"CASE": case, "SEEDS": 3, "BURSTS": 2}.items():
        monkeypatch.setattr(bench, name, value)


@pytest.mark.slow
def test_both_simulate_the_same_bursts(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    small(bench, monkeypatch)
    row = bench.beside_simpy()
    assert row["value"] > 0
    assert (row["limit"], row["at_least"], row["n"]) == (100.0, True, 3)


@pytest.mark.slow
def test_what_differs_is_told(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    small(bench, monkeypatch)
    simulate = bench.simulate

    def other(request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = simulate(request)
        if "trace" in answer:
            answer["trace"]["loads"][0] += 50
            answer["trace"]["probes"][0][:2] = [0, 0]
        return answer

    monkeypatch.setattr(bench, "simulate", other)
    with pytest.raises(AssertionError, match="seed 0: SimPy"):
        bench.beside_simpy()


@pytest.mark.slow
def test_without_the_program_nothing_is_measured(
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "TCSIM", tmp_path / "tcsim")
    bench.main()
    assert "is not built: make setup" in capsys.readouterr().out
