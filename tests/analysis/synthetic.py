"""Run folders with chosen effects, to test the analysis. Never shown as a measurement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.claims import Evidence
from analysis.core.load import load_campaign
from analysis.core.papers import Part
from analysis.papers.dlr.runs import tabulate
from schemas.run import OpSummary, Summary
from tests.analysis.synthetic_runs import written

CALM = {"write": 118.0, "seq": 243.0, "rand": 255.0}
HOT = {"write": 0.6, "seq": 0.62, "rand": 0.63}
GAIN = {"default": 1.0, "reweight": 0.97, "dlr": 1.25, "dlr-pg": 1.35, "dlr-auto": 1.22}
OPS = ("write", "seq", "rand")


def evidence_of(campaign: Path, part: Part | None = None) -> Evidence:
    """Return a campaign's runs that a part is about, by default DLR's."""
    part = part or Part((), (), tabulate=tabulate)
    runs = [one for one in load_campaign(campaign).runs if part.takes(one.run)]
    return Evidence(part.tabulate(runs), runs)


def write_run(
    campaign: Path,
    parameters: Mapping[str, Any],
    block: int,
    throughput: float,
    *,
    status: str = "done",
    attempt: int = 1,
    inert: bool = False,
    pressures: Mapping[str, float] | None = None,
    ground: str = "local",
    with_samples: bool = True,
    calibration: Mapping[str, Any] | None = None,
    controller: Mapping[str, float] | None = None,
    ceph: str = "16.2.15",
) -> Path:
    """Write one attempt's folder and return it. `throughput` is in MB/s; `controller` has further
    numbers of the journal."""
    defaults = {
        "object_size": 4 * 2**20,
        "concurrency": 16,
        "duration_s": 180,
        "signal": "node",
        "mix": None,
        "spread": None,
        "controller_parameters": {},
    }
    full = defaults | dict(parameters)
    latency = 16 * full["object_size"] / 1e6 / throughput
    op = OpSummary(
        op=full["op"],
        seconds=30,
        operations=100,
        bytes=int(throughput * 30e6),
        throughput_mb_s=throughput,
        iops=throughput * 1e6 / full["object_size"],
        latency_mean_s=latency,
    )
    summary = Summary(
        whole=[op],
        steady=[op],
        pressure_mean=dict(pressures or {"osd0": 90.0, "osd1": 5.0}),
        controller={"sense_s": 0.02, "decide_s": 0.001, "act_s": 0.05, **(controller or {})},
        inert=inert,
    )
    folder = written(
        campaign,
        block,
        "dlr",
        full,
        summary,
        ground=ground,
        calibration=calibration,
        versions={"ceph": ceph},
        signal="io_pressure",
        attempt=attempt,
        seed=block,
        time_scale=1 / 6,
        status=status,
        ended_at="2026-01-01T00:00:30Z",
        osd_count=full.get("osds") or (calibration or {}).get("count", 8),
    )
    if with_samples:
        _samples(throughput, block).to_parquet(folder / "samples.parquet")
        if full["controller"] == "dlr":
            lines: list[dict[str, Any]] = [{"schema": 1, "header": True}]
            lines += [
                {"step": k, "sense_s": 0.02, "decide_s": 0.001, "act_s": 0.05} for k in range(5)
            ]
            (folder / "journal.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return folder


def write_figure_6(
    folder: Path, speeds: Mapping[str, float], *ops: str, log: str = "", **job: Any
) -> list[dict[str, Any]]:
    """Write three blocks of cells at `speeds` (MB/s by controller), a little faster in each block,
    each with a job, and with a log if there is a text. Return the cells of the campaign's plan."""
    cells = []
    for block in range(3):
        for controller, speed in speeds.items():
            for op in ops:
                parameters = {"op": op, "scenario": "heterogeneity", "controller": controller}
                made = write_run(folder, parameters, block, speed + block)
                (made / "job.json").write_text(json.dumps({**job, "parameters": parameters}))
                if log:
                    (made / "logs").mkdir()
                    (made / "logs" / "cell.log").write_text(log)
                cell = {"run_id": made.parent.name, "grids": ["fig6"], "figures": ["6a", "6b"]}
                cells.append(cell)
    return cells


