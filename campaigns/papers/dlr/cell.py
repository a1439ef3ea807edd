"""One cell: clean, settle, disturb, control, measure, restore, judge, write.

The notebook calls this module. The design sets the order ("Clean before, honest after"). Whatever
is started is stopped, also after an error or Ctrl-C. Steps that do not depend on each other are
started and stopped in parallel on a testbed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from campaigns.engine.job import NEXT_FILE, Job, Phases, write_run
from campaigns.engine.judge import MachineLoad, spoiled
from campaigns.engine.provenance import Facts, provenance
from campaigns.engine.write_cell import summarize
from schemas.cells.dlr import DLR, DlrCell, OpenLoopWrites
from schemas.errors import HotbedError
from schemas.run import Run, RunStatus, Summary
from testbed.stores.contract import Needs

if TYPE_CHECKING:
    from testbed.sites.contract import Site


@dataclass(frozen=True)
class CellSetting:
    """One cell's settings for the services. `parameters` are in the paper's time. Draws from `seed`
    (hot nodes, moves) are the same for every cell of a block."""

    parameters: DlrCell
    seed: int
    block: int
    time_scale: float
    folder: Path
    run_id: str = "by-hand"
    controllers_dir: Path | None = None

    @property
    def duration_s(self) -> float:
        """The workload's duration in real time, in seconds."""
        return self.parameters.duration_s * self.time_scale

    @property
    def interval_s(self) -> float:
        """The control interval in real time, in seconds."""
        return self.parameters.interval_s * self.time_scale


class Services(Protocol):
    """Steps of one cell. Errors are HotbedError. Context managers undo their changes, also after an
    error, and may be left twice."""

    def at_once(self, *calls: Callable[[], Any]) -> list[Any]:
        """Make independent calls, in parallel if the ground can; return their results. All calls
        are made, then the first error is raised."""

    def signal(self) -> str | None:
        """Return the name of the controller's signal, for the run's record."""

    def clean(self) -> None:
        """Clean the store: weights and affinities 1, no upmaps, all PGs active+clean, deletions
        finished, Hotbed's load stopped. Raise for other load, with its node and process id."""

    def restore(self) -> bool:
        """Restore the store's snapshot; return False if the site has none."""

    def prefill(self) -> None:
        """Ensure that there are enough objects to read."""

    def drop_caches(self) -> None:
        """Empty the page caches of the nodes and the store's own caches."""

    def disturbance(self) -> AbstractContextManager[None]:
        """Run the scenario's load."""

    def recorder(self) -> AbstractContextManager[None]:
        """Record the nodes' counters once a second."""

    def controller(self) -> AbstractContextManager[None]:
        """Run the controller on the admin node; on exit, restore the store as it was found."""

    def steady(self) -> None:
        """Wait until the disturbance has its steady rate. The next `wait` counts from the start of
        the seconds that showed it."""

    def wait(self, seconds: float) -> None:
        """Let `seconds` of the ground's own time pass."""

    def usage(self) -> AbstractContextManager[None]:
        """Measure `MachineLoad` inside the block."""

    def workload(self) -> None:
        """Run the benchmark to its end."""

    def load(self) -> MachineLoad:
        """Return the load from `usage` and from the recording, which `collect` reads before."""

    def not_restored(self) -> list[str]:
        """Return the controller's remaining changes of the store, as text."""

    def collect(self) -> Summary:
        """Write samples, latency, journal and raw output into the folder; return their summary."""


class StoreGround(Protocol):
    """A Ceph store that runs cells, live or simulated."""

    name: str

    @property
    def site(self) -> Site | None:
        """The testbed's site; None for a modelled store."""

    def facts(self) -> Facts:
        """Read versions and hosts from the nodes."""

    def offers(self) -> Needs:
        """Return the signals and actions of the ground's store (`Store.offers`); they decide which
        controllers can run here."""

    def services(self, setting: CellSetting) -> Services:
        """Return the steps of one cell."""

    def lock_path(self) -> Path | None:
        """Return a lock file of the testbed for one campaign at a time; None if campaigns do not
        disturb each other."""


@dataclass(frozen=True)
class CellContext:
    """Job, ground and folder of a cell. `sleep` replaces `Services.wait`, so that tests need not
    wait."""

    job: Job
    ground: StoreGround
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


