"""Ranking, figure, table and claims of a comparison, on runs with known effects."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import write_run

from analysis.comparison.build import Ranking, build, read
from schemas.comparison import Comparison, PlannedCell

BLOCKS = 6
OPS = ("seq", "rand")


def make(
    artifacts: Path,
    gains: Mapping[str, float],
    *,
    blocks: int = BLOCKS,
    noise: float = 0.01,
    inert: tuple[str, ...] = (),
    failed: Mapping[str, str] | None = None,
    absent: tuple[tuple[str, int], ...] = (),
    ground: str = "local",
    **changes: Any,
) -> tuple[Path, Comparison]:
    """Write runs of every controller of `gains`; the first one is the baseline."""
    campaign = artifacts / f"compare-{ground}"
    random = np.random.default_rng(3)
    cells = []
    for block in range(blocks):
        shared = random.normal(1, 0.2)  # blocks differ much more than controllers
        for op in OPS:
            for name, gain in gains.items():
                parameters = {"op": op, "scenario": "heterogeneity", "controller": name}
                value = 100 * shared * gain * random.normal(1, noise)
                if (name, block) in absent:
                    run_id = f"{name}{op}{block}"
                else:
                    status = "failed" if name in (failed or {}) else "done"
                    how = {"status": status, "inert": name in inert, "ground": ground}
                    folder = write_run(
                        campaign, parameters, block, value, with_samples=False, **how
                    )
                    run_id = folder.parent.name
                    if status == "failed":
                        record = json.loads((folder / "run.json").read_text())
                        record["reason"] = (failed or {})[name]
                        (folder / "run.json").write_text(json.dumps(record))
                cell = {"run_id": run_id, "block": block, **parameters}
                cells.append(PlannedCell.model_validate(cell))
    body = {"ground": ground, "testbed": "dlr", "baseline": next(iter(gains)), "ops": OPS}
    body |= {"controllers": tuple(gains), "scenarios": ("heterogeneity",), "blocks": blocks}
    body |= {"seed": 1, "time_scale": 1 / 6, "cells": tuple(cells), **changes}
    return campaign, Comparison.model_validate(body)


def made(tmp_path: Path, gains: Mapping[str, float], **changes: Any) -> Ranking:
    return read(*make(tmp_path, gains, **changes))


def test_the_true_order_is_found_with_its_ties(tmp_path):
    gains = {"default": 1.0, "mine": 1.3, "dlr": 1.2, "twin": 1.2, "bad": 0.8}
    ranking = made(tmp_path, gains)
    for panel in ranking.panels:
        states = {s.controller: s.state for s in panel.standings}
        better = dict.fromkeys(("mine", "dlr", "twin"), "better")
        assert states == {"default": "baseline", **better, "bad": "worse"}
        assert panel.standings[0].controller == "mine"
        assert panel.standings[-1].controller == "bad"
        assert panel.of("mine").places == (1, 1)
        assert panel.of("dlr").places == panel.of("twin").places == (2, 3)
        assert (panel.of("dlr").ties, panel.of("twin").ties) == (("twin",), ("dlr",))
        assert panel.of("default").places == (4, 4)
        assert panel.of("bad").places == (5, 5)
        gain = panel.of("mine").gain
        assert gain is not None
        assert gain.n == BLOCKS
        assert gain.low < 1.3 < gain.high
    verdicts = {claim.effect for claim in ranking.claims if "-bad-" in claim.id}
    assert verdicts == {"contradicted"}


@pytest.mark.slow
def test_the_figure_table_and_claims_name_everybody(tmp_path):
    gains = {"default": 1.0, "mine": 1.3, "reweight": 1.0, "broken": 1.0}
    why = "the controller broken failed: decide() raised ZeroDivisionError"
    runs, comparison = make(tmp_path, gains, inert=("reweight",), failed={"broken": why})
    ranking = build(runs, comparison)
    assert ranking.figure.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert ranking.figure.with_suffix(".pdf").read_bytes()[:5] == b"%PDF-"
    table = (ranking.folder / "comparison.md").read_text()
    for name in gains:
        assert table.count(f"| {name} |") == len(OPS)
    assert "6 of 6 runs missing: the controller broken failed" in table
    assert "inert: it changed nothing in all runs" in table
    with (ranking.folder / "comparison.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(gains) * len(OPS)
    assert {row["controller"]: row["verdict"] for row in rows} == {
        "default": "baseline",
        "mine": "better",
        "reweight": "inert",
        "broken": "failed",
    }
    assert {row["controller"]: row["best_place"] for row in rows}["broken"] == ""
    assert {row["controller"]: row["best_place"] for row in rows}["mine"] == "1"
    claims = {c["id"]: c for c in json.loads(ranking.claims_path.read_text())}
    assert len(claims) == 3 * len(OPS) * 2
    assert all(c["paper_value"] is None and c["baseline"] == "default" for c in claims.values())
    best = claims["compare-mine-heterogeneity-seq-throughput"]
    assert (best["n"], best["ground"]) == (BLOCKS, "local")
    assert best["effect"] == "confirmed"
    assert best["ci95"][0] < 0.3 < best["ci95"][1]
    assert "better" in best["note"]
    slow = claims["compare-mine-heterogeneity-seq-latency"]
    assert slow["depends_on"] == [best["id"]]
    assert slow["measured"] == pytest.approx(1 - 1 / 1.3, abs=0.02)
    broken = claims["compare-broken-heterogeneity-rand-throughput"]
    assert (broken["effect"], broken["measured"]) == ("not run", None)
    assert "ZeroDivisionError" in broken["note"]
    inert = claims["compare-reweight-heterogeneity-rand-throughput"]
    assert inert["effect"] == "not run"
    assert "inert" in inert["note"]
    assert json.loads((ranking.folder / "comparison.json").read_text())["baseline"] == "default"


@pytest.mark.parametrize("blocks", [1, 3])
def test_an_unresolved_order_is_inconclusive(tmp_path, blocks):
    gain = 1.4 if blocks == 1 else 1.0
    ranking = made(tmp_path, {"default": 1.0, "mine": gain}, blocks=blocks, noise=0.05)
    for panel in ranking.panels:
        standing = panel.of("mine")
        assert standing.state == "inconclusive"
        assert (standing.places, standing.ties) == ((1, 2), ("default",))
    assert {claim.effect for claim in ranking.claims} == {"inconclusive"}
    if blocks == 1:
        assert all(claim.ci95 is None for claim in ranking.claims)


def test_a_missing_block_is_left_out_of_its_own_pairs_only(tmp_path):
    ranking = made(
        tmp_path, {"default": 1.0, "mine": 1.3, "dlr": 1.2}, absent=(("mine", 2), ("mine", 3))
    )
    for panel in ranking.panels:
        assert (panel.of("mine").n, panel.of("dlr").n) == (4, 6)
        assert panel.of("mine").notes == ("2 of 6 runs missing: not run",)


def test_the_interval_is_t_on_paired_log_ratios(tmp_path):
    campaign, comparison = make(tmp_path, {"default": 1.0, "mine": 1.1}, blocks=4, noise=0.03)
    standing = read(campaign, comparison).panels[0].of("mine")
    by_block: dict[int, dict[str, float]] = {}
    for cell in comparison.cells:
        if cell.op == "seq":
            path = campaign / cell.run_id / "attempt-1" / "summary.json"
            value = json.loads(path.read_text())["whole"][0]["throughput_mb_s"]
            by_block.setdefault(cell.block, {})[cell.controller] = value
    logs = [math.log(pair["mine"] / pair["default"]) for pair in by_block.values()]
    mean = sum(logs) / 4
    half = 3.18245 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 3 / 4)  # t(0.975, 3)
    assert standing.gain is not None
    assert standing.gain.value == pytest.approx(math.exp(mean))
    assert standing.gain.low == pytest.approx(math.exp(mean - half), rel=1e-4)
    assert standing.gain.high == pytest.approx(math.exp(mean + half), rel=1e-4)
