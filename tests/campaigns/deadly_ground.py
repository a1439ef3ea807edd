"""Simulated ground that kills the process computing a cell. Workers import it by name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from campaigns.grounds.sim import SimulatedGround
from campaigns.papers.dlr.cell import CellSetting, Services


@dataclass
class DeadlyGround(SimulatedGround):
    """Kills the worker that runs the cell of `controller` while the file `lives` has lines. Each
    kill removes one line. While the file `slow` exists, a cell waits for its removal."""

    lives: str = ""
    controller: str = "dlr"
    slow: str = ""

    def services(self, setting: CellSetting) -> Services:
        """See `Ground.services`."""
        file = Path(self.lives)
        if setting.parameters.controller == self.controller and file.is_file():
            left = file.read_text().splitlines()
            if left:
                file.write_text("".join(f"{line}\n" for line in left[1:]))
                os.kill(os.getpid(), signal.SIGKILL)
        if self.slow:
            Path(self.slow).with_suffix(".reached").touch()
            deadline = time.monotonic() + 60
            while Path(self.slow).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        return super().services(setting)
