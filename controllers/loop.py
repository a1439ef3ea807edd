"""Control loop: sense, decide, act, journal, wait for the interval.

A failed sense or act is journalled and the next step follows; several in a row end the loop. A
policy that raises, hangs or returns an illegal action ends it at once. So does a journal that
cannot be written, as nothing may be steered without a record. However the loop ends, the store is
restored. Time comes from an injected clock, so that the same loop runs on virtual time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from controllers.decide import Decider, PolicyError
from controllers.journal import JournalStep, JournalWriter, canonical, effect_to_json, needs_to_json
from controllers.legality import illegal, senses_for
from controllers.saved import Saved
from controllers.seen import Encoder, Seen
from schemas.errors import sentence_of
from testbed.stores.contract import (
    PRESSURE,
    Action,
    Effect,
    Needs,
    Observation,
    Store,
    action_from_json,
)

EXIT_STOPPED = 0
EXIT_FAILED = 1  # sensing or acting failed too often
EXIT_USER = 2  # the configuration is wrong
EXIT_POLICY = 3  # the policy raised, hung or returned an illegal action
EXIT_NOT_RESTORED = 4
EXIT_DIED = 5  # killed: the next controller or command writes this


class LoopClock(Protocol):
    """Time for the loop."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def wall(self) -> float:
        """Return seconds since the epoch."""

    def wait(self, seconds: float) -> bool:
        """Wait `seconds`; True as soon as the loop must stop."""


