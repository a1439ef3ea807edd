"""The program `tcsim`, which simulates a cell: one request, one answer (dataplane/cmd/tcsim)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from schemas.cells.twochoice import BURSTS, Burst, Learning
from schemas.errors import StoreError
from testbed.simulated.process import PROGRAM as HOTBEDSIM

PROGRAM = HOTBEDSIM.with_name("tcsim")
LIMIT_S = 3600.0
"""Real seconds that one cell may take."""

ENGINE_ONLY = frozenset({"history"})
"""Parameters that the program gets in another form."""


def simulate(parameters: Burst, seed: int, *, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Return the results of a cell's bursts.

    Args:
        parameters: the cell.
        seed: seed of servers' loads, stragglers, and every choice.
        limit_s: limit in real seconds.

    Returns:
        ``rounds`` and ``learning``: one mapping per burst; ``loads``: writes by load of the server
        (figure 4); ``history``: P(load); ``cost``: events, processor seconds and memory, which
        depend on this machine. See `dataplane/sim/burst`.

    Raises:
        StoreError: the program is missing, refuses, fails, or its answer is invalid.
    """
    request = json.dumps(asked(parameters, seed), allow_nan=False)
    try:
        done = subprocess.run(
            [PROGRAM, "run"],
            input=request,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except OSError as error:
        raise StoreError(
            f"the simulator {PROGRAM} cannot be started ({error.strerror}): run `make setup`."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise StoreError(
            f"the simulator did not end within {limit_s:g} s: {parameters.label()} is too large "
            "for this machine, or it is busy."
        ) from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        raise StoreError(f"the simulator failed: {said.removeprefix('tcsim: ')[:300]}.")
    try:
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        assert {"rounds", "learning", "loads", "history", "cost"} <= set(answer)
    except (ValueError, AssertionError) as error:
        raise StoreError("the simulator answered nonsense: run `make setup`.") from error
    return answer


def asked(parameters: Burst, seed: int) -> Mapping[str, Any]:
    """Return the program's request: the cell's parameters and the seed. A cold history is forgotten
    before every burst."""
    values = BURSTS.row(parameters.model_dump(mode="json"))
    if not isinstance(parameters, Learning):
        values["learn_rounds"] = 0
    request = {name: value for name, value in values.items() if name not in ENGINE_ONLY}
    return request | {"forget": values["history"] == "cold", "seed": seed}
