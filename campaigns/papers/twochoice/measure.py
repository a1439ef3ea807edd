"""Numbers of a run's summary, from a cell's bursts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

MESSAGES = ("probes", "answers", "decisions", "writes", "acknowledgements", "records")
"""Kinds of messages: a probe and its answer, the decision for a probed server, the data and their
acknowledgement, and a redirected write's record for its home, both ways."""

LEARNING_SHOWN = 200


def numbers(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of the summary, by name: means over the bursts that count.

    ``response_s`` is the slowest process's (figure 3), ``mean_s`` the mean of all processes.
    ``best_s`` is the response with the best possible placement of the same writes at once. ``most``
    is the largest number of writes at a server. ``straggler_most`` and ``straggler_writes`` are the
    most and the total at stragglers. Messages are per write.
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
    """Return figures' additional data: ``loads``, one mapping per load of a server (figure 4);
    ``history``, P(load); ``learning``, the responses of bursts that do not count."""
    learning = [float(one["response_s"]) for one in answer["learning"]]
    return {
        "loads": answer["loads"],
        "history": answer["history"],
        "learning": learning[:LEARNING_SHOWN],
    }


def _mean(rounds: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.fmean(float(one[name]) for one in rounds)