def _samples(throughput: float, block: int) -> pd.DataFrame:
    random = np.random.default_rng(block)
    rows: list[tuple[float, str, str, float]] = []
    for t in range(-7, 30):
        if t >= 0:
            value = throughput * random.normal(1, 0.05)
            rows.append((float(t), "client", "throughput_mb_s", value))
        for osd in range(8):
            value = max(0.1, 1 - 0.1 * (t + 7)) if osd < 4 else 1.0
            rows.append((float(t), f"osd.{osd}", "primary_affinity", value))
            rows.append((float(t), f"osd{osd}", "hot", float(osd < 4)))
    # Operations in flight at the benchmark's end.
    rows += [(at, "client", "throughput_mb_s", 0.1 * throughput) for at in (31.0, 32.0)]
    return pd.DataFrame(rows, columns=["t_s", "node", "metric", "value"])


def cells() -> Iterator[tuple[dict[str, Any], float, dict[str, float] | None]]:
    """Yield parameters, true throughput and pressures of every cell that the figures need."""
    for op in OPS:
        yield {"op": op, "scenario": "none", "controller": "default"}, CALM[op], None
        for scenario, strength in (("heterogeneity", 1.0), ("interference", 1.1)):
            for controller, full_gain in GAIN.items():
                gain = 1 + (full_gain - 1) * (0.4 if scenario == "interference" else 1.0)
                yield (
                    {"op": op, "scenario": scenario, "controller": controller},
                    CALM[op] * HOT[op] * strength * (1.0 if op == "write" else gain),
                    None,
                )
    for index, mix in enumerate("ABCDE"):
        pressures = {f"osd{i}": 10.0 + 20 * index for i in range(8)}
        base = {"op": "seq", "scenario": "mix", "controller": "default", "mix": mix}
        yield base, 240 - 30.0 * index, pressures
    for spread in (0.0, 0.25, 0.5, 0.75, 1.0):
        pressures = {f"osd{i}": 50 * (1 + spread * (1 if i < 4 else -1)) for i in range(8)}
        base = {"op": "seq", "scenario": "spread", "controller": "default", "spread": spread}
        yield base, 200 - 60 * spread, pressures
    for theta in (0.1, 0.3, 0.4):
        parameters = {"theta_i": theta}
        base = {"op": "seq", "scenario": "interference", "controller": "dlr"}
        yield base | {"controller_parameters": parameters}, 150.0, None
    base = {"op": "seq", "scenario": "interference", "controller": "dlr"}
    yield base | {"controller_parameters": {"theta_i": 0.2}}, 165.0, None
    for op in ("seq", "rand"):
        for signal, gain in (("osd", 1.05), ("op_r_latency", 1.2)):
            base = {"op": op, "scenario": "heterogeneity", "controller": "dlr", "signal": signal}
            yield base, CALM[op] * HOT[op] * gain, None
    for exponent in (14, 16, 18, 22, 24):
        for scenario in ("heterogeneity", "interference"):
            for controller in ("default", "reweight", "dlr"):
                parameters = {"op": "seq", "scenario": scenario, "controller": controller}
                yield (
                    parameters | {"object_size": 2**exponent, "duration_s": 90},
                    GAIN[controller] * 150 * 2 ** (-abs(exponent - 22) / 3),
                    None,
                )


def write_campaign(
    artifacts: Path, name: str = "dlr-full", blocks: int = 3, *, with_samples: bool = True
) -> Path:
    """Write a whole campaign with a few percent of noise, identical every time."""
    campaign = artifacts / name
    random = np.random.default_rng(7)
    for block in range(blocks):
        shared = random.normal(1, 0.05)
        for parameters, throughput, pressures in cells():
            value = throughput * shared * random.normal(1, 0.01)
            write_run(
                campaign,
                parameters,
                block,
                value,
                pressures=pressures,
                with_samples=with_samples,
            )
    return campaign
