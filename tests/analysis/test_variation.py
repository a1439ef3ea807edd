"""Sources of variation: known components are found again, and by the analysis of variance too."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import written

from analysis.variation import RunGroup, components_of, separate
from schemas.errors import UserError
from schemas.precision import blocks_for, quantile
from tests.errors import raises
from tests.hotbed.runner import run

SDS = {
    "hot set": 0.10,
    "block": 0.15,
    "controller x hot set": 0.12,
    "cell in block": 0.08,
    "run to run": 0.05,
}
HOT, BLOCKS, REPEATS = 6, 3, 2


def simulated(seed: int, **changes: float) -> pd.DataFrame:
    """Return runs of two controllers, crossed with hot sets and blocks, with known components."""
    draw = np.random.default_rng(seed)
    sds = SDS | changes
    drawn: dict[tuple[object, ...], float] = {}

    def effect(name: str, *level: object) -> float:
        return drawn.setdefault((name, *level), draw.normal(0, sds[name]))

    rows = []
    for c, h, b, r in itertools.product(
        ("default", "dlr"), range(HOT), range(BLOCKS), range(REPEATS)
    ):
        log = 4 + 0.5 * (c == "dlr") + effect("hot set", h) + effect("block", b)
        log += effect("controller x hot set", c, h) + effect("cell in block", c, h, b)
        log += effect("run to run", c, h, b, r)
        rows.append({"controller": c, "hot_set": h, "block": b, "log": log, "speed": math.nan})
    return pd.DataFrame(rows)


def variances(group: RunGroup) -> dict[str, float]:
    return {one.source: one.sd**2 for one in group.sources}


def by_mean_squares(rows: pd.DataFrame) -> dict[str, float]:
    """Return the variances by expected mean squares (balanced runs)."""
    log = rows["log"]

    def squares(*columns: str) -> float:
        means = rows.groupby([*columns])["log"].transform("mean")
        return float(((means - log.mean()) ** 2).sum())

    c, h, b = squares("controller"), squares("hot_set"), squares("block")
    ch, cell = squares("controller", "hot_set"), squares("controller", "hot_set", "block")
    cells = 2 * HOT * BLOCKS
    run_ms = (float(((log - log.mean()) ** 2).sum()) - cell) / (cells * (REPEATS - 1))
    cell_ms = (cell - ch - b) / (cells - 2 * HOT - (BLOCKS - 1))
    ch_ms, h_ms, b_ms = (ch - c - h) / (HOT - 1), h / (HOT - 1), b / (BLOCKS - 1)
    return {
        "hot set": (h_ms - ch_ms) / (2 * BLOCKS * REPEATS),
        "block": (b_ms - cell_ms) / (2 * HOT * REPEATS),
        "controller x hot set": (ch_ms - cell_ms) / (BLOCKS * REPEATS),
        "cell in block": (cell_ms - run_ms) / REPEATS,
        "run to run": run_ms,
    }


def test_balanced_runs_have_the_components_of_the_analysis_of_variance():
    rows = simulated(3)
    expected = by_mean_squares(rows)
    assert min(expected.values()) > 0
    found = variances(components_of(rows, {}, draws=2))
    assert found == pytest.approx(expected, rel=1e-3)


def test_known_components_are_recovered():
    """The mean variance of ten campaigns is that of the simulation, within 30 % of the deviation
    (with six hot sets and three blocks, single campaigns differ by more)."""
    found = [variances(components_of(simulated(seed), {}, draws=1)) for seed in range(10)]
    for name, sd in SDS.items():
        mean = np.mean([one[name] for one in found])
        assert math.sqrt(mean) == pytest.approx(sd, rel=0.3), name


def test_a_component_of_zero_stays_at_zero():
    changes = {"controller x hot set": 0.0, "cell in block": 0.0}
    rows = simulated(5, **changes)
    assert by_mean_squares(rows)["controller x hot set"] < 0
    group = components_of(rows, {}, draws=2)
    assert variances(group)["controller x hot set"] < 1e-6
    assert group.floor is not None
    assert group.floor.sd < 1e-3
    assert not group.dominated
    found = [variances(components_of(simulated(s, **changes), {}, draws=1)) for s in range(5)]
    for name in changes:
        assert math.sqrt(np.mean([one[name] for one in found])) < 0.02


def test_only_what_controllers_do_not_share_counts_in_the_paired_log_ratio():
    group = components_of(simulated(3), {}, draws=6)
    found = variances(group)
    counted = sum(found[name] for name in found if name not in ("hot set", "block"))
    assert group.paired.sd == pytest.approx(math.sqrt(2 * counted))
    assert group.paired.interval[0] < group.paired.sd < group.paired.interval[1]
    assert sum(one.share for one in group.sources) == pytest.approx(1)
    for half, n in group.paired.blocks.items():
        widths = [quantile(k) * group.paired.sd / math.sqrt(k) for k in (n - 1, n)]
        assert widths[0] > math.log1p(float(half)) >= widths[1]


def test_an_interaction_that_dominates_gives_a_floor():
    group = components_of(simulated(3, **{"controller x hot set": 0.4}), {}, draws=2)
    assert group.dominated
    assert group.floor is not None
    assert group.floor.blocks["0.07"] > group.floor.blocks["0.1"] > 2
    assert group.floor.sd < group.paired.sd


def test_the_speed_of_a_core_is_a_source_of_its_own():
    rows = simulated(3, **dict.fromkeys(SDS, 0.05))
    speed = np.random.default_rng(1).normal(0, 0.3, len(rows))
    slower = rows.assign(log=rows["log"] + 0.8 * speed, speed=100 * np.exp(speed))
    group = components_of(slower, {}, draws=2)
    found, without = variances(group), variances(components_of(rows, {}, draws=2))
    assert math.sqrt(found["core speed"]) == pytest.approx(0.8 * speed.std(ddof=1), rel=0.1)
    assert found["run to run"] == pytest.approx(without["run to run"], rel=0.2)
    paired = next(one.paired_sd for one in group.sources if one.source == "core speed")
    assert paired == pytest.approx(0.8 * math.sqrt(2) * speed.std(ddof=1), rel=0.15)


def test_equal_repeats_have_no_variation_from_run_to_run():
    rows = simulated(3, **{"run to run": 0.0})
    group = components_of(rows, {}, draws=2)
    found = variances(group)
    assert found["run to run"] == 0.0
    assert group.runs == len(rows)
    assert math.sqrt(found["cell in block"]) == pytest.approx(0.08, rel=0.4)


@pytest.mark.parametrize("deviation", [0.0, 0.05, 0.15, 0.32, 1.0])
def test_blocks_suffice_and_one_less_does_not(deviation):
    half = math.log1p(0.1)
    n = blocks_for(deviation, half)
    assert quantile(n) * deviation / math.sqrt(n) <= half
    if n > 2:
        assert quantile(n - 1) * deviation / math.sqrt(n - 1) > half


def campaign(artifacts: Path, runs: pd.DataFrame, **more: object) -> None:
    for at, row in runs.iterrows():
        parameters = {"op": "rand", "controller": row["controller"], "hot_set": row["hot_set"]}
        metrics = {"speedy": math.exp(row["log"])}
        written(
            artifacts / "dlr-mine", row["block"], "dlr", parameters | more, metrics, name=str(at)
        )


@pytest.fixture
def few_draws(monkeypatch):
    """Let the bootstrap draw twice, where a test is not about its interval."""
    monkeypatch.setattr("analysis.variation.components_of", partial(components_of, draws=2))


def test_a_campaigns_groups_are_written_next_to_its_runs(tmp_path, few_draws):
    runs = simulated(3)
    campaign(tmp_path, runs[runs["hot_set"] < 2], duration_s=100)
    campaign(tmp_path, runs[runs["block"] == 0], duration_s=200)
    found = separate(tmp_path, "dlr-mine", "speedy")
    (group,) = found.groups
    assert group.parameters == {"duration_s": 100}
    assert group.controllers == ("default", "dlr")
    assert list(found.left_out) == ["duration_s=200"]
    kept = json.loads((tmp_path / "dlr-mine" / "variation-speedy.json").read_text())
    assert kept["groups"][0]["paired"]["sd"] == group.paired.sd
    assert kept["groups"][0]["sources"][0]["source"] == "hot set"


def test_what_cannot_be_separated_is_refused(tmp_path):
    with raises(UserError, "no such campaign"):
        separate(tmp_path, "dlr-none", "speedy")
    campaign(tmp_path, simulated(3).head(3))
    with raises(UserError, "fewer than 2 controllers", do="dlr-variation"):
        separate(tmp_path, "dlr-mine", "speedy")
    with raises(UserError, "throughput_mb_s", allowed="speedy"):
        separate(tmp_path, "dlr-mine", "throughput_mb_s")


def test_the_command_prints_every_source(tmp_path, capsys, few_draws):
    campaign(tmp_path, simulated(3))
    words = ("variation", "dlr-mine", "--metric", "speedy", "--artifacts", tmp_path)
    code, text, _ = run(capsys, *words)
    assert code == 0
    for source in SDS:
        assert source in text
    code, _, error = run(capsys, "variation", "dlr-none", "--artifacts", tmp_path)
    assert code == 2
    assert "dlr-none" in error
