"""The bench of the two-choice protocol: what it makes of the programs' results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "bench_twochoice_protocol.py"


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_twochoice_protocol", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(failed: list[dict[str, Any]]) -> dict[str, Any]:
    """What the program prints."""
    totals = dict.fromkeys(
        ("acknowledged_writes", "reads_compared", "node_crashes", "lost_messages"), 7
    )
    return {"seeds": 10, "failed": failed, "seconds": 1.0, "totals": totals}


def test_a_seed_that_broke_the_promise_is_counted_with_its_replay(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "program", lambda *_: result([]))
    row = bench.promise()
    assert (row["value"], row["limit"], row["n"]) == (0, 0, 10)
    assert "7 acknowledged writes" in row["note"]
    failed = [{"seed": 4, "error": "two orders", "replay": "go run x"}]
    monkeypatch.setattr(bench, "program", lambda *_: result(failed))
    row = bench.promise()
    assert row["value"] == 1
    assert row["note"] == "two orders; replay: go run x"


def test_without_the_programs_nothing_is_measured(
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "PROGRAMS", tmp_path)
    bench.main()
    assert '"value": null' in capsys.readouterr().out
