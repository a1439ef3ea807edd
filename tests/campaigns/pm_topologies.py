"""Random small topologies with traces that burst at the same times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from campaigns.papers.prioritymeister.topology import Topology, load_topology

GRID = {"offsets": [0, 10**9], "distances": [-(10**6), 0, 10**8]}
PROFILES: dict[str, dict[str, Any]] = {
    "constant.json": {
        "type": "storageConstant",
        "base": 0.0005,
        "readBandwidth": 2e8,
        "writeBandwidth": 1e8,
    },
    "ssd.json": {
        "type": "storageSSD",
        "bandwidthTable": [
            {"requestSize": 4096, "readBandwidth": 4e6, "writeBandwidth": 2e6},
            {"requestSize": 65536, "readBandwidth": 64e6, "writeBandwidth": 32e6},
        ],
    },
    "disk.json": {
        "type": "storageTable",
        "history": 2,
        "read": {**GRID, "base": [[4e-3, 1e-3, 6e-3]] * 2, "bandwidth": [[1e8] * 3] * 2},
        "write": {**GRID, "base": [[5e-3, 2e-3, 7e-3]] * 2, "bandwidth": [[9e7] * 3] * 2},
        "network": {"dataConstant": 100, "dataFactor": 1.02},
    },
}


def write_trace(random: np.random.Generator, path: Path, *, seconds: float = 4.0) -> None:
    """Write a trace: bursts at whole tenths, shared with other workloads, and requests between."""
    times: list[float] = []
    for _ in range(int(random.integers(2, 8))):
        begin = float(random.integers(0, int(10 * seconds))) / 10
        count = int(random.integers(1, 12))
        gap = float(random.choice([0.0, 1e-4, 3e-3]))
        times += [begin + gap * k for k in range(count)]
    times += list(random.uniform(0, seconds, int(random.integers(2, 30))))
    times += [0.0, seconds]
    sizes = random.choice([512, 4096, 65536, 262144], 3)
    position = 0
    with path.open("w") as file:
        for when in sorted(times):
            size = int(random.choice(sizes))
            position = position if random.random() < 0.4 else int(random.integers(0, 10**9))
            kind = "Read" if random.random() < 0.6 else "Write"
            file.write(f"{round(1e9 * when)},0x{size:x},Disk{kind},0x{position:x}\n")
            position += size


def hurried(trace: Path, out: Path, times: int) -> Path:
    """Write the same requests at `times` the announced rate."""
    rows = (row.split(",", 1) for row in trace.read_text().splitlines())
    out.write_text("".join(f"{int(at) // times},{rest}\n" for at, rest in rows))
    return out


def random_topology(seed: int, folder: Path) -> tuple[Topology, Path]:
    """Return a topology of one to three servers and up to six workloads, and its file."""
    random = np.random.default_rng(seed)
    for name, profile in PROFILES.items():
        (folder / name).write_text(json.dumps(profile))
    servers, clients = int(random.integers(1, 4)), int(random.integers(1, 4))
    two = bool(random.random() < 0.3)

    def link() -> float:
        return float(random.choice([1e8, 3e8, 1e9]))

    hosts: dict[str, Any] = {}
    for k in range(servers):
        devices = {
            f"d{i}": {
                "profile": str(random.choice(list(PROFILES))),
                "speed": float(2 ** random.integers(0, 3)),
            }
            for i in range(int(random.integers(1, 3)))
        }
        hosts[f"s{k}"] = {"link": link(), "devices": devices}
    for k in range(clients):
        hosts[f"c{k}"] = {"link": link(), "ingress": link()}
    if two:
        for name, host in hosts.items():
            host["switch"] = "a" if name.startswith("c") else "b"
    workloads = []
    for k in range(int(random.integers(1, 7))):
        server = f"s{random.integers(servers)}"
        # Without a trunk a server may also be a client: its link carries both directions.
        others = [name for name in hosts if name != server and (not two or name.startswith("c"))]
        write_trace(random, folder / f"t{k}.csv")
        workload: dict[str, Any] = {
            "name": f"w{k}",
            "client": str(random.choice(others)),
            "server": server,
            "device": str(random.choice(list(hosts[server]["devices"]))),
            "trace": f"t{k}.csv",
            "slo": {"latency": float(np.exp(random.uniform(-5, 1)))},
        }
        if random.random() < 0.2:
            workload["slo"] = {"completion": float(random.uniform(4, 8))}
        if two:
            workload["route"] = ["a", "b"]
        workloads.append(workload)
    document = {
        "hosts": hosts,
        "workloads": workloads,
        "network_levels": int(random.integers(1, 8)),
        "buckets": int(random.integers(1, 9)),
        "blocking": bool(random.random() < 0.5),
    }
    if two:
        document["trunks"] = [{"between": ["a", "b"], "link": link()}]
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_topology(file), file
