"""Cell on a Dask worker, from its job to the files of its folder.

The worker keeps instances, because cells that share one run in a row in a block.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

from campaigns.engine.job import Job, Phases
from campaigns.engine.write_cell import write_cell
from campaigns.papers.ursa.measure import describe, described_values, make_instance, plan_and_check
from controllers.jit import COMPILED, THREADS
from controllers.ursa.instance import Instance
from controllers.ursa.run import peak_rss_mib
from schemas.cells.ursa import INPUTS, URSA, UrsaCell
from schemas.run import Run

KEPT_MIB = 1024.0
"""MiB of instances that a worker keeps in addition to the last one."""

PLAN_FILE = "plan.json"
INPUTS_FILE = "inputs.json"
HOST = "planner"
SHOWN_HOT = 100
"""Most nodes that stay hot in a plan's file."""


def make(job: Job, folder: Path) -> Run:
    """Make the cell and write its folder."""
    parameters = URSA.check(job.parameters, f"run {job.run_id}")
    phases = Phases()
    with phases("generate"):
        instance = INSTANCES.get(parameters, job.seed)
    with contextlib.suppress(OSError):  # reset the peak, or the whole process's memory counts
        Path("/proc/self/clear_refs").write_text("5")
    if parameters.method == INPUTS:
        with phases("describe"):
            described = describe(instance)
        values = described_values(instance, described)
        (folder / INPUTS_FILE).write_text(json.dumps(described) + "\n")
    else:
        values, plan = plan_and_check(parameters, instance, job.seed, phases)
        shown = {**plan, "still_hot": plan["still_hot"][:SHOWN_HOT]}
        text = json.dumps(shown, indent=1, default=float)
        (folder / PLAN_FILE).write_text(text + "\n")
    values["peak_rss_mib"] = peak_rss_mib()
    return write_cell(folder, job, values, phases, hosts={HOST: host()})


class InstanceCache:
    """The latest instances of this process."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, int], Instance] = OrderedDict()
        self._lock = Lock()

    def get(self, parameters: UrsaCell, seed: int) -> Instance:
        """Return the instance of a cell; a plan does not change it."""
        key = parameters.contents(), seed
        with self._lock:
            if key not in self._made:
                room = 2**20 * (KEPT_MIB - parameters.input_mib)
                while self._made and sum(one.nbytes for one in self._made.values()) > room:
                    self._made.popitem(last=False)
                self._made[key] = make_instance(parameters, seed)
            self._made.move_to_end(key)
            return self._made[key]


INSTANCES = InstanceCache()


def host() -> dict[str, Any]:
    """Return the facts of this machine, because seconds depend on it."""
    return {
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": THREADS,
        "compiled": COMPILED,
        "system": platform.system(),
        "machine": platform.machine(),
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
