"""The modelled Ceph's bench at a small size: every row that `hotbed bench` shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "bench_simulated_ceph.py"


@pytest.mark.slow
def test_rows_of_small_stores() -> None:
    words = ["--speed", "16", "--seconds", "3", "--memory", "8", "--memory-seconds", "2"]
    words += ["--step", "32", "--steps", "3"]
    done = subprocess.run(
        [sys.executable, str(BENCH), *words], stdout=subprocess.PIPE, text=True, check=True
    )
    step, loop, speed, memory = json.loads(done.stdout.splitlines()[-1])
    assert step["name"] == "modelled Ceph, 32 OSDs, a policy's step over the bridge"
    assert step["n"] == 3 and 0 < step["value"] < 1000
    assert "10 affinities changed" in step["note"] and "2048 placement groups" in step["note"]
    assert loop["name"] == "modelled Ceph, 32 OSDs, a step of DLR with all that the loop does"
    assert loop["n"] == 2 and 0 < loop["value"] < 1000 and "journalled" in loop["note"]
    assert speed["name"] == "modelled Ceph, 16 OSDs, 256 in flight, 3 virtual seconds"
    assert 0 < speed["value"] < 60 and "load average" in speed["note"]
    assert 0 < memory["value"] < 1 and "Python beside it" in memory["note"]
    assert [row["unit"] for row in (step, loop, speed, memory)] == ["ms", "ms", "s", "GiB"]
    assert [row["limit"] for row in (step, loop, speed, memory)] == [None] * 4, "of the large sizes"
