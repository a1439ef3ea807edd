"""Collection of measurements into `samples.parquet` and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from campaigns.papers.dlr.services import CellSetting
from controllers.journal import Journal, read_journal
from schemas.cells.dlr import CONTROLLER_LEAD_INTERVALS
from schemas.run import Summary
from testbed.sites.contract import Testbed
from testbed.stores.contract import REWEIGHT_BY_UTILIZATION
from workloads import collect as tidied
from workloads.rados_bench import BenchResult

STEADY_AFTER_INTERVALS = CONTROLLER_LEAD_INTERVALS
"""Control intervals at the start of a run that its steady part excludes."""


def collect(
    setting: CellSetting,
    testbed: Testbed,
    result: BenchResult,
    recording: Sequence[Mapping[str, Any]],
    disturbance: Mapping[str, Any],
) -> Summary:
    """Write `samples.parquet` (and `latency.parquet` if a tool reports a distribution; rados bench
    does not), and return the run's summary.

    Args:
        setting: the cell; its journal must already be in its folder.
        testbed: the testbed; the pressure of its OSD nodes is averaged.
        result: result of the workload.
        recording: the recorder's samples.
        disturbance: answer of the verb disturb-log.
    """
    tidied.tidy(result, recording).to_parquet(setting.folder / "samples.parquet", index=False)
    from_s = min(STEADY_AFTER_INTERVALS * setting.interval_s, setting.duration_s / 2)
    nodes = {node.name for node in testbed.with_role("osd")}
    pressure = tidied.pressure_mean(result, recording)
    journal = read_journal(setting.folder / "journal.jsonl")
    extra = {f"hot_iops.{n}": iops for n, iops in tidied.load_iops(disturbance["outputs"]).items()}
    return Summary(
        whole=[tidied.whole(result)],
        steady=[tidied.steady(result, from_s)],
        pressure_mean={node: value for node, value in pressure.items() if node in nodes},
        controller=controller_summary(journal),
        inert=is_inert(journal),
        extra=extra,
    )


def controller_summary(journal: Journal) -> dict[str, float]:
    """Return the numbers of steps, actions and failures, and mean and maximum seconds of a step."""
    steps = journal.steps
    effects = [effect for step in steps for effect in step["effects"]]
    summary = {
        "steps": float(len(steps)),
        "actions": float(sum(len(step["actions"]) for step in steps)),
        "failed_actions": float(sum(not effect["ok"] for effect in effects)),
        "failed_steps": float(sum(step["error"] is not None for step in steps)),
    }
    for name in ("sense_s", "decide_s", "act_s"):
        values = [float(step[name]) for step in steps if step[name] is not None]
        if values:
            summary[name] = fmean(values)
            summary[f"{name}_max"] = max(values)
    for name in ("weights_changed", "bytes_moved"):
        known = [effect["detail"][name] for effect in effects if name in effect["detail"]]
        if known:
            summary[name] = float(sum(value or 0.0 for value in known))
    return summary


def is_inert(journal: Journal) -> bool | None:
    """Return True if a controller that reweights has changed no weight.

    Return None for other controllers: if such a controller found no reason to act, that is its
    answer, and excluding such runs would flatter it.
    """
    if REWEIGHT_BY_UTILIZATION not in journal.header["needs"]["acts"]:
        return None
    return controller_summary(journal).get("weights_changed", 0.0) == 0.0
