"""Stand-in admin node: it answers each unit by a script and records its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.errors import UserError
from testbed.agent.contract import UnitResult

Answer = Callable[[list[str]], tuple[int | None, str, str]]  # argv -> exit code, stdout, stderr


class FakeAgent:
    """Units run one after the other on a virtual clock, `unit_s` seconds each."""

    def __init__(self, answer: Answer, *, unit_s: float = 10.0) -> None:
        self.answer = answer
        self.unit_s = unit_s
        self.now = 1_000_000.0
        self.started: list[tuple[str, str, list[str], float]] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.stopped: list[str] = []
        self._running: dict[str, list[str]] = {}

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        self.calls.append((verb, payload or {}))
        self.now += 1.0
        return {}

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        if name in self._running:
            raise UserError(f"unit {name} is already running")
        self._running[name] = list(argv)
        self.started.append((node, name, list(argv), max_s))

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        code, stdout, stderr = self.answer(self._running[name])
        del self._running[name]
        began = self.now
        self.now += self.unit_s
        return UnitResult(node, name, code, began, self.now, stdout, stderr, 0.5)

    def unit_stop(self, node: str, name: str) -> UnitResult | None:
        self.stopped.append(name)
        self._running.pop(name, None)
        return None

    def units(self) -> Mapping[str, Sequence[str]]:
        return {"client": list(self._running)} if self._running else {}

    def strays(self) -> Mapping[str, Sequence[str]]:
        return {}
