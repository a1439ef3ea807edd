"""Channels from the admin node to the daemons of all nodes: one open ssh channel per node, one JSON
line each way. A change on all nodes takes milliseconds; a lost node does not delay the others."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, StoreError
from testbed.agent.contract import AgentConfig
from testbed.agent.monitor import Channel, ProcessChannel
from testbed.agent.reach import reach

Opener = Callable[[str], Channel]
TIMEOUT_S = 15.0
_READ = 1 << 20


def over_ssh(config: AgentConfig) -> Opener:
    """Return an opener of channels through the admin node's ssh (no ssh to itself)."""
    program = Path(__file__).with_name("relay.py").read_text()

    def open_channel(node: str) -> Channel:
        return ProcessChannel(reach(config, node).popen(["python3", "-u", "-c", program]))

    return open_channel


class Lost(str):
    """Reason why a node cannot be reached, as opposed to a refusal by the node."""

    __slots__ = ()


class NodeChannels:
    """Channels by node, opened at the first use and reopened after a failure."""

    def __init__(self, open_channel: Opener) -> None:
        self._open = open_channel
        self._channels: dict[str, Channel] = {}
        self._buffers: dict[str, bytes] = {}
        self._seq = 0

    def ask(
        self, requests: Mapping[str, Mapping[str, Any]], timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the answer of each node's daemon to its request; ask all nodes at once.
        StoreError: a node is lost or refuses; the other nodes have been asked all the same."""
        answers, problems = self.try_ask(requests, timeout_s)
        if problems:
            node, why = next(iter(problems.items()))
            more = f" ({len(problems) - 1} more nodes failed)" if len(problems) > 1 else ""
            raise StoreError(f"node {node}: {why}{more}")
        return answers

    def try_ask(
        self, requests: Mapping[str, Mapping[str, Any]], timeout_s: float = TIMEOUT_S
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the answers, and the reason by node without one (`Lost`: cannot be reached)."""
        self._seq += 1
        answers: dict[str, Any] = {}
        problems: dict[str, str] = {}
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for node, request in requests.items():
                why = self._send(node, request, deadline)
                if why:
                    problems[node] = why
                else:
                    selector.register(self._channels[node].fileno(), selectors.EVENT_READ, node)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    line = self._receive(key.data)
                    if line is None:
                        continue
                    selector.unregister(key.fileobj)
                    self._take(key.data, line, answers, problems)
        for node in requests:
            if node not in answers and node not in problems:
                self.drop(node)  # a late answer would be taken for the next request's
                problems[node] = Lost(f"did not answer within {timeout_s:g} s")
        return answers, problems

    def close(self) -> None:
        """End every channel."""
        for node in list(self._channels):
            self.drop(node)

    def drop(self, node: str) -> None:
        """End a node's channel; the next request opens another."""
        channel = self._channels.pop(node, None)
        self._buffers.pop(node, None)
        if channel is not None:
            channel.close()

    def _send(self, node: str, request: Mapping[str, Any], deadline: float) -> str:
        data = json.dumps(dict(request) | {"seq": self._seq}).encode() + b"\n"
        for again in (True, False):
            try:
                if node not in self._channels:
                    self._channels[node], self._buffers[node] = self._open(node), b""
                self._write(self._channels[node], data, deadline)
                return ""
            except (OSError, HotbedError) as error:
                self.drop(node)
                if not again:
                    return Lost(f"cannot be reached: {error}")
        return ""

    def _write(self, channel: Channel, data: bytes, deadline: float) -> None:
        """Send in parts: a pipe takes 64 KiB at once, and a ring may be larger."""
        while data:
            try:
                channel.send(data[:32768])
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)
                continue
            data = data[32768:]

    def _receive(self, node: str) -> bytes | None:
        """Return a whole line, an empty line if the channel ended, None if no line has come yet."""
        try:
            data = os.read(self._channels[node].fileno(), _READ)
        except OSError:
            data = b""
        if not data:
            return b""
        self._buffers[node] += data
        *lines, self._buffers[node] = self._buffers[node].split(b"\n")
        return lines[-1] if lines else None

    def _take(
        self, node: str, line: bytes, answers: dict[str, Any], problems: dict[str, str]
    ) -> None:
        answer: Any = None
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
        if not isinstance(answer, dict) or answer.get("seq") != self._seq:
            self.drop(node)
            why = "its daemon (hotbed-swift-node) is not running or the node is down"
            problems[node] = Lost(why)
        elif answer["ok"]:
            answers[node] = answer["result"]
        else:
            problems[node] = str(answer["error"])
