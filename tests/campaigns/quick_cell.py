"""Cell process without papermill and kernel: the same cell in a few tenths of a second.

HOTBED_FAKE_CODE names the folder of the code that makes the cell, as if it were the repository."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from campaigns.engine.job import read_job
from campaigns.engine.papermill_cell import _die_with
from campaigns.grounds.testbed import open_ground
from campaigns.papers.dlr.cell import CellContext, run_cell
from testbed import closure


def main() -> int:
    _die_with(os.getppid())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    closure.ROOT = Path(os.environ.get("HOTBED_FAKE_CODE", closure.ROOT))
    folder = Path(sys.argv[1])
    job = read_job(folder)
    assert job is not None
    try:
        run_cell(CellContext(job, open_ground(job.ground, job.testbed), folder))
    except BaseException as error:
        text = json.dumps({"kind": type(error).__name__, "message": str(error)})
        (folder / "error.json").write_text(text)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
