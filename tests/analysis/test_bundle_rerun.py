"""Rerun compared with its bundle: same to the bit, same within the interval, or contradicted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

from analysis.bundle.rerun import (
    ClaimAgain,
    RerunComparison,
    compare,
    independent,
    shares_runs,
)
from analysis.core.report import format_change
from analysis.core.stats import Estimate
from schemas.claim import ClaimResult
from schemas.comparison import Comparison, PlannedCell

pytestmark = pytest.mark.slow  # the paper's claims take seconds to import

BASE = (100.0, 101.0, 102.0)
BUNDLED = (125.0, 126.0, 127.0)
NEAR = (126.0, 125.7, 127.3)  # a little more or less, not the same way in every block
WORSE = (80.0, 81.0, 82.0)


def measured(folder: Path, treated: tuple[float, ...], *, ground: str = "local") -> Path:
    """Write a block per value: DLR and default Ceph, heterogeneity, sequential reads."""
    for block, values in enumerate(zip(BASE, treated, strict=True)):
        for controller, value in zip(("default", "dlr"), values, strict=True):
            parameters = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            write_run(folder, parameters, block, value, ground=ground)
    return folder


def outcomes(made: RerunComparison) -> dict[str, str]:
    return {one.id: one.outcome for one in made.claims if one.outcome != "not run"}


def copied(tmp_path: Path) -> tuple[Path, Path]:
    """Return simulated runs, and a copy of them."""
    bundled = measured(tmp_path / "a" / "dlr-tiny", BUNDLED, ground="sim")
    return bundled, shutil.copytree(bundled, tmp_path / "b" / "dlr-tiny")


def test_a_copy_is_identical_and_is_no_run_again(tmp_path):
    bundled, again = copied(tmp_path)
    made = compare(bundled, again, exact=True)
    assert (made.matched, made.identical, made.ok) == (6, 6, True)
    assert set(outcomes(made).values()) == {"identical"}
    assert "6 cells of the bundle were run again, 6 with" in made.sentence
    assert shares_runs(bundled, again)
    for record in again.glob("*/attempt-1/run.json"):
        body = json.loads(record.read_text())
        record.write_text(json.dumps(body | {"started_at": "2026-02-02T00:00:00+00:00"}))
    assert not shares_runs(bundled, again)
    assert not shares_runs(bundled, tmp_path / "nowhere")


def test_simulated_results_agree_to_the_last_digit(tmp_path):
    bundled, again = copied(tmp_path)
    summary, other, third = sorted(again.glob("*/attempt-1/summary.json"))[:3]
    body = json.loads(summary.read_text())
    body["whole"][0]["throughput_mb_s"] *= 1 + 2**-50
    summary.write_text(json.dumps(body))
    other.with_name("journal.jsonl").write_text('{"header": true, "other": 1}\n')
    third.with_name("requests.parquet").write_bytes(b"damaged")
    made = compare(bundled, again, exact=True)
    assert (made.matched, made.identical, made.ok) == (6, 3, False)
    places = {one.file.rpartition(" ")[2]: one for one in made.differing}
    assert places.keys() == {"summary.json", "journal.jsonl", "requests.parquet"}
    assert places["summary.json"].derived == "last digits differ"
    assert summary.parent.parent.name in places["summary.json"].file
    assert compare(bundled, again, exact=False).ok


def test_noise_agrees_and_the_other_way_contradicts(tmp_path):
    bundled = measured(tmp_path / "a" / "dlr-tiny", BUNDLED)
    again = measured(tmp_path / "b" / "dlr-tiny", NEAR)
    made = compare(bundled, again, exact=False)
    assert made.ok
    assert made.identical == 3  # default Ceph's runs
    found = {one.id: one for one in made.claims}["dlr-heterogeneity-seq-throughput"]
    assert found.outcome == "agrees"
    assert found.paired
    assert found.change == "ratio"
    assert found.estimate is not None
    assert found.estimate.low < 1 < found.estimate.high
    assert found.estimate.n == 3
    made = compare(bundled, measured(tmp_path / "c" / "dlr-tiny", WORSE), exact=False)
    found = {one.id: one for one in made.claims}["dlr-heterogeneity-seq-throughput"]
    assert found.outcome == "differs"
    assert not found.same_result
    assert not made.ok


def test_only_cells_that_both_have_count(tmp_path):
    bundled = measured(tmp_path / "a" / "dlr-tiny", BUNDLED)
    again = measured(tmp_path / "b" / "dlr-tiny", BUNDLED)
    for folder in sorted(again.glob("*"))[:2]:
        shutil.rmtree(folder)
    made = compare(bundled, again, exact=False)
    assert made.matched == made.identical == 4
    other = {"op": "seq", "scenario": "none", "controller": "default"}
    write_run(tmp_path / "c" / "dlr-tiny", other, 0, 240.0)
    nothing = compare(bundled, tmp_path / "c" / "dlr-tiny", exact=False)
    assert not nothing.ok
    assert not nothing.held
    assert "no cell of the bundle was run again" in nothing.sentence


def test_without_a_claim_nothing_is_held_against_the_bundle(tmp_path):
    """These cells feed no claim, and real machines never repeat results to the bit."""
    for place, speed in (("a", 100.0), ("b", 250.0)):
        for block in range(3):
            cell = {"op": "write", "scenario": "none", "controller": "dlr-pg"}
            write_run(tmp_path / place / "dlr-tiny", cell, block, speed + block)
    made = compare(tmp_path / "a" / "dlr-tiny", tmp_path / "b" / "dlr-tiny", exact=False)
    assert made.matched == 3
    assert not outcomes(made)
    assert (made.ok, made.held, made.contradicted) == (False, False, False)
    assert "no claim is of these cells" in made.sentence


def test_a_single_block_holds_nothing_against_the_bundle(tmp_path):
    folders = [tmp_path / name / "dlr-tiny" for name in "ab"]
    for folder, speed in zip(folders, (BUNDLED[0], WORSE[0]), strict=True):
        for controller, value in (("default", BASE[0]), ("dlr", speed)):
            cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            write_run(folder, cell, 0, value)
    found = compare(*folders, exact=False)
    # Made-up runs always take a controller the same time, to the bit.
    noisy = tuple(one for one in found.claims if one.outcome != "identical")
    made = replace(found, claims=noisy)
    assert "one run" in outcomes(made).values()
    assert (made.ok, made.held, made.contradicted) == (False, False, False)
    assert "as no claim has an interval on both sides" in made.sentence


def ranked(folder: Path) -> None:
    """Mark the runs as a comparison."""
    cells = []
    for record in sorted(folder.glob("*/attempt-1/run.json")):
        run = json.loads(record.read_text())
        known = {key: run["parameters"][key] for key in ("controller", "scenario", "op")}
        cells.append(PlannedCell(run_id=run["run_id"], block=run["block"], **known))
    comparison = Comparison(
        ground="local",
        testbed="x",
        baseline="default",
        controllers=("default", "dlr"),
        scenarios=("heterogeneity",),
        ops=("seq",),
        blocks=len(BASE),
        seed=1,
        time_scale=1 / 6,
        cells=tuple(cells),
    )
    (folder / "comparison.json").write_text(comparison.model_dump_json())


@pytest.mark.parametrize(("values", "ok"), [(BUNDLED, True), (WORSE, False)])
def test_a_comparison_has_claims_of_its_own(tmp_path, values, ok):
    bundled = measured(tmp_path / "a" / "compare-local", BUNDLED)
    ranked(bundled)
    again = measured(tmp_path / "b" / "compare-local", values)
    # Another spec, for example, gives the same cells other names.
    for folder in sorted(again.glob("*")):
        record = folder / "attempt-1" / "run.json"
        body = json.loads(record.read_text()) | {"run_id": f"new{folder.name}"}
        record.write_text(json.dumps(body))
        folder.rename(folder.with_name(f"new{folder.name}"))
    made = compare(bundled, again, exact=False)
    assert made.matched == 6
    assert "compare-dlr-heterogeneity-seq-throughput" in outcomes(made)
    assert made.ok is ok


def claim(measured: float, low: float, high: float, unit: str, **more: Any) -> ClaimResult:
    """Return a claim's result without a paper value; `more` sets other fields."""
    fields = {
        "id": "x",
        "paper": "dlr",
        "figure": "1",
        "statement": "x",
        "paper_value": None,
        "measured": measured,
        "ci95": (low, high),
        "n": 3,
        "ground": "local",
        "effect": "confirmed",
        "size": "not stated",
        "stated": False,
        "rule": "about",
        "kind": "seconds" if unit == "s" else "ratio",
        "baseline": "other",
        "tolerance": 0.25,
        "unit": unit,
    }
    return ClaimResult.model_validate(fields | more)


