"""Stand-in admin node that answers each unit by a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.agent.contract import UnitResult
from tests.papers.live_fakes import RecordingAgent

Answer = Callable[[list[str]], tuple[int | None, str, str]]  # argv -> exit code, stdout, stderr


class FakeAgent(RecordingAgent):
    """Units run one after the other on a virtual clock, ten seconds each; `limits` are theirs."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.now = 1_000_000.0
        self.limits: list[float] = []

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        self.now += 1.0
        return super().call(verb, payload)

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        self.limits.append(max_s)
        super().unit_start(node, name, argv, max_s=max_s)

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        code, stdout, stderr = self.answer(self.started[-1][2])
        self.live[node].remove(name)
        began, self.now = self.now, self.now + 10.0
        return UnitResult(node, name, code, began, self.now, stdout, stderr, 0.5)
