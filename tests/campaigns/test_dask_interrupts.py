"""Ctrl-C in a terminal, which reaches every process of the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from testbed.simulated.process import PROGRAM

pytestmark = [
    pytest.mark.slow,  # starts a cluster
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built"),
]
CELLS = {
    "name": "osds",
    "figures": ["osds"],
    "vary": {"osds": [1000], "controller": ["default", "dlr"]},
    "fixed": {"scenario": "heterogeneity"},
    "repetitions": 3,
}


def test_a_terminal_s_ctrl_c_is_reported_in_one_sentence(campaign_file, tmp_path):
    file = campaign_file(
        name="sweep",
        paper="dlr-scale",
        ground="sim",
        time_scale=1,
        parameters={"op": "rand", "duration_s": 600, "interval_s": 20, "hot_share": 0.25},
        grids=[CELLS],
    )
    log = tmp_path / "log"
    command = "import sys; from hotbed.cli import main; sys.exit(main())"
    arguments = ["run", str(file), "--workers", "2", "--artifacts", str(tmp_path / "a")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", command, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while not list((tmp_path / "a").glob("sweep/*/.attempt-*")):  # no cell is running yet
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    text = log.read_text()
    assert "Traceback" not in text, text
    assert "same command again" in text
    assert code != 0
    with pytest.raises(ProcessLookupError):  # no process of the group is left
        for _ in range(200):
            os.killpg(process.pid, 0)
            time.sleep(0.05)
