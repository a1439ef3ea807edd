"""Effects and sizes by their definitions, and the runs that count."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from synthetic import write_run

from analysis.core.claims import (
    Claim,
    Evidence,
    Measured,
    NotRun,
    effect,
    evaluate,
    evaluate_all,
    merged,
    size,
    unreachable,
)
from analysis.core.load import load_campaign, table
from analysis.core.report import sentence
from analysis.core.stats import Estimate, amount, mean, ratio, share
from schemas.claim import ClaimResult
from schemas.migrate import current_claim

NOTHING = Evidence(table([]), [])


def claim(estimate: Estimate | None = None, ground: str = "chameleon", **changes: Any) -> Claim:
    """Return a claim of a gain of 45 %, measured as `estimate` on a ground."""
    found = NotRun("nothing") if estimate is None else Measured(estimate, ground, 1.0)
    base: dict[str, Any] = {"id": "x", "figure": "1", "statement": "s", "paper_value": 0.45}
    base |= {"unit": "relative change", "baseline": "default", "compute": lambda evidence: found}
    return Claim(**(base | changes))


def result(estimate: Estimate | None = None, ground: str = "chameleon", **more: Any) -> ClaimResult:
    return evaluate(claim(estimate, ground, **more), NOTHING)


@pytest.mark.parametrize(
    ("estimate", "ground", "expected"),
    [
        (Estimate(0.44, 0.30, 0.58, 3), "chameleon", ("confirmed", "within tolerance")),
        (Estimate(0.44, 0.30, 0.58, 3), "local", ("confirmed", "not comparable")),
        (Estimate(0.44, 0.30, 0.58, 3), "sim", ("confirmed", "not comparable")),
        (Estimate(0.10, 0.05, 0.15, 3), "chameleon", ("confirmed", "smaller")),
        (Estimate(2.25, 2.0, 2.5, 3), "chameleon", ("confirmed", "larger")),
        (Estimate(0.10, -0.05, 0.25, 3), "chameleon", ("inconclusive", "smaller")),
        (Estimate(-0.10, -0.15, -0.05, 3), "chameleon", ("contradicted", "smaller")),
        (Estimate(0.44, math.nan, math.nan, 1), "chameleon", ("inconclusive", "within tolerance")),
    ],
)
def test_effect_and_size_are_two_answers(estimate, ground, expected):
    found = result(estimate, ground)
    assert (found.effect, found.size) == expected
    assert found.reproduced is (expected == ("confirmed", "within tolerance"))


def test_an_upper_bound_that_is_exceeded_is_a_larger_effect():
    """Ursa, section 5.1: HtoC costs at most 20 times as much."""
    costs = {"paper_value": 20.0, "unit": "ratio", "rule": "at_most", "no_effect": 1.0}
    costs |= {"tolerance": 0.0, "machines": False}
    above = result(Estimate(102.0, 80.0, 130.0, 6), "sim", **costs)
    assert (above.effect, above.size, above.reproduced) == ("confirmed", "larger", False)
    below = result(Estimate(5.0, 4.0, 6.0, 6), "sim", **costs)
    assert (below.effect, below.size, below.reproduced) == ("confirmed", "within tolerance", True)


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (Estimate(1.01, 0.96, 1.049, 3), ("confirmed", "within tolerance")),
        (Estimate(1.01, 0.94, 1.08, 3), ("inconclusive", "within tolerance")),
        (Estimate(1.2, 1.1, 1.3, 3), ("contradicted", "larger")),
        (Estimate(1.0, math.nan, math.nan, 1), ("inconclusive", "within tolerance")),
        (ratio([1.0] * 6, [1.0] * 6), ("confirmed", "within tolerance")),
        (ratio([1.0] * 5, [1.0] * 5), ("inconclusive", "within tolerance")),
        (ratio([2.0] * 6, [1.0] * 6), ("contradicted", "larger")),
    ],
)
def test_equality_is_shown_by_the_whole_interval(estimate, expected):
    more = {"paper_value": 1.0, "rule": "within", "tolerance": 0.05, "unit": "ratio"}
    found = result(estimate, "sim", machines=False, **more)
    assert (found.effect, found.size) == expected


ALWAYS = {"paper_value": 1.0, "unit": "share", "kind": "share", "rule": "at_least"}
ALWAYS |= {"no_effect": 0.5, "tolerance": 0.0, "baseline": None}


@pytest.mark.parametrize(
    ("met", "n", "expected"),
    [
        (6, 6, ("confirmed", "within tolerance")),
        (3, 3, ("inconclusive", "within tolerance")),
        (5, 6, ("inconclusive", "smaller")),
        (0, 6, ("contradicted", "smaller")),
        (0, 5, ("inconclusive", "smaller")),
    ],
)
def test_all_or_nothing_statements_need_six_runs(met, n, expected):
    found = result(share([True] * met + [False] * (n - met)), "local", **ALWAYS)
    assert (found.effect, found.size) == expected
    assert found.ci95 is not None and 0 <= found.ci95[0] < found.ci95[1] <= 1
    assert (found.held, found.counted, found.n) == (met, n, n)
    if (met, n) == (6, 6):
        assert found.ci95[0] == pytest.approx(0.54, abs=0.005)


def test_counts_are_decided_by_the_runs_that_have_them():
    """PriorityMeister, figure 11: bySLO meets all SLOs in 5 of the 6 permutations."""
    more = {"paper_value": 5.0, "unit": "permutations of 6", "kind": "count", "rule": "within"}
    more |= {"tolerance": 0.0, "machines": False}
    for counts, expected in (
        ([5.0] * 6, "confirmed"),
        ([5.0] * 5, "inconclusive"),
        ([4.0, 5.0, 4.0, 6.0, 4.0, 4.0, 4.0], "inconclusive"),
        ([4.0] * 6, "contradicted"),
    ):
        assert effect(claim(**more), amount(counts)) == expected, counts


@pytest.mark.parametrize("ground", ["sim", "local+sim"])
def test_simulation_reproduces_nothing_about_machines(ground):
    better, worse = Estimate(0.45, 0.44, 0.46, 9), Estimate(-0.45, -0.46, -0.44, 9)
    for changes in ({}, {"paper_value": None}, {"sized": False}):
        found = result(better, ground, **changes)
        assert (found.effect, found.size) == ("confirmed", "not comparable")
        assert result(worse, ground, **changes).effect == "contradicted"
    assert size(claim(sized=False), better, "local") == "not stated"
    # Pure algorithm results need no machine, not even for a size.
    for changes in ({"sized": False}, {"rule": "at_least"}):
        assert result(better, ground, machines=False, **changes).reproduced
    assert (result(better, ground).note or "").startswith("simulated")


def test_a_claim_without_runs_or_interval_says_why():
    found = result()
    assert (found.effect, found.measured, found.n, found.note) == ("not run", None, 0, "nothing")
    alone = result(mean([0.4]), "local")
    assert (alone.effect, alone.ci95) == ("inconclusive", None)
    assert "single run" in str(alone.note)
    never = evaluate(unreachable("y", "1", "s", "nobody has it", unit="ratio"), NOTHING)
    assert (never.effect, never.unreachable) == ("not run", "nobody has it")


@given(st.floats(-2, 2), st.floats(0.01, 1), st.sampled_from(["local", "chameleon"]))
def test_no_effect_in_the_interval_is_never_a_success(value, half, ground):
    estimate = Estimate(value, value - half, value + half, 3)
    got = result(estimate, ground).effect
    if estimate.low <= 0 <= estimate.high:
        assert got == "inconclusive"
    else:
        assert (got == "contradicted") is (value < 0)


def effects_of(*outcomes_of: Sequence[bool], family: str | None = "one") -> list[str]:
    """Return the effects of claims of one family, each with its outcomes."""
    claims = [
        claim(share(outcomes), **(ALWAYS | {"id": f"x{at}", "family": family}))
        for at, outcomes in enumerate(outcomes_of)
    ]
    return [found.effect for found in evaluate_all(claims, NOTHING)]


def test_claims_of_one_sentence_are_corrected_together():
    """Holm: p = 2/2^n; of two, the smaller needs 0.025, the larger then 0.05."""
    six, seven = [True] * 6, [True] * 7
    assert effects_of(six, six) == ["inconclusive"] * 2
    assert effects_of(six, seven) == ["confirmed"] * 2
    assert effects_of(six, six, family=None) == ["confirmed"] * 2
    # A third hypothesis: the smallest p of 1/64 now needs 0.0167.
    assert effects_of(six, seven, [True, False]) == [
        *("inconclusive", "confirmed", "inconclusive"),
    ]
    assert effects_of(six) == ["confirmed"]


def test_a_statement_has_one_entry_and_the_most_real_ground_decides():
    good, bad = Estimate(0.4, 0.3, 0.5, 5), Estimate(-0.4, -0.5, -0.3, 5)
    found = merged([result(good, "sim"), result(bad, "local"), result(None), result(good, "sim")])
    assert [one.id for one in found] == ["x"]
    (one,) = found
    assert (one.ground, one.effect) == ("local", "contradicted")
    assert [other.ground for other in one.grounds] == ["sim", "sim"]
    assert ClaimResult.model_validate_json(one.model_dump_json()) == one
    (absent,) = merged([result(None), result(None)])
    assert (absent.effect, absent.grounds) == ("not run", [])


GOOD = result(Estimate(0.44, 0.30, 0.58, 3)).model_dump()


@pytest.mark.parametrize(
    "changes",
    [
        {"ci95": (0.44, 0.44)},
        {"ci95": (0.5, 0.6)},
        {"kind": "exact"},
        {"kind": "share"},
        {"kind": "share", "unit": "share", "ci95": (-0.1, 0.6)},
        {"kind": "share", "unit": "share", "ci95": (0.1, 1.05)},
        {"kind": "order", "ci95": (-1.2, 0.5)},
        {"unit": "ratio", "ci95": (-0.1, 0.5)},
        {"effect": "not run"},
        {"measured": None, "ci95": None},
        {"unreachable": "nobody has it"},
        {"effect": "direction"},
        {"baseline": "default Ceph"},
    ],
)
def test_what_cannot_be_is_refused(changes):
    ClaimResult.model_validate(GOOD)
    with pytest.raises(ValidationError):
        ClaimResult.model_validate(GOOD | changes)


def test_a_sentence_has_effect_blocks_and_both_numbers():
    faster = result(ratio([2.0, 1.9, 1.8], [1.0, 1.0, 1.0]).map(lambda one: one - 1))
    assert sentence(faster) == "It holds in all three blocks; 89.8 %, the paper 45.0 %."


@pytest.mark.parametrize(
    ("verdict", "ground", "expected"),
    [
        ("reproduced", "local", ("confirmed", "within tolerance")),
        ("direction", "local", ("confirmed", "not comparable")),
        ("direction", "chameleon", ("confirmed", "larger")),
        ("not reproduced", "local", ("contradicted", "not comparable")),
        ("inconclusive", "sim", ("inconclusive", "not comparable")),
        ("not run", None, ("not run", "not comparable")),
    ],
)
def test_older_files_are_read(verdict, ground, expected):
    older = {"id": "x", "paper": "dlr", "figure": "1", "statement": "s", "paper_value": 0.5}
    older |= {"verdict": verdict, "kind": "about", "tolerance": 0.25, "no_effect": 0.0}
    older |= {"larger": True, "size": True, "unit": "share of the runs", "baseline": "default Ceph"}
    found = {"measured": 0.9, "ci95": (0.4, 1.05), "n": 3} if ground else {}
    none = {"measured": None, "ci95": None, "n": 0}
    one = ClaimResult.model_validate(current_claim(older | none | found | {"ground": ground}))
    assert (one.effect, one.size) == expected
    assert (one.kind, one.rule, one.unit, one.sized, one.stated) == (
        *("share", "about", "share", True, True),
    )
    assert one.baseline == "default-Ceph"
    assert one.ci95 == ((0.4, 1.0) if ground else None)
    assert current_claim(one.model_dump()) == one.model_dump()


def test_the_last_done_attempt_of_a_planned_cell_counts_and_others_are_counted(tmp_path):
    campaign = tmp_path / "dlr-quick"
    parameters = {"op": "seq", "scenario": "none", "controller": "default"}
    write_run(campaign, parameters, 0, 1.0, status="spoiled", attempt=1)
    write_run(campaign, parameters, 0, 2.0, attempt=2)
    write_run(campaign, parameters, 1, 3.0, status="failed")
    broken = write_run(campaign, parameters, 2, 4.0)
    (broken / "run.json").write_text("{")
    attempts = load_campaign(campaign)
    assert [run.summary.whole[0].throughput_mb_s for run in attempts.runs] == [2.0]
    assert (attempts.spoiled, attempts.failed, len(attempts.unreadable)) == (1, 1, 1)
    # A changed controller creates new run ids; the old runs stay in the folder.
    new = write_run(campaign, parameters, 3, 5.0)
    (campaign / "campaign.json").write_text(json.dumps({"cells": [{"run_id": new.parent.name}]}))
    attempts = load_campaign(campaign)
    assert [run.run.run_id for run in attempts.runs] == [new.parent.name]
    assert attempts.outdated > 0
