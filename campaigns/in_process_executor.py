"""Makes each attempt in the engine's own process: for simulated cells, which have nothing that must
be cleaned up after a crash, and of which hundreds are wanted."""

from __future__ import annotations

import json
from pathlib import Path

from campaigns.cell import CellContext, run_cell
from campaigns.job import ERROR_FILE, read_job
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.process_executor import ProcessExecutor, Setting
from campaigns.run_store import RunStore
from campaigns.services import Ground


class InProcessExecutor(ProcessExecutor):
    """An `Executor` whose attempts are recorded, recovered and committed as those of a process are.

    A cell ends by itself: the simulator and a controller from outside have time limits of their
    own. A signal raises KeyboardInterrupt in the cell, which then closes its simulator.
    """

    def __init__(
        self, plan: Plan, store: RunStore, ledger: Ledger, setting: Setting, ground: Ground
    ) -> None:
        super().__init__(plan, store, ledger, setting)
        self._ground = ground
        self._running = False

    def run_attempt(self, partial: Path, limit_s: float) -> str | None:
        """Run the cell to its end; what it raised is in its folder."""
        job = read_job(partial)
        assert job is not None
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            self._running = True
            run_cell(None, CellContext(job, self._ground, partial))
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            body = {"kind": type(error).__name__, "message": str(error) or type(error).__name__}
            (partial / ERROR_FILE).write_text(json.dumps(body) + "\n")
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
