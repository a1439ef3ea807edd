"""The algebra of evidence against an independent computation, block by block."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.core.claims import Compute, Evidence, Measured, NotRun
from analysis.core.evidence import (
    Choice,
    Pair,
    Rows,
    ShareOf,
    ends,
    extreme,
    extreme_over,
    mean_of,
    mean_over,
)

positive = st.floats(0.1, 100)
SIZES = (1.0, 2.0, 4.0)


def of(controller: str) -> Rows:
    return lambda table: table[table["controller"] == controller]


def table_of(values: dict[tuple[str, float, int], float]) -> pd.DataFrame:
    """Return runs: their speed by controller, size and seed."""
    rows = [
        {"controller": c, "size": size, "seed": seed, "speed": speed, "ground": "local"}
        for (c, size, seed), speed in values.items()
    ]
    columns = ["controller", "size", "seed", "speed", "ground"]
    return pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=1)


def measured(compute: Compute, table: pd.DataFrame) -> Measured:
    found = compute(Evidence(table, ()))
    assert isinstance(found, Measured)
    return found


PAIR = Pair(of("new"), of("old"), "speed", "no block has both")
BY_SIZE = Pair(of("new"), of("old"), "speed", "none", keys=("seed", "size"), cluster="seed")

tables = st.dictionaries(
    st.tuples(st.sampled_from(("new", "old")), st.sampled_from(SIZES), st.integers(0, 5)),
    positive,
    max_size=30,
).map(table_of)


def ratios(table: pd.DataFrame, size: float) -> dict[int, float]:
    """Return new/old by seed at a size."""
    speeds = {(r.controller, r.size, r.seed): r.speed for r in table.itertuples()}
    return {
        seed: speeds["new", size, seed] / speeds["old", size, seed]
        for seed in range(6)
        if ("new", size, seed) in speeds and ("old", size, seed) in speeds
    }


def geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


@given(tables)
@settings(deadline=None)
def test_a_pair_is_the_geometric_mean_over_blocks_that_have_both(table):
    here = table[table["size"] == 2]
    found, expected = PAIR(Evidence(here, ())), ratios(table, 2.0)
    if not expected:
        assert found == NotRun("no block has both")
        return
    assert isinstance(found, Measured)
    assert found.estimate.value == pytest.approx(geometric(list(expected.values())))
    assert (found.estimate.n, found.ground, found.time_scale) == (len(expected), "local", 1.0)
    gain = Pair(of("new"), of("old"), "speed", "", function=lambda ratio: 1 - ratio)
    assert measured(gain, here).estimate.value == pytest.approx(1 - found.estimate.value)


@given(tables)
@settings(deadline=None)
def test_the_extremes_enclose_every_size_and_widen_the_interval(table):
    by_size = {size: ratios(table, size) for size in SIZES}
    there = {size: geometric(list(found.values())) for size, found in by_size.items() if found}
    shared = sum(
        {"new", "old"} <= set(table[table["size"] == size]["controller"]) for size in SIZES
    )
    if not there:
        assert isinstance(extreme_over(PAIR, "size", "least")(Evidence(table, ())), NotRun)
        return
    choose: dict[Choice, Callable[[dict[float, float]], float]] = {
        "least": lambda one: min(one.values()),
        "largest": lambda one: max(one.values()),
        "farthest": lambda one: max(one.values(), key=lambda value: abs(math.log(value))),
    }
    for which, expected in choose.items():
        found = measured(extreme_over(PAIR, "size", which), table).estimate
        assert found.value == pytest.approx(expected(there))
        size = next(s for s, value in there.items() if value == pytest.approx(found.value))
        alone = measured(PAIR, table[table["size"] == size]).estimate
        if alone.n > 1 and shared > 1 and alone.low < alone.high:
            assert found.n != alone.n or found.high - found.low > alone.high - alone.low


@given(tables)
@settings(deadline=None)
def test_pairs_of_one_block_count_once(table):
    blocks: dict[int, list[float]] = {}
    for size in SIZES:
        for seed, ratio in ratios(table, size).items():
            blocks.setdefault(seed, []).append(ratio)
    found = mean_over(BY_SIZE, "size")(Evidence(table, ()))
    if not blocks:
        assert isinstance(found, NotRun)
        return
    assert isinstance(found, Measured)
    assert found.estimate.n == len(blocks)
    expected = geometric([geometric(block) for block in blocks.values()])
    assert found.estimate.value == pytest.approx(expected)


RUNS = table_of(
    {
        ("new", size, seed): speed
        for size, speeds in ((1.0, (10, 20)), (2.0, (20, 20)), (4.0, (40, 10)))
        for seed, speed in enumerate(speeds)
    }
)


@pytest.mark.parametrize(
    ("compute", "value", "n"),
    [
        (ends(of("new"), "size", "speed", ""), math.sqrt(4 * 0.5), 2),
        (ends(of("new"), "size", "speed", "", before=True), math.sqrt(2 * 0.5), 2),
        (ends(of("new"), "size", "speed", "", wanted=lambda size: size < 4), math.sqrt(2 * 1), 2),
        (mean_of(of("new"), "speed", "", factor=2), 40, 6),
        (mean_of(of("new"), "speed", "", blocks=True), (70 / 3 + 50 / 3) / 2, 2),
        (mean_of(of("new"), "speed", "", logarithmic=True), (10 * 20**3 * 40 * 10) ** (1 / 6), 6),
        (ShareOf(of("new"), lambda rows: rows["speed"] >= 20, ""), 4 / 6, 6),
    ],
)
def test_numbers_of_one_set_of_runs(compute, value, n):
    found = measured(compute, RUNS).estimate
    assert (found.value, found.n) == (pytest.approx(value), n)


def test_the_extreme_of_options_needs_all_of_them_only_if_asked():
    known = Pair(of("new"), of("new"), "speed", "", keys=("seed", "size"))
    options: list[tuple[str, Any]] = [("known", known), ("missing", PAIR)]
    assert measured(extreme(options, "largest"), RUNS).estimate.value == 1
    asked = extreme(options, "largest", complete=True)(Evidence(RUNS, ()))
    assert asked == NotRun("no block has both")
