"""Makes each attempt in the engine's own process: simulated cells, which have nothing that must be
cleaned up after a crash and of which hundreds are wanted, and such as only wait for a testbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from campaigns.job import Job, read_job, write_error
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.process_executor import ProcessExecutor, Setting
from campaigns.run_store import RunStore

Make = Callable[[Job, Path], object]
"""Makes a cell and writes its folder, `run.json` last; raises what goes wrong."""


class InProcessExecutor(ProcessExecutor):
    """An `Executor` whose attempts are recorded, recovered and committed as those of a process are.

    A cell ends by itself: the simulator and a controller from outside have time limits of their
    own. A signal raises KeyboardInterrupt in the cell, which then closes its simulator, or puts
    back what it changed on the testbed.
    """

    def __init__(
        self, plan: Plan, store: RunStore, ledger: Ledger, setting: Setting, make: Make
    ) -> None:
        super().__init__(plan, store, ledger, setting)
        self._make = make
        self._running = False

    def run_attempt(self, partial: Path, limit_s: float) -> str | None:
        """Run the cell to its end; what it raised is in its folder."""
        job = read_job(partial)
        assert job is not None
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            self._running = True
            self._make(job, partial)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            write_error(partial, error)
        finally:
            self._running = False
        return None

    def interrupt(self) -> None:
        """See `Executor.interrupt`."""
        self._interrupted = True
        if self._running:
            self._running = False  # once: the cell must be let close what it opened
            raise KeyboardInterrupt

    def kill(self) -> None:
        """See `Executor.kill`."""
        self._killed = True
        if self._running:
            self._running = False
            raise KeyboardInterrupt
