"""Open-loop writes on a modelled store: Poisson arrivals with a rate for each PG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.simulated.process import SimulatorAnswer, SimulatorProcess

_SECOND = 6
_REQUEST = 3


@dataclass(frozen=True)
class OpenWrites:
    """Writes of `object_size` to existing objects for `duration_s` virtual seconds, at `rates`
    writes a second by PG id. Writes that are unfinished `drain_s` later are outstanding."""

    rates: Mapping[str, float]
    object_size: int
    duration_s: float
    drain_s: float = 5.0


@dataclass(frozen=True)
class OpenWritesResult:
    """Result of open-loop writes. `started_s` is on the store's clock. `series` has the rows of
    `workloads.open_loop.OpenLoopResult`; `requests` has (intended start, latency or None, PG id) in
    the order of starts."""

    started_s: float
    series: tuple[dict[str, Any], ...]
    requests: tuple[tuple[float, float | None, str], ...]


def start(process: SimulatorProcess, names: Sequence[str], writes: OpenWrites, in_s: float) -> None:
    """Start the writes in `in_s` virtual seconds.

    Raises:
        UserError: a PG is unknown.
    """
    unknown = sorted(set(writes.rates) - set(names))
    if unknown:
        raise UserError(f"open-loop: rates: there is no placement group {unknown[0]!r}.")
    process.ask(
        "start",
        bench={
            "op": "open",
            "object_size": writes.object_size,
            "concurrency": 1,
            "duration_s": writes.duration_s,
            "start_in_s": in_s,
            "rates": [float(writes.rates.get(name, 0.0)) for name in names],
            "drain_s": writes.drain_s,
        },
    )


def result(process: SimulatorProcess, names: Sequence[str]) -> OpenWritesResult:
    """Return the result of the writes.

    Raises:
        StoreError: no writes were started, or they have not ended.
    """
    answer = process.ask("open-loop")
    if not answer.result["done"]:
        raise StoreError("the open-loop writes have not ended.")
    return OpenWritesResult(
        started_s=float(answer.result["start_s"]),
        series=tuple(_second(answer, at) for at in range(_rows(answer, "series", _SECOND))),
        requests=tuple(sorted(_requests(answer, names))),
    )


def _rows(answer: SimulatorAnswer, block: str, width: int) -> int:
    return len(answer.blocks[block]) // width


def _second(answer: SimulatorAnswer, at: int) -> dict[str, Any]:
    row = answer.blocks["series"][at * _SECOND : (at + 1) * _SECOND]
    intended, done, latency, longest, outstanding, oldest = row
    return {
        "t_s": float(at + 1),
        "intended": int(intended),
        "sent": int(intended),
        "done": int(done),
        "failed": 0,
        "latency_mean_s": latency / done if done else None,
        "latency_max_s": longest if done else None,
        "outstanding": int(outstanding),
        "oldest_s": oldest if outstanding else None,
    }


def _requests(
    answer: SimulatorAnswer, names: Sequence[str]
) -> list[tuple[float, float | None, str]]:
    flat = answer.blocks["requests"]
    rows = []
    for at in range(0, len(flat), _REQUEST):
        due, took, pg = flat[at : at + _REQUEST]
        rows.append((due, took if took >= 0 else None, names[int(pg)]))
    return rows
