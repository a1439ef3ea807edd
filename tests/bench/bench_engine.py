"""Cost of the engine per cell beyond its workload: notebook process, kernel, imports, records.

The ground is in memory; only the workload's own steps take time.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import yaml
from frame import ROOT, row, show

CAMPAIGNS = ROOT / "tests" / "campaigns"
sys.path.insert(0, str(CAMPAIGNS))
LIMIT_S = 5.0
CELLS = 5
WORKLOAD_S = 1.0


def main() -> None:
    from tiny_campaigns import ONE_CELL, TINY

    from campaigns.engine.display import Progress
    from campaigns.engine.session import Request, run
    from campaigns.engine.store import RunStore

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HOTBED_FAKE_GROUND"] = str(CAMPAIGNS / "fake_ground.py")
        os.environ["HOTBED_FAKE_LOCKS"] = name
        changes = {
            "time_scale": 1,
            "parameters": {"duration_s": WORKLOAD_S, "interval_s": 0.001},
            "grids": [{**ONE_CELL[0], "repetitions": CELLS}],
        }
        path = folder / "tiny.yaml"
        path.write_text(yaml.safe_dump({**TINY, **changes}))
        started = time.monotonic()
        result = run(Request(str(path), artifacts=folder / "artifacts"), progress=Progress())
        whole = time.monotonic() - started
        assert result.ok, result.sentence
        runs = list(RunStore(folder / "artifacts" / "tiny").runs())
        workload = statistics.fmean(found.phases_s["workload"] for found in runs)
    note = f"{CELLS} cells through papermill on a ground in memory, mean of the whole campaign"
    value = round(whole / CELLS - workload, 3)
    show([row("engine overhead per cell", value, "s", LIMIT_S, n=CELLS, note=note)])


if __name__ == "__main__":
    main()