def test_claims_without_blocks_are_compared_by_their_intervals():
    found = independent(claim(2, 1, 4, "ratio"), claim(4, 2, 8, "ratio"))
    assert found is not None
    # Each interval spans a factor of two either way; combined, 2 to the power of sqrt(2).
    assert found.value == pytest.approx(2)
    assert found.low == pytest.approx(2 * 2 ** -(2**0.5))
    assert found.high == pytest.approx(2 * 2 ** (2**0.5))
    found = independent(claim(1, 0, 4, "s"), claim(3, -1, 7, "s"))
    assert found is not None
    assert (found.value, found.low, found.high) == (2, 2 - 5, pytest.approx(2 + 17**0.5))
    crossing = claim(1, 0, 3, "ratio")  # it has no logarithm
    assert independent(crossing, claim(1, 0.5, 2, "ratio")) is None


def again(then: ClaimResult, now: ClaimResult, low: float, high: float) -> ClaimAgain:
    """Return a claim about a ratio that changed by `low` to `high`."""
    change = Estimate((low + high) / 2, low, high, 3)
    return ClaimAgain("x", "1", "x", "ratio", then, now, "ratio", change, paired=True)


@pytest.mark.parametrize(
    ("then", "now", "moved", "contradicts"),
    [
        # A larger value is no contradiction, however wide its interval is.
        ((3.0, 2.0, 4.0, "confirmed"), (4.0, 0.5, 30.0, "inconclusive"), (1.1, 1.4), False),
        ((3.0, 2.0, 4.0, "confirmed"), (1.1, 0.9, 1.3, "inconclusive"), (0.3, 0.5), True),
        ((3.0, 2.0, 4.0, "confirmed"), (0.8, 0.7, 0.9, "contradicted"), (0.2, 0.4), True),
        ((1.2, 0.8, 1.6, "inconclusive"), (2.0, 1.5, 2.5, "confirmed"), (1.4, 2.0), False),
        ((3.0, 2.0, 4.0, "confirmed"), (1.5, 1.2, 1.8, "confirmed"), (0.4, 0.6), False),
        ((3.0, 2.0, 4.0, "confirmed"), (1.1, 0.9, 1.3, "inconclusive"), (0.3, 1.1), False),
    ],
)
def test_a_contradiction_is_another_value_and_another_result(then, now, moved, contradicts):
    sides = [claim(*each[:3], "ratio", effect=each[3], no_effect=1.0) for each in (then, now)]
    assert again(sides[0], sides[1], *moved).contradicts is contradicts


def test_an_equality_is_contradicted_by_what_is_farther_from_it():
    def within(value: float, effect: str) -> ClaimResult:
        stated = {"rule": "within", "paper_value": 1.0, "no_effect": 1.0, "effect": effect}
        return claim(value, value - 0.3, value + 0.3, "ratio", **stated)

    assert again(within(1.0, "confirmed"), within(1.2, "inconclusive"), 1.1, 1.3).contradicts
    assert not again(within(1.3, "contradicted"), within(1.1, "inconclusive"), 0.7, 0.9).contradicts


def test_a_change_is_written_with_its_sign_and_unit():
    assert format_change(1.4395, "ratio") == "1.44x"
    assert format_change(0.0367, "share") == "+3.7 points"
    assert format_change(-0.062, "relative loss") == "-6.2 points"
    assert format_change(12.5, "ms") == "+12.50 ms"
