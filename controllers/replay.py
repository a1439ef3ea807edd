"""Replay of a journal: recomputes every decision and reports the first difference.

The policy is pure, so parameters, seed, state and observation must give the same state and actions
again, on any machine. `hotbed control replay` uses this module.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from controllers.decide import Decider, PolicyError
from controllers.decider import open_decider
from controllers.journal import Journal
from controllers.registry import code_hash, find
from schemas.errors import UserError

_REPEATABLE = ("decide: decide() raised", "decide: decide() returned", "decide: illegal action")


@dataclass(frozen=True)
class ReplayDifference:
    """Decision that differs: `what` is state, actions, error or initial state."""

    step: int
    what: str
    expected: Any  # as journalled
    got: Any


@dataclass(frozen=True)
class JournalReplay:
    """Result of a replay. `same_code`: True if the code is the one that was journalled."""

    policy: str
    decisions: int
    difference: ReplayDifference | None
    same_code: bool
    torn: bool

    @property
    def equal(self) -> bool:
        """True if every decision came out as journalled."""
        return self.difference is None

    def sentence(self) -> str:
        """Return the result as a sentence for a person."""
        code = "" if self.same_code else "; the controller's code differs from the journal's"
        torn = "; the torn last line was left out" if self.torn else ""
        if self.difference is None:
            return f"{self.policy}: all {self.decisions} decisions are equal{code}{torn}"
        d = self.difference
        expected, got = (str(one)[:200] for one in _apart(d.expected, d.got))
        return (
            f"{self.policy}: step {d.step}: the {d.what} differ: expected {expected}, "
            f"got {got}{code}{torn}"
        )


def _apart(expected: Any, got: Any) -> tuple[Any, Any]:
    """Return the first part in which two lists or mappings differ; else the two unchanged."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for name in expected.keys() & got.keys():
            if expected[name] != got[name]:
                return {name: expected[name]}, {name: got[name]}
    if isinstance(expected, list) and isinstance(got, list):
        return next((a, b) for a, b in zip_longest(expected, got) if a != b)
    return expected, got


def replay(
    journal: Journal, controllers_dirs: Sequence[Path] = (), *, limit_s: float = math.inf
) -> JournalReplay:
    """Recompute the decisions of `journal` in order.

    Args:
        journal: the journal.
        controllers_dirs: folders of further controllers.
        limit_s: seconds of deciding after which no further decision is recomputed.

    Raises:
        UserError: the controller cannot be found or refuses the journalled parameters.
    """
    header = journal.header
    controller = find(header["policy"], controllers_dirs)
    same_code = code_hash(controller) == header["code_hash"]
    try:
        with closing(open_decider(controller, header["parameters"], header["seed"])) as decider:
            count, difference = _first_difference(journal, decider, limit_s)
    except PolicyError as error:
        raise UserError(error, where=f"controller {controller.name}") from error
    return JournalReplay(header["policy"], count, difference, same_code, journal.torn)


def _first_difference(
    journal: Journal, decider: Decider, left_s: float
) -> tuple[int, ReplayDifference | None]:
    """Return the number of recomputed decisions, and the last one if it differs."""
    count = 0
    state: Any = decider.initial()
    for line in journal:
        if line["observation"] is None or line["state_before"] is None:
            continue  # sensing failed: there was no decision
        if line["state_after"] is None and not str(line["error"]).startswith(_REPEATABLE):
            continue  # the policy hung or died: this cannot be repeated
        # Each state must equal the state after the previous step.
        if state != line["state_before"]:
            return count, ReplayDifference(
                line["step"], "states before", line["state_before"], state
            )
        count += 1
        started_s = time.monotonic()
        difference = _compare(line, *_again(decider, line))
        left_s -= time.monotonic() - started_s
        if difference is not None or left_s < 0:
            return count, difference
        if line["state_after"] is not None:
            state = line["state_after"]
    return count, None


def _again(decider: Decider, line: Any) -> tuple[Any, Any, str | None]:
    try:
        decision = decider.decide(line["state_before"], line["observation"])
    except PolicyError as error:
        return None, None, str(error)
    return decision.state, decision.actions, None


def _compare(line: Any, state: Any, actions: Any, error: str | None) -> ReplayDifference | None:
    step = line["step"]
    if line["state_after"] is None:
        # The decision ended the controller: it raised, hung or was illegal.
        same = error is None or line["error"] == f"decide: {error}"
        return None if same else ReplayDifference(step, "errors", line["error"], f"decide: {error}")
    if error is not None:
        return ReplayDifference(step, "errors", None, error)
    if actions != line["actions"]:
        return ReplayDifference(step, "actions", line["actions"], actions)
    if state != line["state_after"]:
        return ReplayDifference(step, "states after", line["state_after"], state)
    return None
