"""Test runs of `hotbed pm`, and a topology of three workloads with made-up traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.hotbed.runner import Runner

PROFILE = {
    "type": "storageSSD",
    "bandwidthTable": [
        {"requestSize": 4096, "readBandwidth": 4e6, "writeBandwidth": 2e6},
        {"requestSize": 65536, "readBandwidth": 64e6, "writeBandwidth": 32e6},
    ],
}


def write_trace(path: Path, seed: int = 1, n: int = 400, rate: float = 50.0) -> None:
    """Write Poisson arrivals of 4 KiB and 64 KiB, mostly reads."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1e9 / rate, n)).astype(np.int64)
    lines = [
        f"{t},0x{random.choice([4096, 65536]):08x},Disk{random.choice(['Read', 'Read', 'Write'])}\n"
        for t in times
    ]
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def topology(folder: Path) -> dict[str, Any]:
    (folder / "ssd.json").write_text(json.dumps(PROFILE))
    for k in range(3):
        write_trace(folder / f"t{k}.csv.gz", seed=k)
    return {
        "hosts": {
            "s0": {"link": "1Gbit", "devices": {"ssd": "ssd.json"}},
            **{f"c{k}": {"link": "1Gbit"} for k in range(3)},
        },
        "workloads": [
            {
                "name": f"w{k}",
                "client": f"c{k}",
                "server": "s0",
                "trace": f"t{k}.csv.gz",
                "slo": {"latency": f"{(k + 1) * 200}ms"},
            }
            for k in range(3)
        ],
    }


def run(*arguments: str) -> Any:
    """Return the JSON that a command prints, or raise its UserError."""
    done = Runner().run(["pm", *arguments, "--json"], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plan(folder: Path, document: dict[str, Any]) -> Any:
    path = folder / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    return run("plan", str(path))
