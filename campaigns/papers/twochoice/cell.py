"""Cell of simulated bursts on a Dask worker: the program `tcsim` simulates it (one request, one
answer; dataplane/cmd/tcsim), and its answer becomes the files of the cell's folder."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.engine.job import Job, Phases
from campaigns.engine.write_cell import write_cell
from schemas.cells.twochoice import BURSTS, Burst, Learning
from schemas.run import Run
from testbed.simulated import programs
from testbed.simulated.process import PROGRAM as HOTBEDSIM

BURSTS_FILE = "bursts.json"
MESSAGES = ("probes", "answers", "decisions", "writes", "acknowledgements", "records")
"""Kinds of messages: a probe and its answer, the decision for a probed server, the data and their
acknowledgement, and a redirected write's record for its home, both ways."""
MEANS = (
    *("response_s", "mean_s", "best_s", "most", "calm_most", "straggler_most"),
    *("straggler_writes", "redirected_share"),
)
"""Numbers of a burst with a mean in the summary."""

LEARNING_SHOWN = 200
PROGRAM = HOTBEDSIM.with_name("tcsim")

ENGINE_ONLY = frozenset({"history"})
"""Parameters that the program gets in another form."""


def make(job: Job, folder: Path) -> Run:
    """Make the cell and write its folder."""
    parameters = BURSTS.check(job.parameters, f"run {job.run_id}")
    phases = Phases()
    with phases("simulate"):
        answer = simulate(parameters, job.seed, limit_s=job.timeout_s)
    (folder / BURSTS_FILE).write_text(json.dumps(curves(answer)) + "\n")
    cost = {f"cost_{name}": float(value) for name, value in answer["cost"].items()}
    return write_cell(folder, job, numbers(answer) | cost, phases)


def simulate(parameters: Burst, seed: int, *, limit_s: float = programs.LIMIT_S) -> dict[str, Any]:
    """Return the results of a cell's bursts.

    Args:
        parameters: the cell.
        seed: seed of servers' loads, stragglers, and every choice.
        limit_s: limit in real seconds.

    Returns:
        ``rounds`` and ``learning``: one mapping per burst; ``loads``: writes by load of the server
        (figure 4); ``history``: P(load); ``cost``: events, processor seconds and memory, which
        depend on this machine. See `dataplane/sim/burst`, and `programs.answer_of` for errors.
    """
    return programs.answer_of(PROGRAM, asked(parameters, seed), limit_s=limit_s)


def asked(parameters: Burst, seed: int) -> Mapping[str, Any]:
    """Return the program's request: the cell's parameters and the seed. A cold history is forgotten
    before every burst."""
    values = BURSTS.row(parameters.model_dump(mode="json"))
    if not isinstance(parameters, Learning):
        values["learn_rounds"] = 0
    request = {name: value for name, value in values.items() if name not in ENGINE_ONLY}
    return request | {"forget": values["history"] == "cold", "seed": seed}


def numbers(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of the summary, by name: means over the bursts that count.

    ``response_s`` is the slowest process's (figure 3), ``mean_s`` the mean of all processes.
    ``best_s`` is the response with the best possible placement of the same writes at once. ``most``
    is the largest number of writes at a server. ``straggler_most`` and ``straggler_writes`` are the
    most and the total at stragglers. Messages are per write.
    """
    rounds: Sequence[Mapping[str, Any]] = answer["rounds"]
    found = {name: statistics.fmean(float(one[name]) for one in rounds) for name in MEANS} | {
        "response_least_s": min(float(one["response_s"]) for one in rounds),
        "response_largest_s": max(float(one["response_s"]) for one in rounds),
        "hit": statistics.fmean(float(one["straggler_writes"] > 0) for one in rounds),
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
