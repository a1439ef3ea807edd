"""The bench of Ursa's rounds at a small size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "bench_ursa_incremental.py"


@pytest.mark.slow
def test_rows_of_a_small_instance() -> None:
    words = ["--nodes", "60", "--partitions", "6000", "--kinds", "s2"]
    done = subprocess.run(
        [sys.executable, str(BENCH), *words], stdout=subprocess.PIPE, text=True, check=True
    )
    decision, cost = json.loads(done.stdout.splitlines()[-1])
    assert decision["name"] == "ursa incremental s2 60-6000, 1% of the loads changed, decision"
    assert decision["n"] == 9
    assert decision["value"] > 0
    assert decision["limit"] is None, "the limit is of the large size"
    assert "10 of 10 plans valid" in decision["note"]
    assert cost["name"].endswith("cost over a plan from scratch")
    assert cost["value"] is None or abs(cost["value"]) < 50