class RealClock:
    """Real time; `stop()` ends the loop, for example from a signal handler."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def monotonic(self) -> float:
        """See `LoopClock`."""
        return time.monotonic()

    def wall(self) -> float:
        """See `LoopClock`."""
        return time.time()

    def wait(self, seconds: float) -> bool:
        """See `LoopClock`."""
        return self._stopped.wait(max(0.0, seconds))

    def stop(self) -> None:
        """Stop the loop."""
        self._stopped.set()


@dataclass(frozen=True)
class LoopPlan:
    """Plan of the loop: the policy's details for the header, and its limits.

    The loop ends after `failures` failed steps in a row, and after `steps` steps (None: never). The
    loop itself reads two of the `parameters`: with ``restore_on_stop`` false, an orderly stop
    leaves the store as it is; ``window_s`` shortens the interval to as many seconds.
    """

    policy: str
    needs: Needs
    parameters: Mapping[str, object]
    seed: int
    interval_s: float
    signal: str
    code_hash: str
    failures: int = 3
    steps: int | None = None

    @property
    def step_s(self) -> float:
        """Seconds from one step to the next."""
        window_s = self.parameters.get("window_s")
        if isinstance(window_s, (int, float)):
            return min(float(window_s), self.interval_s)
        return self.interval_s


@dataclass(frozen=True)
class LoopEnd:
    """End of a controller."""

    code: int
    reason: str
    steps: int
    restored: Sequence[Effect] = ()


@dataclass
class _LoopProgress:
    started: float = 0.0
    steps: int = 0
    failures: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)


class _End(Exception):
    """Signal that ends the loop."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Loop:
    """One controller on one store."""

    def __init__(
        self,
        plan: LoopPlan,
        *,
        decider: Decider,
        store: Store,
        journal: JournalWriter,
        saved: Saved,
        clock: LoopClock,
        alive: Callable[[], object] = lambda: None,
    ) -> None:
        """Set up the loop; it calls `alive` when it is ready and after every step."""
        self._plan = plan
        self._decider = decider
        self._store = store
        self._journal = journal
        self._saved = saved
        self._clock = clock
        self._alive = alive
        self._senses = senses_for(plan.needs)
        self._encoder = Encoder()
        self._at = _LoopProgress()

    def run(self) -> LoopEnd:
        """Run until stopped or failed, then restore the store; never raises for those."""
        plan = self._plan
        try:
            self._journal.header(
                policy=plan.policy,
                parameters=canonical(dict(plan.parameters)),
                seed=plan.seed,
                interval_s=plan.step_s,
                needs=needs_to_json(plan.needs),
                code_hash=plan.code_hash,
                signal=plan.signal,
            )
            self._begin()
            self._alive()
            self._go_on()
            code, reason = EXIT_STOPPED, "stopped"
        except _End as end:
            code, reason = end.code, str(end)
        except Exception as error:
            code, reason = EXIT_FAILED, f"the controller failed: {_line(error)}"
        return self._finish(code, reason)

    def _begin(self) -> None:
        try:
            # A file from an earlier run holds the original state; the store may be changed by now.
            if not self._saved.exists():
                self._saved.write(self._store.save())
        except Exception as error:
            reason = f"the store's state could not be saved: {_line(error)}"
            raise _End(EXIT_FAILED, reason) from error
        try:
            self._at.state = self._decider.initial()
        except PolicyError as error:
            raise _End(EXIT_POLICY, str(error)) from error

    def _go_on(self) -> None:
        """Run steps at multiples of the interval from the start; late ones are not made up for."""
        interval = self._plan.step_s
        self._at.started = self._clock.monotonic()
        slot = 0
        if PRESSURE in self._senses:
            # Rates are means since the previous sense, so the first interval must pass.
            self._try_sense()
            slot = 1
        while self._plan.steps is None or self._at.steps < self._plan.steps:
            due = self._at.started + slot * interval
            if self._clock.wait(due - self._clock.monotonic()):
                return
            self._step()
            self._alive()
            late = self._clock.monotonic() - self._at.started
            slot = max(slot + 1, math.ceil(late / interval - 1e-9))

    def _step(self) -> None:
        number, self._at.steps = self._at.steps, self._at.steps + 1
        before = self._clock.monotonic()
        line = JournalStep(step=number, t_s=before - self._at.started, wall=self._clock.wall())
        seen, problem = self._try_sense()
        line = replace(line, sense_s=self._clock.monotonic() - before)
        if seen is None:
            self._failed(replace(line, error=f"sense: {problem}"))
            return
        line = replace(line, observation=seen.text, state_before=self._at.state)
        line, actions = self._decide(line, seen)
        line, problem = self._act(line, actions)
        if problem:
            self._failed(replace(line, error=f"act: {problem}"))
            return
        self._at.failures = 0
        self._journal.step(line)

    def _try_sense(self) -> tuple[Seen | None, str]:
        try:
            sensed = self._store.sense(self._senses)
            observation = replace(sensed, t_s=self._clock.monotonic() - self._at.started)
            return self._encoder(observation), ""
        except Exception as error:
            return None, _line(error)

    def _decide(self, line: JournalStep, seen: Seen) -> tuple[JournalStep, list[Action]]:
        """Return the decision; raise _End, after journalling, if the policy misbehaves."""
        began = self._clock.monotonic()
        try:
            decision = self._decider.decide(self._at.state, seen.data)
            line = replace(line, decide_s=self._clock.monotonic() - began)
            actions = [action_from_json(action) for action in decision.actions]
            reason = _refused(actions, seen.observation, self._plan.needs)
            if reason:
                raise PolicyError(f"illegal action: {reason}")
        except (PolicyError, ValueError) as error:
            line = replace(line, error=f"decide: {error}")
            self._journal.step(line)
            reason = f"controller {self._plan.policy}: {error}"
            raise _End(EXIT_POLICY, reason) from error
        self._at.state = decision.state
        return replace(line, state_after=decision.state, actions=decision.actions), actions

    def _act(self, line: JournalStep, actions: Sequence[Action]) -> tuple[JournalStep, str]:
        began = self._clock.monotonic()
        problem, effects = "", []
        try:
            effects = list(self._store.act(actions)) if actions else []
            failed = [effect for effect in effects if not effect.ok]
            if failed:
                count = f"{len(failed)} of {len(effects)} actions failed"
                problem = f"{count}: {failed[0].message}"
        except Exception as error:
            problem = _line(error)
        line = replace(
            line,
            act_s=self._clock.monotonic() - began,
            effects=[effect_to_json(effect) for effect in effects],
        )
        return line, problem

    def _failed(self, line: JournalStep) -> None:
        self._journal.step(line)
        self._at.failures += 1
        if self._at.failures >= self._plan.failures:
            times = f"{self._at.failures} steps in a row failed"
            raise _End(EXIT_FAILED, f"{times}, the last one: {line.error}")

    def _finish(self, code: int, reason: str) -> LoopEnd:
        restored: list[Effect] = []
        if code == EXIT_STOPPED and self._plan.parameters.get("restore_on_stop") is False:
            self._saved.forget()
            reason = f"{reason}; the store stays as it is (restore_on_stop is false)"
        try:
            restored = self._saved.put_back(self._store, self._pause)
        except Exception as error:
            code, reason = EXIT_NOT_RESTORED, f"{reason}; {_line(error)}"
        self._decider.close()
        try:
            self._journal.footer(reason, restored)
        except OSError as error:
            if code == EXIT_STOPPED:
                code, reason = EXIT_FAILED, f"{reason}; {_line(error)}"
        return LoopEnd(code, reason, self._at.steps, restored)

    def _pause(self, seconds: float) -> None:
        # The stop that led here must not cut this wait short.
        deadline = self._clock.monotonic() + seconds
        while (left := deadline - self._clock.monotonic()) > 0:
            if self._clock.wait(left):
                time.sleep(min(left, 0.1))


def _refused(actions: Sequence[Action], observation: Observation, needs: Needs) -> str | None:
    try:
        return illegal(actions, observation, needs)
    except TypeError as error:  # a list in place of a number cannot even be looked up
        return f"malformed: {error}"


def _line(error: BaseException) -> str:
    if isinstance(error, OSError):
        return sentence_of(error)
    return " ".join(str(error).split()) or type(error).__name__
