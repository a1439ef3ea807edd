"""One cell: clean, settle, disturb, control, measure, restore, judge, write.

The notebook calls this module. The design sets the order ("Clean before, honest after"). Whatever
is started is stopped in reverse order, also after an error or Ctrl-C.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.engine.job import Job, Phases, ended, write_run
from campaigns.engine.judge import spoiled
from campaigns.engine.provenance import provenance
from campaigns.papers.dlr.services import CellSetting, Ground, Load, Services
from schemas.cells.dlr import DLR, DlrCell, OpenLoop
from schemas.durable import write_file
from schemas.errors import HotbedError
from schemas.run import Run, RunStatus, Summary


@dataclass(frozen=True)
class CellContext:
    """Job, ground and folder of a cell. `sleep` replaces `Services.wait`, so that tests need not
    wait."""

    job: Job
    ground: Ground
    folder: Path
    sleep: Callable[[float], None] | None = None

    @property
    def parameters(self) -> DlrCell:
        """The job's parameters as a `DlrCell`."""
        return DLR.check(self.job.parameters, f"run {self.job.run_id}")

    def setting(self, parameters: DlrCell) -> CellSetting:
        """Return the cell's settings for the services."""
        extra = self.job.controllers_dir
        return CellSetting(
            parameters=parameters,
            seed=self.job.seed,
            block=self.job.block,
            time_scale=self.job.time_scale,
            folder=self.folder,
            run_id=self.job.run_id,
            controllers_dir=None if extra is None else Path(extra),
        )


def run_cell(parameters: DlrCell | Mapping[str, Any] | None, context: CellContext) -> Run:
    """Run one cell and write its folder, `run.json` last.

    Args:
        parameters: the cell's parameters; None uses the job's.
        context: from `campaigns.papers.dlr.by_hand.open_cell`, or constructed by hand.

    Returns:
        The record, with status ``done``, ``spoiled``, or ``failed`` if the code changed meanwhile.

    Raises:
        HotbedError: the cell failed; its record has the reason. KeyboardInterrupt likewise.
    """
    typed = _typed(parameters, context)
    phases = Phases()
    job = context.job
    try:
        if not job.provenance.hosts:  # run by hand: no engine has asked for the facts
            with phases("facts"):
                facts = context.ground.facts()
            osds = typed.osds or facts.osd_count
            known = {"provenance": provenance(facts), "osd_count": osds}
            job = job.model_copy(update=known)
        services = context.ground.services(context.setting(typed))
        sensed = job.provenance.model_copy(update={"signal": services.signal()})
        job = job.model_copy(update={"provenance": sensed})
        _measure(typed, context, services, phases)
        with phases("collect"):
            load = _collect(typed, context, services)
        job = job.with_settings(load.settings)
        record = ended(job, context.folder, spoiled(load, job.limits), phases)
    except BaseException as error:
        write_run(context.folder, job.record(*_end(error), phases.seconds))
        raise
    write_run(context.folder, record)
    return record


def make_cell(ground: Ground, job: Job, folder: Path) -> Run:
    """Run the job's cell on `ground` into `folder`; see `run_cell`."""
    return run_cell(None, CellContext(job, ground, folder))


def _end(error: BaseException) -> tuple[RunStatus, str]:
    """Return the status and reason of a cell that raised `error`."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted"
    if isinstance(error, HotbedError):
        return "failed", str(error)
    return "failed", f"{type(error).__name__}: {error}"


def summary_of(run_folder: Path) -> Summary:
    """Return the summary in a cell's folder."""
    return Summary.model_validate_json((run_folder / "summary.json").read_bytes())


def _measure(parameters: DlrCell, context: CellContext, services: Services, phases: Phases) -> None:
    """Clean the testbed, run the workload under disturbance and control, and stop everything."""
    with phases("clean"):
        services.clean()
    if parameters.op == "write":
        with phases("restore"):
            services.restore()
        # A restored store has the settings that its manager had when it was frozen.
        with phases("clean"):
            services.clean()
    else:
        with phases("prefill"):
            services.prefill()
    with phases("clean"):
        services.drop_caches()
    with _undone(phases) as started:
        with phases("settle"):
            started.enter_context(services.disturbance())
        started.enter_context(services.recorder())
        wait, scale = context.sleep or services.wait, context.job.time_scale
        with phases("lead"):
            if isinstance(parameters, OpenLoop):  # the load is the disturbance: it starts earlier
                wait(parameters.called_s(scale))
            started.enter_context(services.controller())
            wait(parameters.lead_s(scale))
        with phases("workload"), services.usage():
            services.workload()


def _collect(parameters: DlrCell, context: CellContext, services: Services) -> Load:
    """Raise if the controller left the store changed; otherwise write the measurements."""
    left = services.not_restored()
    if left:
        raise HotbedError(
            f"the controller {parameters.controller} left the store changed: {left[0]}"
        )
    collected = services.collect()
    load = services.load()  # after collect(), because the recording contributes to the load
    summary = collected.model_copy(update={"usage": load.as_summary()})
    write_file(context.folder / "summary.json", summary.model_dump_json(indent=2) + "\n")
    return load


@contextmanager
def _undone(phases: Phases) -> Iterator[ExitStack]:
    """Yield a stack and close it in reverse order; a second Ctrl-C does not disturb the closing."""
    stack = ExitStack()
    try:
        yield stack
    finally:
        with phases("stop"), _deaf():
            stack.close()


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore Ctrl-C while the testbed is restored. The engine kills after its grace time."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _typed(parameters: DlrCell | Mapping[str, Any] | None, context: CellContext) -> DlrCell:
    if parameters is None:
        return context.parameters
    if isinstance(parameters, DlrCell):
        return parameters
    return DLR.check(parameters, "cell")
