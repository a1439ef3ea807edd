"""Process of the recorder: it records at its interval until asked to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from testbed.agent import recorder
from testbed.agent.contract import AgentConfig
from testbed.agent.sampler import NodeSample


class Sampler:
    closed = False

    def sample(self) -> NodeSample:
        return NodeSample(time.time(), {"osd0": {"pressure": 1.0}})

    def close(self) -> None:
        self.closed = True


def test_it_records_until_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler()
    monkeypatch.setattr(recorder, "FOLDER", tmp_path)
    monkeypatch.setattr(recorder, "load_config", lambda: AgentConfig("t", "ceph", ()))
    monkeypatch.setattr(recorder, "open_sampler", lambda config: sampler)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    killer = threading.Timer(0.35, os.kill, (os.getpid(), signal.SIGTERM))
    killer.start()
    try:
        assert recorder.main(["a", "0.1"]) == 0
    finally:
        killer.join()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert 2 <= len(recorder.samples_of((tmp_path / "a.jsonl").read_text())) <= 4
    assert sampler.closed
