"""What a cell's bursts come to: the numbers of a run's summary."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

MESSAGES = ("probes", "answers", "decisions", "writes", "acknowledgements", "records")
"""Kinds of messages: a probe and its answer, what a probed server is told of the decision, the data
and their acknowledgement, and what a home server is told of a redirected write, both ways."""

LEARNING_SHOWN = 200


def numbers(answer: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of the summary, by name: means over the bursts that count.

    ``response_s`` is that of the slowest process (figure 3), ``mean_s`` of all of them, ``best_s``
    what it would have been had the same writes been placed as well as possible at once.
    ``most`` is how many writes a server was given at most, ``straggler_most`` and
    ``straggler_writes`` what stragglers were given. Messages are per write.
    """
    rounds: Sequence[Mapping[str, Any]] = answer["rounds"]
    found = {
        "response_s": _mean(rounds, "response_s"),
        "response_least_s": min(float(one["response_s"]) for one in rounds),
        "response_largest_s": max(float(one["response_s"]) for one in rounds),
        "mean_s": _mean(rounds, "mean_s"),
        "best_s": _mean(rounds, "best_s"),
        "most": _mean(rounds, "most"),
        "calm_most": _mean(rounds, "calm_most"),
        "straggler_most": _mean(rounds, "straggler_most"),
        "straggler_writes": _mean(rounds, "straggler_writes"),
        "hit": statistics.fmean(float(one["straggler_writes"] > 0) for one in rounds),
        "redirected_share": _mean(rounds, "redirected_share"),
        "bursts": float(len(rounds)),
        "stragglers": float(rounds[0]["stragglers"]),
    }
    writes = sum(float(one["messages"]["writes"]) for one in rounds)
    for kind in MESSAGES:
        found[f"{kind}_per_write"] = sum(float(one["messages"][kind]) for one in rounds) / writes
    found["messages_per_write"] = sum(found[f"{kind}_per_write"] for kind in MESSAGES)
    return found


def curves(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What figures need beside the summary: ``loads``, a mapping a load of a server (figure 4),
    ``history``, P(load), and ``learning``, the response of each burst that did not count."""
    learning = [float(one["response_s"]) for one in answer["learning"]]
    return {
        "loads": answer["loads"],
        "history": answer["history"],
        "learning": learning[:LEARNING_SHOWN],
    }


def _mean(rounds: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.fmean(float(one[name]) for one in rounds)
