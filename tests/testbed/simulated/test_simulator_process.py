"""A simulator that dies, hangs or speaks nonsense is one sentence, and nothing is left of it."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from schemas.errors import StoreError
from testbed.simulated import SimulatedCeph
from testbed.simulated.process import SimulatorProcess
from testbed.spec import TestbedSpec


def fake(folder: Path, body: str) -> Path:
    """A program that runs `body` with `answer(text)` at hand."""
    program = folder / "hotbedsim"
    program.write_text(
        f"#!{sys.executable}\n"
        "import struct, sys, time\n"
        "def answer(text):\n"
        "    data = text.encode()\n"
        "    sys.stdout.buffer.write(struct.pack('<I', len(data)) + data)\n"
        "    sys.stdout.buffer.flush()\n"
        f"{body}\n"
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("print('boom', file=sys.stderr); sys.exit(3)", r"ended during open \(exit code 3\): boom"),
        ("time.sleep(60)", "did not answer open within 0.5 s"),
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
def test_what_goes_wrong(tmp_path: Path, spec: TestbedSpec, body: str, sentence: str) -> None:
    with pytest.raises(StoreError, match=sentence) as caught:
        SimulatedCeph(spec, program=fake(tmp_path, body), limit_s=0.5 if "sleep" in body else 20)
    assert "\n" not in str(caught.value)


def test_there_is_no_program(tmp_path: Path, spec: TestbedSpec) -> None:
    with pytest.raises(StoreError, match="make setup"):
        SimulatedCeph(spec, program=tmp_path / "missing")


def test_it_dies_in_the_middle(spec: TestbedSpec) -> None:
    ceph = SimulatedCeph(spec)
    ceph._process._process.kill()
    with pytest.raises(StoreError, match="ended during advance"):
        ceph.advance(1)
    with pytest.raises(StoreError, match="is closed"):
        ceph.advance(1)
    ceph.close()


def test_a_cut_off_request_ends_the_simulator() -> None:
    process = SimulatorProcess("ceph")
    pipe = process._process.stdin
    assert pipe is not None
    pipe.write(struct.pack("<I", 100) + b"{")
    pipe.close()
    assert process._process.wait(10) == 1
    process.close()
