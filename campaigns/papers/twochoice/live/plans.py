"""Inputs of the load generator for a cell: a plan of ``twochoicebench apps``, or arguments
(docs/twochoice-server.md)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from schemas.cells.twochoice import (
    KIB,
    PLAIN,
    Balance,
    ConcurrentProbes,
    Delay,
    Jobs,
    MeasuredBurst,
    ObjectCell,
    RedirectTable,
)
from workloads.burst_applications import BurstCluster, applications

MEASURED = "measured"
"""Name of the measured job of a burst."""
WHOLE_S = 1800.0
"""Limit of the seconds of a cell's applications."""
PATIENCE_S = 600.0
"""Seconds that a client waits for an answer. Queues of a burst are long, and retries make them
longer."""
EXPECTED_S = 20.0
"""Seconds that a server expects requested data: two processors need them to carry 512 processes'
writes. Data that is forgotten earlier is neither counted nor learned from."""
CEPH = {
    "conf": "/etc/ceph/ceph.conf",
    "keyring": "/etc/ceph/ceph.client.admin.keyring",
    "user": "admin",
}
"""Access of a client node to its Ceph (role ceph)."""
STRAGGLER_FILE = "straggler"
"""File of fio's writes in a server's folder."""
TABLE_SAMPLES = 50
TABLE_WRITERS = 8


def settings(parameters: ObjectCell) -> dict[str, Any]:
    """Return the cluster file's settings for a cell, other than agents and key (for agents too)."""
    # Agents have no oracle, because an oracle probes no server, and see no writes that bypass them.
    usual = MeasuredBurst(experiment="burst", maintainers=not isinstance(parameters, RedirectTable))
    jobs = parameters if isinstance(parameters, Jobs) else usual
    unknown = jobs.scheduler in (*PLAIN, "oracle")
    return {
        "copies": jobs.copies,
        "scheduler": {
            "scheduler": "fixed" if unknown else jobs.scheduler,
            "choices": jobs.choices,
            "cache_lifetime": jobs.cache_s,
            "preassign": {
                "unit": parameters.size,
                "prior": 0.5,
                "weight": 1,
                "lifetime": EXPECTED_S,
            },
        },
        "maintainer": {"off": not jobs.maintainers},
        "patience": PATIENCE_S,
        "attempts": 3,
    }


def plan(parameters: Jobs, seed: int, servers: int, pool: str | None = None) -> dict[str, Any]:
    """Return the plan of a burst or a balance: the same jobs on the same nodes and files for every
    scheduler of a block.

    Args:
        parameters: the cell's parameters.
        seed: the block's seed.
        servers: number of servers.
        pool: pool for writes that CRUSH places.
    """
    cluster = BurstCluster(parameters.nodes, parameters.processes, servers)
    found: list[dict[str, Any]] = []
    balance = isinstance(parameters, Balance)
    if parameters.table2:
        found += applications(
            cluster,
            seed,
            size=parameters.size,
            volume=parameters.volume,
            think_s=parameters.think_s,
            scheduler=parameters.scheduler if balance else "fixed",
            background=not balance,
        )
    plain = parameters.scheduler in PLAIN
    if isinstance(parameters, MeasuredBurst):
        found.append(
            {
                "name": f"{MEASURED}-{random.Random(f'start {seed}').getrandbits(32):08x}",
                **({"pool": pool} if plain else {"scheduler": parameters.scheduler}),
                "writes": parameters.writes,
                "size": parameters.size,
                "start": parameters.lead_s,
            }
        )
    return ({"ceph": CEPH} if plain else {}) | {
        "nodes": parameters.nodes,
        "processes": parameters.processes,
        "seed": seed,
        "apps": found,
        "verify": True,
        "patience": WHOLE_S,
    }


def stragglers(parameters: Jobs, seed: int, servers: int) -> tuple[int, ...]:
    """Return the servers with fio on their disks, the same for every scheduler of a block."""
    if not isinstance(parameters, MeasuredBurst) or parameters.stragglers != "fio":
        return ()
    count = max(1, round(parameters.straggler_share * servers))
    return tuple(sorted(random.Random(f"stragglers {seed}").sample(range(servers), count)))


def fio_command(folder: str, seconds: float) -> list[str]:
    """Return the fio command for a server's disk, in parallel with the server. Eight writes of 64
    KiB are always in flight, so that each of the server's disk requests waits for eight others."""
    return [
        *("fio", "--name=straggler", f"--filename={folder}/{STRAGGLER_FILE}", "--rw=write"),
        "--bs=64k",
        *("--iodepth=8", "--ioengine=libaio", "--direct=1", "--size=128m", "--time_based"),
        *(f"--runtime={seconds:.0f}", "--output-format=json"),
    ]


def probe_arguments(parameters: ConcurrentProbes) -> list[str]:
    """Return figure 11's arguments: every scheduler probes the servers for `pending` writes."""
    return [
        *("probe", "--servers", str(2 * parameters.pending)),
        *("--schedulers", str(parameters.schedulers_at_once), "--times", str(parameters.probes)),
        *("--size", f"{parameters.size}B"),
    ]


def table_arguments(parameters: RedirectTable, seed: int) -> list[str]:
    """Return figure 12's arguments."""
    return [
        *("table", "--writers", str(TABLE_WRITERS), "--writes", str(parameters.operations)),
        *("--samples", str(min(TABLE_SAMPLES, parameters.operations)), "--seed", str(seed)),
        *("--object", f"{parameters.object_kib * KIB}B"),
    ]


def delay_plan(parameters: Delay, seed: int) -> Mapping[str, Any]:
    """Return Table I's plan: `pending` writes at a time of one compute node, unscheduled."""
    app = {
        "name": f"delay-{seed}",
        "scheduler": "fixed",
        "writes": parameters.rounds,
        "size": parameters.size,
    }
    return {
        "nodes": 1,
        "processes": parameters.pending,
        "seed": seed,
        "apps": [app],
        "patience": WHOLE_S,
    }
