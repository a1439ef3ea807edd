"""Runs a workload on a real COSBench: handed in, watched to its end, its archive collected."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import HotbedError, UserError
from testbed.sites.contract import Progress, silent
from workloads.cosbench import xml_text
from workloads.cosbench.archive import read_archive
from workloads.cosbench.archive_source import ArchiveSource, collect
from workloads.cosbench.controller_api import (
    Controller,
    ControllerError,
    Told,
    UnknownWorkloadError,
    UnreachableError,
)
from workloads.cosbench.results import Archive
from workloads.errors import WorkloadError

STAGE_OVERHEAD_S = 7.0
"""What COSBench spends between stages."""

ENDED_BADLY = {
    "TERMINATED": "was terminated: a stage failed, or more operations failed than its afr allows",
    "FAILED": "failed",
    "CANCELLED": "was cancelled",
}


@dataclass(frozen=True)
class Patience:
    """How long is waited, seconds: between two questions, for a controller that is silent, and for
    the files of one that has finished."""

    poll_s: float = 2.0
    silent_s: float = 180.0
    archive_s: float = 60.0


def run(
    controller: Controller,
    source: ArchiveSource,
    xml: str,
    out: Path,
    progress: Progress = silent,
    *,
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Archive:
    """Run a workload to its end; an interruption cancels it.

    A controller that restarts has forgotten what it was at, and gives the same id again: both are
    told apart from a workload that has ended, which a restarted controller still knows.

    Args:
        controller: where it is handed in.
        source: that controller's archive folder.
        xml: the workload, secrets in plain.
        out: new folder for the copy of the archive; secrets are masked in it.
        progress: gets the stage and the share of the planned time.

    Returns:
        The archive, also of a workload that did not finish: ask `Archive.finished`.

    Raises:
        UserError: the controller does not take the workload, or has no drivers.
        WorkloadError: it got lost, or left no archive.
    """
    waits = patience or Patience()
    if not controller.index().drivers:
        raise UserError(f"the controller {controller.address} has no drivers: see controller.conf.")
    identity = controller.submit(xml)
    try:
        watch = _Watch(
            controller, identity, _Plan(xml), progress, waits=waits, sleep=sleep, clock=clock
        )
        told = watch.to_the_end()
    except BaseException:
        with suppress(HotbedError):
            controller.cancel(identity)
        raise
    progress(f"{identity} {told.state.lower()}: collecting", 0.99)
    folder = collect(
        source,
        identity,
        out,
        hidden=xml_text.secrets(xml),
        patience_s=waits.archive_s,
        sleep=sleep,
    )
    archive = read_archive(folder)
    if told.state in ENDED_BADLY and not archive.stages:
        raise WorkloadError(f"workload {identity} {ENDED_BADLY[told.state]}.")
    return archive


class _Plan:
    """What is known beforehand of how long stages last; only to tell the time left."""

    def __init__(self, xml: str) -> None:
        stages = xml_text.planned_seconds(xml)
        self.total_s = sum(stages.values()) + STAGE_OVERHEAD_S * len(stages)
        self.before: dict[str, float] = {}
        passed = 0.0
        for number, (name, seconds) in enumerate(stages.items(), 1):
            self.before[f"s{number}-{name}"] = passed
            passed += seconds + STAGE_OVERHEAD_S

    def share(self, stage: str, in_stage_s: float) -> float:
        """Of the planned time: the stage that it is in, and how long already."""
        if self.total_s <= 0:
            return 0.0
        return min(0.98, (self.before.get(stage, 0.0) + in_stage_s) / self.total_s)


class _Watch:
    """Asks after one workload until it has ended."""

    def __init__(
        self,
        controller: Controller,
        identity: str,
        plan: _Plan,
        progress: Progress,
        *,
        waits: Patience,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._identity = identity
        self._plan = plan
        self._progress = progress
        self._waits = waits
        self._sleep = sleep
        self._clock = clock
        self._submitted: str | None = None
        self._silent_since: float | None = None
        self._stage, self._stage_since = "", clock()

    def to_the_end(self) -> Told:
        """Its last state."""
        while True:
            try:
                told = self._ours(self._controller.workload(self._identity))
                if told.final:
                    return told
                self._tell(told)
                self._silent_since = None
            except UnreachableError as error:
                self._endure(error)
            except UnknownWorkloadError as error:
                raise self._lost("no longer knows it") from error
            self._sleep(self._waits.poll_s)

    def _ours(self, told: Told) -> Told:
        if self._submitted is None:
            self._submitted = told.submitted
        elif told.submitted != self._submitted:
            raise self._lost(f"has given its id to another one ({told.submitted})")
        return told

    def _lost(self, how: str) -> WorkloadError:
        return WorkloadError(
            f"workload {self._identity} got lost: the controller {self._controller.address} was "
            f"restarted and {how}; run it again."
        )

    def _tell(self, told: Told) -> None:
        stage = ""
        with suppress(ControllerError):
            stage = self._controller.index().stages.get(self._identity, "")
        if stage != self._stage:
            self._stage, self._stage_since = stage, self._clock()
        share = self._plan.share(stage, self._clock() - self._stage_since)
        where = stage if stage not in ("", "None") else told.state.lower()
        self._progress(f"{self._identity} {where}", share)

    def _endure(self, error: UnreachableError) -> None:
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        gone = now - self._silent_since
        if gone > self._waits.silent_s:
            raise WorkloadError(
                f"workload {self._identity}: {str(error).rstrip('.')}, for {gone:.0f} s now; what "
                "became of it, the controller's archive folder tells."
            ) from error
        self._progress(f"{self._identity}: the controller is silent for {gone:.0f} s", 0.0)
