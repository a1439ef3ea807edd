"""Run folders of simulated bursts with chosen values, to test the analysis. Never shown as a
result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from synthetic_runs import finished

from analysis.papers.twochoice.runs import BEYOND, COLD, LEARNERS, PAPERS, STANDARD
from schemas.run import Summary

RATIOS = (0.0, 0.01, 0.1, 0.5)
PLACED = 0.008
RESPONSE = {
    "fixed": 1.5,
    "random": 1.8,
    "two-choice": 1.35,
    "collaborative": 0.9,
    "preassign": 1.1,
    "both": 0.6,
    "preassign-cold": 1.2,
    "both-cold": 0.7,
    "prequal": 2.0,
    "oracle": 0.4,
}
GROWS = frozenset({"two-choice", "collaborative"})
LIGHT = {"fixed": 10, "random": 10, "two-choice": 18, "collaborative": 22, "preassign": 14}
MOST = {"fixed": 10, "random": 20, "two-choice": 27, "collaborative": 33, "preassign": 20}
LOADS = {4: 2.0, 7: 64.0, 10: 400.0, 13: 64.0}


def loads_of(scheduler: str, block: int) -> list[dict[str, Any]]:
    """Return the requests given to servers, by their load."""
    rows = []
    for load, servers in LOADS.items():
        mean = LIGHT.get(scheduler, 12) if load < 10 else 10
        most = MOST.get(scheduler, 14) + (0.1 * block if scheduler != "fixed" else 0)
        rows.append(
            {
                "load": load,
                "straggler": False,
                "servers": servers,
                "bursts": 10,
                "most": most,
                "largest": most,
                "mean": mean,
            }
        )
    avoided = scheduler not in ("fixed", "random")
    rows.append(
        {
            "load": 0,
            "straggler": True,
            "servers": 8.0,
            "bursts": 10,
            "most": 0.0 if avoided else MOST[scheduler],
            "largest": 0 if avoided else MOST[scheduler],
            "mean": 0.0 if avoided else 10.0,
        }
    )
    return rows


def write_bursts(
    campaign: Path, series: str, share: float, block: int, *, cell: Any = None, **values: float
) -> Path:
    """Write one finished run; `cell` changes parameters, `values` numbers of the summary."""
    scheduler, cold = series.removesuffix("-cold"), series.endswith("-cold")
    parameters: dict[str, Any] = STANDARD | {
        "scheduler": scheduler,
        "history": "cold" if cold else "learned",
        "straggler_ratio": share,
        "rounds": 10,
        "learn_rounds": 20 if scheduler in LEARNERS and not cold else 0,
    }
    parameters |= cell or {}
    run, folder = finished(
        campaign, block, "twochoice", parameters, ground="sim", phase="simulate", site="bursts"
    )
    grown = 1 + share if scheduler in GROWS else 1.0
    placed = {row["straggler"]: row["most"] for row in loads_of(scheduler, block)}
    numbers = {
        "response_s": RESPONSE[series] * grown * (1 + 0.02 * block),
        "best_s": 0.4,
        "mean_s": 0.3,
        "most": float(MOST.get(scheduler, 14)),
        "straggler_most": float(placed[True]),
        "straggler_writes": 0.0,
        "stragglers": round(share * parameters["servers"]),
        "redirected_share": 0.5 if parameters["choices"] == "home+random" else 0.999,
        "messages_per_write": 2.0 if scheduler == "fixed" else 6.0,
    }
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra=numbers | values)
    (folder / "run.json").write_text(run.model_dump_json())
    (folder / "summary.json").write_text(summary.model_dump_json())
    learned = [0.9, 0.8, 0.7][: parameters["learn_rounds"]]
    bursts = {"loads": loads_of(scheduler, block), "history": [], "learning": learned}
    (folder / "bursts.json").write_text(json.dumps(bursts))
    return folder


def cells(variations: bool) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Yield (series, straggler ratio, parameters) of every cell for the figures. Without
    variations, yield only cells for the claims."""
    everyone = (*PAPERS, *COLD, *BEYOND)
    for series in everyone:
        for share in RATIOS:
            yield series, share, {}
    for series in (*PAPERS, *BEYOND):
        yield series, PLACED, {}
        for servers, processes in ((10_000, 1_000_000), (1000, 10_000)):
            learn = {"learn_rounds": 5} if series in LEARNERS else {}
            if learn or servers > 1000:
                yield series, 0.1, {"servers": servers, "processes": processes, **learn}
        if not variations:
            continue
        yield series, 0.1, {"processes_per_node": 100}
        yield series, 0.1, {"spread_s": 0.02}
        yield series, 0.1, {"load_mean": 5.0, "load_sd": 1.0}
    for series in ("two-choice", "collaborative", "preassign", "both") if variations else ():
        for choices in ("random+random", "home+random"):
            yield series, 0.1, {"choices": choices, "redirects": True}


def write_all(artifacts: Path, blocks: int = 3, *, variations: bool = True) -> Path:
    """Write every run for the figures or, without variations, only for the claims."""
    campaign = artifacts / "twochoice-full"
    for block in range(blocks):
        for series, share, cell in cells(variations):
            write_bursts(campaign, series, share, block, cell=cell)
    return campaign
