"""Bench of simulated bursts compared with SimPy, at a small size."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

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
