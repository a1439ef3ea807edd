"""Simulators that die, hang or are built from other sources: one sentence, no leftovers."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.errors import StoreError
from testbed.simulated import SimulatedCeph, sources
from testbed.simulated.process import PROGRAM, SimulatorProcess
from tests.errors import raises

ROOT = Path(__file__).resolve().parents[3]
DRIVER = """
from pathlib import Path
from testbed.simulated import Benchmark, SimulatedCeph
from testbed.spec import load_spec

ceph = SimulatedCeph(load_spec(Path("testbed/specs/dlr.yaml")))
ceph.prefill(400, 4 * 2**20)
ceph.start_benchmark(Benchmark("rand", duration_s=1e6))
print(ceph.simulator_pid, flush=True)
ceph.advance(1e6)
"""
"""Request that keeps a processor busy for almost an hour."""


def fake(folder: Path, body: str) -> Path:
    """Write a program that reads a request and runs `body`, with `answer(text)` available."""
    program = folder / "hotbedsim"
    program.write_text(
        f"#!{sys.executable}\n"
        "import struct, sys, time\n"
        "def answer(text):\n"
        "    data = text.encode()\n"
        "    sys.stdout.buffer.write(struct.pack('<I', len(data)) + data)\n"
        "    sys.stdout.buffer.flush()\n"
        "sys.stdin.buffer.read(*struct.unpack('<I', sys.stdin.buffer.read(4)))\n"
        f"{body}\n"
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("print('boom', file=sys.stderr); sys.exit(3)", "ended during open (exit"),
        ("time.sleep(60)", "0.5 s"),
        ("answer('[]')", "nonsense"),
        ("answer('{')", "nonsense"),
        ("sys.stdout.buffer.write(b'\\xff' * 8); sys.stdout.buffer.flush()", "nonsense"),
        ('answer(\'{"ok": false, "message": "too big"}\')', "refused open: too big"),
        (
            'answer(\'{"ok": true, "blocks": [{"name": "x", "type": "f7", "count": 1}]}\')',
            "nonsense",
        ),
    ],
)
def test_what_goes_wrong(tmp_path, spec, body, sentence):
    with raises(StoreError, sentence) as caught:
        SimulatedCeph(spec, program=fake(tmp_path, body), limit_s=0.5 if "sleep" in body else 20)
    assert "\n" not in str(caught.value)


def test_a_cut_off_request_ends_the_simulator():
    process = SimulatorProcess("ceph")
    pipe = process._process.stdin
    assert pipe is not None
    pipe.write(struct.pack("<I", 100) + b"{")
    pipe.close()
    assert process._process.wait(10) == 1
    process.close()


def processor_s(pid: int) -> float | None:
    """Return a process's processor time in seconds; None once it has ended, reaped or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[11]) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_does_not_outlive_a_driver_that_is_killed():
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    with driver, driver.stdout:
        simulator = int(driver.stdout.readline())
        before = processor_s(simulator)
        assert before is not None
        while (processor_s(simulator) or 0.0) < before + 0.2:  # until it is inside the advance
            assert driver.poll() is None
            time.sleep(0.05)
        driver.kill()
    deadline = time.monotonic() + 120  # undisturbed, it would compute for the rest of the hour
    try:
        while processor_s(simulator) is not None:
            assert time.monotonic() < deadline, "the simulator goes on for nobody"
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(simulator, signal.SIGKILL)


def test_another_build_is_refused(spec, monkeypatch):
    monkeypatch.setattr(sources, "digest", lambda _: "0" * 64)
    with raises(StoreError, "holds", "make setup"):
        SimulatedCeph(spec)
    with raises(StoreError, "other sources"):
        sources.check("", PROGRAM)  # built without a source digest
    sources.check("0" * 64, PROGRAM)
    SimulatedCeph(spec, program=PROGRAM).close()  # a user's own program is not checked


def test_a_program_reports_what_it_was_built_from(tmp_path):
    assert sources.built_from(PROGRAM) == sources.digest()
    silent = tmp_path / "hotbedsim"
    silent.write_text("#!/bin/sh\necho 1\n")
    silent.chmod(0o755)
    assert sources.built_from(silent) == ""
    silent.write_text("#!/bin/sh\nexit 3\n")
    with raises(StoreError, "reports no version"):
        sources.built_from(silent)
