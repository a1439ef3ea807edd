"""Time to bundle and verify 1000 runs (synthetic folders, real archive and analysis).

In addition to the analysis files, a folder has the files of a `dlr-quick` run on the local site,
equally large and varied. 29 of those runs held 172 kB each; 43 kB each remained in the archive.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))

import numpy as np
import pandas as pd
from frame import row, show
from synthetic import cells, write_campaign

from analysis.bundle.publish import build
from analysis.bundle.verify import verify
from schemas.bundle import Sources

RUNS = 1000
LIMIT_S = 60.0
NODES = ("admin", *(f"osd{number}" for number in range(8)))
METRICS = ("disk_read_mb_s", "disk_write_mb_s", "disk_util", "disk_queue", "net_rx_mb_s")
METRICS += ("net_tx_mb_s", "cpu_cores", "hot", "pressure")
RECORDED_S = 41
STEPS = 10
LOGS = {"logs/recording.jsonl": 80_000, "logs/disturbance.json": 33_000, "notebook.ipynb": 25_000}
"""Files that are not packed, with their bytes."""
HOST = {
    "kernel": "6.1.0-42-amd64",
    "machine": "x86_64",
    "distribution": "Debian GNU/Linux 12 (bookworm)",
    "cpus": 2,
    "cpu_model": "a processor",
    "memory_bytes": 4294967296,
    "fio": "3.33",
    "python3": "3.11.2",
    "ceph": "16.2.15",
}


def leave_the_rest(attempt: Path, random: np.random.Generator) -> None:
    """Write the other files and contents that a run of DLR on machines leaves."""
    recorded = random.gamma(0.5, 20.0, (RECORDED_S, len(NODES), len(METRICS))).round(3)
    _sample(attempt / "samples.parquet", recorded)
    run = json.loads((attempt / "run.json").read_bytes())
    run["provenance"]["hosts"] = dict.fromkeys(NODES, HOST)
    (attempt / "run.json").write_text(json.dumps(run, indent=2))
    job = run | {"notebook": "/srv/hotbed/notebooks/experiment.ipynb", "testbed": "dlr"}
    (attempt / "job.json").write_text(json.dumps(job, indent=2))
    _journal(attempt / "journal.jsonl", 1795297493.0 + 60 * float(random.random()), random)
    (attempt / "logs").mkdir()
    for name, size in LOGS.items():  # they are read and left out
        lines = [json.dumps(value) for value in random.random(size // 20).tolist()]
        (attempt / name).write_text("\n".join(lines))


def _sample(file: Path, recorded: np.ndarray) -> None:
    """Add all recorded values of nodes to those that the analysis uses."""
    seconds, nodes, metrics = np.indices(recorded.shape).reshape(3, -1)
    more = pd.DataFrame(
        {
            "t_s": seconds.astype(float),
            "node": np.take(NODES, nodes),
            "metric": np.take(METRICS, metrics),
            "value": recorded.reshape(-1),
        }
    )
    known = pd.read_parquet(file)
    more = more[~more.metric.isin(set(known.metric))]
    pd.concat([known, more], ignore_index=True).to_parquet(file)


def _journal(file: Path, start: float, random: np.random.Generator) -> None:
    lines: list[dict[str, Any]] = [{"schema": 1, "header": True}]
    for step in range(STEPS):
        osds = [
            {"id": number, "node": f"osd{number}", "up": True, "in_": True, "rack": ""}
            | {"primary_affinity": float(random.random()), "reweight": 1.0}
            for number in range(len(NODES) - 1)
        ]
        timed = {"sense_s": 0.02, "decide_s": 0.001, "act_s": 0.05}
        lines.append({"step": step, "wall": start + step, **timed, "observation": {"osds": osds}})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    """Print the result."""
    per_block = sum(1 for _ in cells())
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        campaign = write_campaign(place / "artifacts", blocks=-(-RUNS // per_block))
        for number, record in enumerate(sorted(campaign.glob("*/attempt-1/run.json"))):
            leave_the_rest(record.parent, np.random.default_rng(number))
        sources = Sources("0", None, ({"name": "A bench"},))
        start = time.perf_counter()
        made = build(place / "artifacts", "dlr-full", place / "x.zip", lambda *_: sources)
        bundled = time.perf_counter()
        checked = verify(made.path)
        end = time.perf_counter()
        assert checked.ok, checked.differences
    parts = f"bundle {bundled - start:.1f} s, verify {end - bundled:.1f} s"
    name = f"bundle and verify {made.derived.runs} runs"
    note = f"{parts}; {made.bytes / 1e6:.0f} MB packed"
    show([row(name, end - start, "s", LIMIT_S, note=note)])


if __name__ == "__main__":
    main()