def run_cell(context: CellContext) -> Run:
    """Run one cell and write its folder, `run.json` last. Return the record, with status ``done``,
    ``spoiled``, or ``failed`` if the code changed meanwhile. HotbedError: the cell failed; its
    record has the reason. KeyboardInterrupt likewise."""
    typed = context.parameters
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
        (context.folder / NEXT_FILE).touch()
        with phases("collect"):
            summary, load = _collect(typed, services)
        why, settings = spoiled(load, job.limits), load.settings
        record = summarize(context.folder, job, summary, phases, spoiled=why, settings=settings)
    except BaseException as error:
        write_run(context.folder, job.record(*_end(error), phases.seconds))
        raise
    write_run(context.folder, record)
    return record


def make_cell(ground: StoreGround, job: Job, folder: Path) -> Run:
    """Run the job's cell on `ground` into `folder`; see `run_cell`."""
    return run_cell(CellContext(job, ground, folder))


def _end(error: BaseException) -> tuple[RunStatus, str]:
    """Return the status and reason of a cell that raised `error`."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted"
    if isinstance(error, HotbedError):
        return "failed", str(error)
    return "failed", f"{type(error).__name__}: {error}"


def _measure(parameters: DlrCell, context: CellContext, services: Services, phases: Phases) -> None:
    """Clean the testbed, run the workload under disturbance and control, and stop everything."""
    if not isinstance(parameters, OpenLoopWrites):
        # The next cell's process has started long before the benchmark begins. Open-loop writes are
        # measured from their start, so that their next process starts after them.
        (context.folder / NEXT_FILE).touch()
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
    with _undone(phases, services) as started:
        wait, scale = context.sleep or services.wait, context.job.time_scale
        if isinstance(parameters, OpenLoopWrites):  # the load is the disturbance: it starts earlier
            with phases("settle"):
                started.start(services.disturbance(), services.recorder())
            with phases("lead"):
                wait(parameters.called_s(scale))
                started.start(services.controller())
                wait(parameters.lead_s(scale))
        else:
            with phases("settle"):
                started.start(services.disturbance(), services.controller())
            with phases("lead"):
                started.start(services.recorder(), meanwhile=services.steady)
                wait(parameters.lead_s(scale))
        with phases("workload"), services.usage():
            services.workload()


def _collect(parameters: DlrCell, services: Services) -> tuple[Summary, MachineLoad]:
    """Raise if the controller left the store changed; otherwise collect the measurements."""
    left, collected = services.at_once(services.not_restored, services.collect)
    if left:
        raise HotbedError(
            f"the controller {parameters.controller} left the store changed: {left[0]}"
        )
    load = services.load()  # after collect(), because the recording contributes to the load
    return collected.model_copy(update={"usage": load.as_summary()}), load


def in_order(*calls: Callable[[], Any]) -> list[Any]:
    """Make calls one after the other; see `Services.at_once`."""
    results, errors = list[Any](), list[BaseException]()
    for call in calls:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


class _Started:
    """Steps of a cell that are under way."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._steps: list[AbstractContextManager[None]] = []

    def start(
        self, *steps: AbstractContextManager[None], meanwhile: Callable[[], Any] = lambda: None
    ) -> None:
        """Start independent steps, and call `meanwhile` in parallel. If one fails, the others are
        under way. Ctrl-C counts once all calls have ended: it must not get between the start of a
        call and the record of it."""
        with _deaf(later=True):
            self._services.at_once(*(partial(self._enter, step) for step in steps), meanwhile)

    def _enter(self, step: AbstractContextManager[None]) -> None:
        step.__enter__()
        self._steps.append(step)

    def stop(self) -> None:
        """Stop all steps, where the ground has an order the latest first."""
        exits = (partial(step.__exit__, None, None, None) for step in reversed(self._steps))
        self._services.at_once(*exits)


@contextmanager
def _undone(phases: Phases, services: Services) -> Iterator[_Started]:
    """Stop what was started in the block; a second Ctrl-C does not disturb this."""
    started = _Started(services)
    try:
        yield started
    finally:
        with phases("stop"), _deaf():
            started.stop()


@contextmanager
def _deaf(*, later: bool = False) -> Iterator[None]:
    """Ignore Ctrl-C, or raise it `later`, at the end. The engine kills after its grace time."""
    came: list[int] = []
    ignored = signal.SIG_IGN  # by processes that the block starts, too
    try:
        before = signal.signal(
            signal.SIGINT, (lambda number, frame: came.append(number)) if later else ignored
        )
    except ValueError:  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt
