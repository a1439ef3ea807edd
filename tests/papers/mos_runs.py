"""Runs of MOS's campaigns with chosen values, to test the analysis. Never shown as a result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.papers.mos.claims import REPORT_FILE
from analysis.papers.mos.simulated import SERIES_FILE
from schemas.cells.mos import COSPERF, MOS, LearntModel, PerfCell
from schemas.run import OpSummary, Summary
from tests.analysis.synthetic_runs import written

SMALL_QPS = {"default": 20.0, "favors-small": 150.0, "favors-large": 60.0}
LARGE_MB_S = {"default": 20.0, "favors-small": 4.0, "favors-large": 21.0}
LATENCY = {"default": 1.0, "favors-small": 0.2, "favors-large": 0.5}
LARGE_LATENCY = {"default": 1.0, "favors-small": 5.0, "favors-large": 0.8}
LOADS = ((2, 16), (8, 8), (16, 4), (32, 2))
"""Workers of A and C."""
QPS = {"default": 1.0, "static": 1.7, "mos-pp": 2.0}
MB_S = {"default": 1.1, "static": 1.0, "mos-pp": 1.6}
SHARE = {"proxy_cores": 0.8, "storage_cores": 0.8, "network": 50e6}
MINUTE_S, ENDS = 4.0, 152.0


def write_run(
    campaign: Path,
    block: int,
    values: dict[str, float],
    report: Any,
    *,
    spec: str = "mos",
    **cell: Any,
) -> Path:
    """Write one finished run on a testbed of the spec."""
    parameters = MOS.of(**cell).model_dump(mode="json")
    noise = 1 + 0.02 * block
    extra = {name: value * noise for name, value in values.items()}
    folder = written(campaign, block, "mos", parameters, extra, calibration={"spec": spec})
    (folder / REPORT_FILE).write_text(json.dumps(report))
    return folder


def write_setups(campaign: Path, block: int, spec: str = "mos") -> None:
    """Write the runs of figure 1."""
    for setup, qps in SMALL_QPS.items():
        values = {"failed": 0.0, "proxy_ms_per_op": 3.0, "storage_cores_used": qps / 100}
        for letter, share in (("A", 0.6), ("B", 0.4)):
            values |= {f"{letter}_qps": share * qps, f"{letter}_mean_s": 0.1 * LATENCY[setup]}
        for letter in "CD":
            values |= {f"{letter}_mb_s": LARGE_MB_S[setup] / 2}
            values |= {f"{letter}_mean_s": LARGE_LATENCY[setup]}
        write_run(campaign, block, values, {}, spec=spec, experiment="setups", setup=setup)


def write_alone(campaign: Path, block: int) -> None:
    """Write the runs of figures 2 to 5."""
    for kb in (10, 100, 1000, 16_000):
        rate = min(140.0, 25_000 / kb)
        values = {"qps": rate, "mb_s": rate * kb / 1000, "A_mean_s": 8 / rate, "proxy_busy": 0.6}
        report = {"latencies": {"A": {"read": [[0.5 * 8 / rate, 8 / rate, 100]]}}}
        write_run(campaign, block, values, report, experiment="sizes", object_kb=kb)
    for letter in "AC":
        for cores in (0.1, 0.2, 0.4):
            values = _of_proxy(letter, cores)
            cell: dict[str, Any] = {"experiment": "proxy", "workload": letter}
            write_run(campaign, block, values, {}, **cell, proxy_cores=cores)
        double = {name: 1.7 * value for name, value in _of_proxy(letter, 0.4).items()}
        write_run(campaign, block, double, {}, **cell, proxies=2)
        for cores in (0.05, 0.1, 0.2, 0.4):
            values = {"qps": min(140.0, 700 * cores), "mb_s": min(25.0, 300 * cores)}
            values["disk_busy_mean"] = 0.4
            cell = {"experiment": "storage", "workload": letter, "storage_cores": cores}
            write_run(campaign, block, values, {}, **cell)
        for ssds, gain in ((0, 1.15), (3, 1.7 if letter == "A" else 9.0)):
            for rate, factor in ((40, 1.0), (400, gain)):
                values = {"qps": 70 * factor, "mb_s": 5 * factor}
                cell = {"experiment": "network", "workload": letter, "ssds": ssds}
                write_run(campaign, block, values, {}, **cell, network_mbit=rate)
    write_run(campaign, block, _of_proxy("A", 0.4), {}, experiment="proxy", proxy_workers=2)
    for ssds in range(4):
        for rate in (50, 100, 150, 200):
            values = {"mb_s": min(rate / 8, 8.0 + 5 * ssds), "qps": 1.0}
            cell = {"experiment": "disks", "workload": "C", "ssds": ssds}
            write_run(campaign, block, values, {}, **cell, network_mbit=rate)


def _of_proxy(letter: str, cores: float) -> dict[str, float]:
    if letter == "A":
        return {"qps": 340 * cores, "mb_s": 22 * cores, "A_mean_s": 0.1, "proxy_busy": 0.95}
    return {"qps": 10.0, "mb_s": 25.0, "C_mean_s": 0.3, "proxy_busy": 0.06 / cores}


def write_loads(campaign: Path, block: int) -> None:
    """Write figures 8 to 10: MOS++ is always best, above all in the tail at peak load."""
    for small, large in LOADS:
        for setup, factor in QPS.items():
            values = {
                "qps": 30 * factor + small,
                "mb_s": MB_S[setup] * large,
                "A_qps": 30 * factor + small,
                "C_mb_s": MB_S[setup] * large,
                "A_p95_s": 0.01 * small / factor ** (3 if small > 8 else 1),
                "C_p95_s": large / MB_S[setup],
                "C_mean_s": 0.5 * large / MB_S[setup],
                "failed": 0.0,
            }
            cell = {"experiment": "load", "setup": setup, "small_workers": small}
            write_run(campaign, block, values, {}, **cell, large_workers=large)


COURSE = ((-1.0, 0.3, 0.7), (24.0, 0.05, 0.9), (48.0, 0.2, 0.2), (130.0, 0.5, 0.5))
"""Times, and the shares of the pool that the microstores of A and C hold from then on."""


def write_course(
    campaign: Path, block: int, lines: Sequence[tuple[float, float, float]] = COURSE
) -> None:
    """Write the runs of figures 11 and 12."""
    for setup, factor in QPS.items():
        seconds = int(ENDS)
        small = [10.0 * factor if at < 40 else 60.0 * factor for at in range(seconds)]
        report: dict[str, Any] = {
            "minute_s": MINUTE_S,
            "course": {"stages": [0.0, 40.0, 116.0], "spike_ends": 60.0, "ends": ENDS},
            "sla": {"latency_s": 0.09, "bytes_s": [12e6] * seconds},
            "pool": SHARE,
            "series": {
                "A": {
                    "ops": small,
                    "bytes": [65e3 * one for one in small],
                    "reads": small,
                    "read_s": [0.1 / factor * one for one in small],
                },
                "C": {
                    "ops": [3.0] * seconds,
                    "bytes": [10e6 * MB_S[setup]] * seconds,
                    "reads": [3.0] * seconds,
                    "read_s": [3.0] * seconds,
                },
            },
            "latencies": {"A": {"write": [[0.0, 0.4 / factor, 10]]}},
        }
        if setup == "mos-pp":
            report["held"] = [held(*line) for line in lines]
        values = {
            "A_qps": 50 * factor,
            "A_qps_spike": 60 * factor,
            "A_qps_stage3": 60 * factor,
            "A_mean_s": 0.1 / factor,
            "C_mb_s": 10 * MB_S[setup],
            "C_mb_s_stage1": 10 * MB_S[setup],
            "A_sla_met": 0.45 * factor,
            "C_sla_met": 0.5 * MB_S[setup],
            "failed": 2.0,
            "changes": 5.0,
            "act_s_max": 0.4,
            "decide_s_max": 0.2,
            "C_mb_s_stage3": 10 * MB_S[setup],
        }
        write_run(campaign, block, values, report, experiment="adaptation", setup=setup)


def held(t_s: float, small: float, large: float) -> dict[str, Any]:
    """Return the held resources of microstores, as shares of the pool."""
    return {
        "t_s": t_s,
        "stores": {
            name: {key: part * total for key, total in SHARE.items()}
            for name, part in (("small", small), ("large", large))
        },
        "utilization": {},
    }


def write_all(artifacts: Path, blocks: int = 6) -> Path:
    """Write the runs of every figure."""
    campaign = artifacts / "mos-local"
    for block in range(blocks):
        write_setups(campaign, block)
        write_alone(campaign, block)
        write_loads(campaign, block)
        write_course(campaign, block)
    return campaign


# ---- COSPerf ----

EPOCH_S = 900.0
EPOCHS = 56
BASE = {"A": 4000.0, "B": 2000.0, "C": 40.0, "D": 20.0}
BYTES = {"A": 6e4, "B": 6e4, "C": 6e7, "D": 6e7}
GAIN = {"A": 1.10, "B": 1.20, "C": 1.15, "D": 1.05}
PEAK = {("A", 30): 1.5, ("D", 31): 1.4, ("A", 45): 1.6, ("B", 50): 1.3}
"""Extra advantage of MOS++, by tenant and epoch."""


def rate(policy: str, tenant: str, epoch: int, parameters: PerfCell, block: int) -> float:
    """Return the reported rate of served requests of a run."""
    found = BASE[tenant] * (1 + 0.1 * block) * min(1.0, 0.5 + epoch / 28)
    if policy == "static":
        return 0.7 * found
    if policy in ("mos", "mos-at-once"):
        return found
    cost = 0.3 if isinstance(parameters, LearntModel) and parameters.learns else 0.6
    gain = GAIN[tenant] * (1 - cost * parameters.model_error) * (1 + 0.01 * block)
    return found * gain * PEAK.get((tenant, epoch), 1.0)


JOURNAL: tuple[dict[str, Any], ...] = (
    {"parameters": {"tenants": {"A": {"sla": {"latency_ms": 120.0}}}}},
    {
        "t_s": 18_600.0,
        "observation": {
            "microstores": {"stores": [{"name": "C", "utilization": {"network": 0.8}}]}
        },
    },
)
"""A promise to A, and the network's use at minute 310."""


def write_simulated_run(campaign: Path, block: int, **cell: Any) -> Path:
    """Write one finished run."""
    parameters = COSPERF.of(**cell)
    folder = written(
        campaign,
        block,
        "mos",
        parameters.model_dump(mode="json"),
        {"A_requests_s": 1.0},
        ground="sim",
        phase="simulate",
        site="cosperf",
        calibration={"simulated": True},
    )
    series = _series(parameters, block)
    (folder / SERIES_FILE).write_text(json.dumps(series))
    (folder / "journal.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in JOURNAL))
    return folder


def _series(parameters: PerfCell, block: int) -> dict[str, Any]:
    rates = {
        tenant: [
            rate(parameters.policy, tenant, epoch, parameters, block) for epoch in range(EPOCHS)
        ]
        for tenant in BASE
    }
    share = 0.25 if parameters.policy == "mos" else 0.2
    return {
        "minutes": 840.0,
        "t_s": [EPOCH_S * (epoch + 1) for epoch in range(EPOCHS)],
        "seconds": [EPOCH_S] * EPOCHS,
        "tenants": {
            tenant: {
                "requests_s": values,
                "bytes_s": [value * BYTES[tenant] for value in values],
                "latency_s": [0.1] * EPOCHS,
                "utilization": [0.7] * EPOCHS,
            }
            for tenant, values in rates.items()
        },
        "held": {
            tenant: {
                name: [(0.25 if name == "storage_cores" else share) * 200] * EPOCHS
                for name in _POOL
            }
            for tenant in BASE
        },
        "pool": dict.fromkeys(_POOL, 200.0),
    }


_POOL = ("proxy_cores", "storage_cores", "network", "ssds", "hdds")


def write_simulated(campaign: Path, blocks: int = 6) -> Path:
    """Write every cell of `mos-sim`."""
    for block in range(blocks):
        for policy in ("static", "mos", "mos-pp", "mos-pp-learning"):
            write_simulated_run(campaign, block, policy=policy)
        for error in (0.1, 0.2, 0.3):
            write_simulated_run(campaign, block, policy="mos-pp-learning", model_error=error)
        for error in (0.0, 0.1, 0.2, 0.3):
            cell = {"policy": "mos-pp-learning", "model_error": error, "runs": "same"}
            write_simulated_run(campaign, block, **cell)
            write_simulated_run(campaign, block, **cell, learns=False)
        for policy in ("mos", "mos-pp"):
            write_simulated_run(campaign, block, policy=policy, cost_factor=10)
            write_simulated_run(campaign, block, policy=policy, profile="local")
    return campaign


# ---- The object gateway ----

SPEED = {"default": 10.0, "dlr": 15.0, "reweight": 10.0}
"""MB/s on the object gateway under hotspots; twice that without."""


def write_gateway_run(
    campaign: Path, letter: str, scenario: str, controller: str, block: int, *, inert: bool = False
) -> None:
    """Write one finished run on the object gateway."""
    parameters = {
        **{"op": "s3", "workload": letter, "workers": 16, "scenario": scenario},
        **{"controller": controller, "controller_parameters": {}, "duration_s": 180.0},
    }
    speed = SPEED[controller] * (2 if scenario == "none" else 1) * (1 + 0.02 * block)
    speed *= 1 + 0.01 * block if controller == "dlr" else 1
    both = OpSummary(
        op="s3",
        seconds=30.0,
        operations=1000,
        bytes=int(30e6 * speed),
        throughput_mb_s=speed,
        iops=100.0,
        latency_mean_s=1 / speed,
        errors=0,
    )
    read = both.model_copy(update={"op": "read", "throughput_mb_s": 1.0})
    summary = Summary(whole=[read, both], steady=[both], pressure_mean={}, inert=inert)
    written(campaign, block, "dlr", parameters, summary)


def write_gateway(campaign: Path, blocks: int = 6) -> Path:
    """Write workloads A and C, and a controller without changes under B."""
    for block in range(blocks):
        for letter in ("A", "C"):
            write_gateway_run(campaign, letter, "none", "default", block)
            for controller in SPEED:
                write_gateway_run(campaign, letter, "heterogeneity", controller, block)
        write_gateway_run(campaign, "B", "heterogeneity", "default", block)
        write_gateway_run(campaign, "B", "heterogeneity", "reweight", block, inert=True)
    return campaign
