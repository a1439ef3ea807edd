"""Channels to probe threads of the test: real descriptors, scripted behaviour."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from testbed.agent.contract import AgentNode
from testbed.agent.monitor import Channel

Answer = Callable[[int, int], bytes]  # sequence number, times asked -> line


def counters(seq: int, turn: int, **changes: Any) -> bytes:
    """Return a probe's answer `turn` seconds after its start, busy half of the time."""
    values: dict[str, Any] = {
        "seq": seq,
        "t": float(turn),
        "wall": 1000.0 + turn,
        "pressure_us": 500_000 * turn,
        "cpu": [10 * turn, 0, 10 * turn, 150 * turn, 30 * turn, 0, 0, 0],
        "cpus": 2,
        "cpu_us": 250_000 * turn,
        "disks": [[10 * turn, 2000 * turn, 5 * turn, 4000 * turn, 800 * turn, 3000 * turn, 1]],
        "net_rx": 1_000_000 * turn,
        "net_tx": 2_000_000 * turn,
        "osd_us": {},
    }
    return json.dumps(values | changes).encode() + b"\n"


class FakeChannel:
    """One end of a socket pair; a thread answers through `answer` on the other end."""

    def __init__(self, answer: Answer) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        turn = 0
        with self._theirs, self._theirs.makefile("rb") as requests:
            for request in requests:
                turn += 1
                data = self._answer(int(request), turn)
                if data == b"":
                    return
                try:
                    self._theirs.sendall(data)
                except OSError:
                    return

    def fileno(self) -> int:
        return self._ours.fileno()

    def send(self, data: bytes) -> None:
        self._ours.sendall(data)

    def close(self) -> None:
        self._ours.close()


class Site:
    """Opener of fake channels; `answers` scripts each node, and openings are counted."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers
        self.opened: dict[str, int] = dict.fromkeys(answers, 0)

    def open(self, node: AgentNode) -> Channel:
        self.opened[node.name] += 1
        return FakeChannel(self.answers[node.name])


def node(name: str, osd: int = 0, signal: str = "io_pressure") -> AgentNode:
    return AgentNode(name, "10.0.0.1", ("osd",), signal, "/x/io.pressure", osds=(osd,))
