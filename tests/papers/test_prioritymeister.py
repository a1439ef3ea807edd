"""PriorityMeister's claims, figures and tables on runs with known values.

Tests name the section, figure or table of the paper that they hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.core import style
from analysis.core.claims import Claim, Evidence, NotRun, evaluate
from analysis.core.evidence import quotient
from analysis.core.load import LoadedRun
from analysis.core.report import build
from analysis.papers.prioritymeister import FIGURES, LOCAL_FIGURES, PARTS, figures
from analysis.papers.prioritymeister.claims import CAUSES, CLAIMS, LOCAL_CLAIMS
from analysis.papers.prioritymeister.figures import bound_tables, causes, known_percent
from analysis.papers.prioritymeister.runs import (
    at_k,
    bootstrap,
    cells,
    highest,
    latency,
    met,
    settings,
    settings_met,
    table,
    unproven,
    unproven_text,
    varied,
    waiting,
)
from analysis.papers.prioritymeister.statements import OPEN, STATEMENTS, TAIL_LOCAL
from schemas.cells.prioritymeister import PM, PmCell
from schemas.claim import ClaimResult
from schemas.errors import UserError
from schemas.run import Summary
from tests.errors import raises
from tests.papers import prioritymeister_runs as made_up
from tests.papers.prioritymeister_runs import all_runs, as_in_the_paper, extra_of, run_of, why_runs

OF_FIGURES = (
    *(claim for claim in CLAIMS if claim not in CAUSES),
    *(claim for claim in STATEMENTS if claim.unreachable is None and claim not in OPEN),
)
KEPT = {"late_s": 2e-4, "behind_s": 0.01, "allowed_s": 0.02, "network_kept": 1.0, "unanswered": 0.0}


def evidence_of(*runs: LoadedRun) -> Evidence:
    return Evidence(table(runs), runs)


def simulated(block: int = 0, ground: str = "sim", **cell: object) -> LoadedRun:
    """Return a run of the scenario `disk`, with other values of its cell if given."""
    found = PM.of(**{"scenario": "disk", **cell})
    return run_of(found, block, extra_of(found, block, as_in_the_paper), ground)


def with_extra(run: LoadedRun, extra: Mapping[str, float]) -> LoadedRun:
    summary = Summary.model_validate({**run.summary.model_dump(), "extra": extra})
    return replace(run, summary=summary)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return evidence_of(*all_runs())


@pytest.fixture(scope="module")
def results() -> dict[str, ClaimResult]:
    """Return the results of six blocks, the fewest that decide an all-or-nothing claim."""
    six = evidence_of(*all_runs(blocks=6))
    return {claim.id: evaluate(claim, six) for claim in OF_FIGURES}


# Claims.


@pytest.mark.slow
def test_runs_as_in_the_paper_support_every_claim(results: dict[str, ClaimResult]) -> None:
    """Section 6: sizes of simulated runs are compared only if an algorithm alone decides."""
    algorithm = {claim.id for claim in OF_FIGURES if not claim.machines}
    for name, result in results.items():
        assert result.effect == "confirmed", (name, result)
        assert (result.size == "not comparable") is (name not in algorithm), name
    assert algorithm >= {"pm-bounds", "pm-table2"}
    for name, value in {
        "pm-orders-byslo": 5.0,
        "pm-orders-more-cake": 1.0,
        "pm-cake-96-balanced": 0.05,
        "pm-cake-grows-sharp": 0.045,
        "pm-only-edf": 1.0,
        "pm-levels-one-measured": 1.0,
    }.items():
        assert results[name].measured == pytest.approx(value), name
    assert {result.n for result in results.values()} == {6}
    assert "in 6 of 6 blocks" in (results["pm-all-slos"].note or "")
    assert "means 1 and 0" in (results["pm-only-edf"].note or "")
    assert (results["pm-throughput"].note or "").startswith("PM in 6 of 6 blocks, ps in 6")


@pytest.mark.slow
def test_the_opposite_is_contradicted_and_nothing_is_not_run() -> None:
    worse = evidence_of(*all_runs(lambda cell, _: 0.9 if cell.policy == "pm" else 1.0, blocks=6))
    found = {claim.id: evaluate(claim, worse).effect for claim in CLAIMS}
    for name in ("pm-all-slos", "pm-only-cake", "pm-contained", "pm-orders", "pm-settings-edf"):
        assert found[name] == "contradicted", name
    assert all(isinstance(claim.compute(evidence_of()), NotRun) for claim in CLAIMS)


@pytest.mark.slow
def test_an_slo_is_met_by_its_share_of_requests(evidence: Evidence) -> None:
    """Section 5.2."""
    rows = latency(cells(evidence.table, "disk", "cake", k=2.0))
    b = rows["workload"] == "B"
    assert met(rows, 99.0).all()
    assert not met(rows[b], 99.9).any()
    assert met(rows[~b], 99.9).all()


@pytest.mark.slow
def test_policies_that_ignore_k_are_compared_with_every_k(evidence: Evidence) -> None:
    """Figure 5, with k swept."""
    found = settings(evidence.table)
    assert set(found[found["variant"] == "byslo"]["k"]) == {1.25, 1.5, 2.0, 3.0, 5.0}
    for policy, share in (("pm", 1.0), ("none", 0.0)):
        assert set(settings_met(policy)(evidence.table)["value"]) == {share}
    rows = latency(cells(evidence.table, "disk", "ps", k=2.0))
    loose = at_k(rows, 20.0)
    assert (loose["within"] == 1.0).all()
    assert loose["slo_s"].tolist() == pytest.approx((10 * rows["slo_s"]).tolist())


@pytest.mark.slow
def test_suspected_causes_are_compared_with_a_figures_own_cells(tmp_path: Path) -> None:
    """Figures 7, 9, 10 and 11 (the campaign `pm-why`)."""

    def within(cell: PmCell, workload: str) -> float:
        if cell.scenario == "burst":
            missed = {"balanced": 0.01, "sharp": 0.01 * cell.sharpness}[cell.gaps]
            return 1 - missed / cell.k * (0.5 if cell.copy_kib == 64 else 1.0)
        provable = cell.k >= 2 or cell.slo_percentile == 100
        if cell.policy == "pm":
            return 1.0 if provable else 0.9
        return 0.9 if cell.policy == "byslo" or not provable else 1.0

    runs = why_runs(within)
    found = {claim.id: evaluate(claim, evidence_of(*runs)) for claim in CAUSES}
    for name, value in {
        "orders-k": 1.0,
        "orders-k-edf": 0.5,
        "orders-longest-byslo": 1.0,
        "network-k5": 1.0,
        "estimator-0.2": 0.5,
        "low-copy": 0.0025,
        "low-k": 0.0025,
        "high-sharp10-cake": 0.045,
    }.items():
        assert found[f"pm-why-{name}"].measured == pytest.approx(value, rel=0.05), name
    assert (found["pm-why-orders-k"].held, found["pm-why-orders-k"].counted) == (2, 2)
    assert found["pm-why-orders-copy"].effect == "inconclusive"
    assert {one.n for one in found.values()} == {2}
    permuted = [run for run in runs if run.run.parameters.get("permutation")]
    with style.recorded(pdf=False) as shown:
        style.save(causes(evidence_of(*permuted)), tmp_path, "why")
    assert len([panel for panel in shown["why"] if "lines" in panel]) == 1


def stating(name: str, good: bool, block: int) -> LoadedRun:
    """Return a block's run that supports a claim, or contradicts it if not `good`."""
    paper = (as_in_the_paper, lambda *_: 0.98 if name == "cake-96-balanced" else 0.5)
    found: dict[str, object] = {"scenario": "disk", "slos": "A=400ms B=500ms C=300ms"}
    if name in ("low-burst-cake", "burst-periods", "before-reacting"):
        workload = "F" if name == "low-burst-cake" else "B"
        found = {"scenario": "burst", "policy": "cake", "burst": workload}
    elif name == "cake-96-balanced":
        found = {"scenario": "burst", "policy": "cake", "burst": "H"}
    elif name == "tail-only-ps":
        found = {
            "scenario": "network",
            "policy": "ps",
            "slos": "C=2000ms I=2000ms J=2000ms K=100ms",
        }
    elif name == "tight":
        found = {"scenario": "disk"}
    cell = PM.of(**found)
    extra = extra_of(cell, block, paper[not good])
    if name == "disk-bottleneck" and not good:
        extra["utilisation s0->switch"] = 0.95
    if name == "tight" and not good:  # A, the first, has no others to wait for
        extra |= {f"{workload}_bound_ratio": 0.6 for workload in "BC"}
    if name == "p9999":
        extra |= {key: 1e5 for key in extra if key.endswith("_requests")}
        extra |= {key: 1.0 for key in extra if good and key.endswith("_within")}
    run = run_of(cell, block, extra, "sim")
    if name in ("burst-periods", "before-reacting") and not good:
        run.kept.update(made_up.over_time(cell.seconds, 5.0 + 0.1 * block))
    return run


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        *("low-burst-cake", "burst-periods", "before-reacting", "disk-bottleneck"),
        *("tail-only-ps", "tight", "p9999", "cake-96-balanced"),
    ],
)
def test_runs_decide_each_further_statement(name: str, good: bool) -> None:
    """Traces that stay below a bound do not show that no arrivals reach it (section 4.4)."""
    (claim,) = (one for one in (*CLAIMS, *STATEMENTS) if one.id == f"pm-{name}")
    result = evaluate(claim, evidence_of(*(stating(name, good, block) for block in range(6))))
    opposite = ("not run", 0) if name == "tight" else ("contradicted", 6)
    assert (result.effect, result.n) == (("confirmed", 6) if good else opposite)


def test_workloads_wait_for_one_without_a_proven_bound() -> None:
    """B, the first, misbehaves (figure 4)."""
    run = simulated(scenario="buckets", misbehaves=True)
    extra = {key: value for key, value in run.summary.extra.items() if key != "B_bound_ratio"}
    assert set(waiting(table([with_extra(run, extra)]))["workload"]) == {"A", "C"}


def test_statements_that_no_cell_shows_are_not_run() -> None:
    runs = evidence_of(*(simulated(block, slos="A=400ms B=500ms C=300ms") for block in range(2)))
    found = [evaluate(claim, runs) for claim in OPEN]
    assert {one.effect for one in found} == {"not run"}
    assert all(one.note and one.unreachable is None for one in found)


# Selection of runs.


def test_the_longest_traces_of_a_scenario_feed_its_figures() -> None:
    short, long = simulated(seconds=300), simulated(seconds=600)
    found = table([short, long])
    assert set(found["seconds"]) == {300, 600}
    assert set(found[found["usual"]]["seconds"]) == {600}
    both = table([short, long, simulated(scenario="misbehave", seconds=300)])
    assert set(both[both["usual"]]["scenario"]) == {"disk", "misbehave"}
    why = simulated(seconds=1000)
    why = replace(why, run=why.run.model_copy(update={"campaign": "pm-why"}))
    assert set(cells(table([short, why]), "disk", "pm", k=2.0)["seconds"]) == {300}


@pytest.mark.parametrize("other", [{"depth": 4}, {"counted": "whole"}, {"slo_percentile": 100.0}])
def test_runs_with_unusual_parameters_feed_no_figure(other: dict[str, float]) -> None:
    runs = [simulated(), simulated(**other)]
    found = table(runs)
    assert found["run_id"].nunique() == 2
    assert set(cells(found, "disk", "pm", k=2.0)["run_id"]) == {runs[0].run.run_id}
    at = {"k": 2.0, "seconds": 600.0}
    assert set(varied(found, "disk", "pm", **at, **other)["run_id"]) == {runs[1].run.run_id}


@pytest.mark.slow
def test_grounds_are_never_pooled_and_a_ground_may_have_its_own_k(evidence: Evidence) -> None:
    modelled, measured = PARTS
    assert all(modelled.takes(run.run) and not measured.takes(run.run) for run in evidence.runs)
    slos = "A=70ms B=90ms C=50ms"
    runs = [simulated(b, "local", policy=p, slos=slos) for p in ("pm", "cake") for b in range(2)]
    found = {one.id: evaluate(one, evidence_of(*runs)) for one in LOCAL_CLAIMS}
    assert found["pm-only-cake"].measured == pytest.approx(1.0)
    assert found["pm-only-cake"].ground == "local"


def test_the_copys_requests_are_a_declared_choice() -> None:
    """Workload L: the paper does not give the size of its requests."""

    def copied(size: int) -> LoadedRun:
        return simulated(policy="none", copy_kib=size)

    both = table([copied(64), copied(1024)])
    assert set(cells(both, "disk", "none", k=2)["copy_kib"]) == {1024}
    assert set(cells(both, "disk", "none", k=2, copy_kib=64)["copy_kib"]) == {64}
    assert set(cells(table([copied(64)]), "disk", "none", k=2)["copy_kib"]) == {64}


def test_runs_with_given_slos_are_apart_from_those_of_the_rule() -> None:
    """Section 5.2."""
    given = simulated(slos="A=400ms B=500ms C=300ms", seconds=300)
    found = table([given, simulated()])
    assert set(cells(found, "disk", "pm", given=True)["run_id"]) == {given.run.run_id}
    assert set(cells(found, "disk", "pm", k=2)["seconds"]) == {600}


def test_on_machines_the_highest_percentile_with_ten_requests_beyond_counts() -> None:
    """Section 5.2: meeting an SLO at a percentile."""
    requests = pd.Series([99.0, 100, 999, 1000, 9_999, 10_000])
    assert highest(requests).tolist() == [50, 90, 95, 99, 99, 99.9]
    rows = pd.DataFrame({"requests": 1800.0, "within": [0.991, 0.989], "ground": "local"})
    assert met(rows, 99.9).tolist() == [True, False]
    assert met(rows.assign(ground="sim"), 99.9).tolist() == [False, False]


# Proven bounds (section 4.4).


def live(
    kept: Mapping[str, float], block: int = 0, ratio: float | None = 0.5, **more: object
) -> LoadedRun:
    """Return a run of pm on a testbed, with the values `kept` for workload A."""
    cell = {"k": 3.0, "slo_percentile": 95, "seconds": 180, **more}
    run = simulated(block, "local", **cell)
    extra = {k: v for k, v in run.summary.extra.items() if not k.endswith("_bound_ratio")}
    extra |= {"A_bound_s": 0.1, "A_bound_blocking_s": 0.1}
    extra |= {f"A_{name}": value for name, value in kept.items()}
    return with_extra(run, extra if ratio is None else extra | {"A_bound_ratio": ratio})


def bounds() -> Claim:
    return next(one for one in LOCAL_CLAIMS if one.id == "pm-bounds")


def rows_of_a(*runs: LoadedRun) -> list[dict[str, str]]:
    (made,) = bound_tables(table(runs))
    return [row for row in made.as_json() if row["workload"] == "A"]


@pytest.mark.slow
def test_a_broken_bound_shows_loudly(evidence: Evidence) -> None:
    runs = list(evidence.runs)
    index = next(i for i, run in enumerate(runs) if "A_bound_ratio" in run.summary.extra)
    runs[index] = with_extra(runs[index], runs[index].summary.extra | {"A_bound_ratio": 1.2})
    broken = evidence_of(*runs)
    (made,) = bound_tables(broken.table)
    assert "1 BROKEN" in made.title
    assert made.rows[0][0].startswith(f"BROKEN in run {runs[index].run.run_id}")
    result = evaluate(next(one for one in CLAIMS if one.id == "pm-bounds"), broken)
    assert result.effect != "confirmed"
    assert "1 of" in (result.note or "")


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ({"network_kept": 0.0}, "the network was not enforced as planned"),
        ({"behind_s": 0.03}, "the server was further behind its charges than its profile allows"),
        ({"allowed_s": 0.0}, "the profile names no overhead of the server"),
        ({"unanswered": 2.0}, "requests were not answered"),
    ],
)
def test_bounds_of_real_machines_count_only_if_proven(lacks: dict[str, float], why: str) -> None:
    proven = evidence_of(live(KEPT), live(KEPT, 1, 0.7))
    assert unproven(proven.table).empty
    assert unproven_text(proven.table) is None
    found = evaluate(bounds(), proven)
    assert (found.measured, found.n) == (1.0, 2)
    partly = evidence_of(live(KEPT), live(KEPT | lacks, 1, None))
    found = evaluate(bounds(), partly)
    assert found.n == 1
    assert f"1 bounds of runs on real machines are not proven: 1 as {why}" in (found.note or "")
    (made,) = bound_tables(partly.table)
    assert made.rows[-1][-1] == f"not proven: {why}"
    alone = bounds().compute(evidence_of(live(KEPT | lacks, 0, None)))
    assert isinstance(alone, NotRun) and why in alone.why
    unknown = bounds().compute(evidence_of(live({})))
    assert isinstance(unknown, NotRun) and "does not report what was enforced" in unknown.why


def test_the_table_of_bounds_has_what_the_plan_proves() -> None:
    unmet = KEPT | {"planned": 0.0, "bound_s": 1.4, "bound_blocking_s": 1.5}
    (row,) = rows_of_a(live(unmet), live(unmet, 1))
    assert row["SLO (ms)"] == "30 to 31.5"
    assert (row["planned bound (ms)"], row["SLO proven"]) == ("1,400", "0 of 2")
    assert (row["median of bound"], row["verdict"]) == ("0.5", "held")
    fine = KEPT | {"planned": 1.0, "bound_s": 0.02, "bound_blocking_s": 0.04}
    (row,) = rows_of_a(live(unmet), live(fine, 1))
    assert (row["planned bound (ms)"], row["SLO proven"]) == ("20 to 1,400", "1 of 2")
    (row,) = rows_of_a(live(fine, blocking=True))
    assert (row["planned bound (ms)"], row["SLO proven"]) == ("40", "1 of 1")
    broken, row = rows_of_a(live(fine), live(unmet, 1, 1.5))
    assert broken["SLO proven"] == "0 of 1" and "BROKEN in run" in broken["scenario"]
    assert row["SLO proven"] == "1 of 2"
    (row,) = rows_of_a(live(unmet | {"network_kept": 0.0}, 0, None))
    assert (row["SLO proven"], row["median of bound"]) == ("0 of 1", "-")


@pytest.mark.parametrize("ground", ["local", "sim"])
def test_a_workload_without_a_bound_in_the_plan_has_a_row(ground: str) -> None:
    run = live(KEPT, 0, None)
    extra = {k: v for k, v in run.summary.extra.items() if not k.startswith("A_bound")}
    run = with_extra(run, extra | {"A_planned": 0.0})
    (row,) = rows_of_a(replace(run, run=run.run.model_copy(update={"ground": ground})))
    assert (row["SLO (ms)"], row["planned bound (ms)"]) == ("30", "-")
    assert row["SLO proven"] == "0 of 1"
    assert row["verdict"] == "not proven: the plan has no finite bound for the workload"


# Figures and tables.


def starved(run: LoadedRun) -> LoadedRun:
    """Return a run with a third of C's requests answered and too few of A's for the p99."""
    extra = dict(run.summary.extra)
    extra |= {"C_requests": 3000.0, "C_unfinished": 2000.0, "C_within": 0.0, "A_requests": 900.0}
    extra = {key: v for key, v in extra.items() if key[:3] not in ("C_p", "A_p")}
    return with_extra(run, extra | {"A_p50_s": 0.01, "A_p90_s": 0.02, "A_p95_s": 0.03})


def test_percentiles_among_unanswered_requests_are_infinite() -> None:
    only = table([starved(simulated(ground="local", policy="none", k=3))])
    rows = only.set_index("workload")
    assert rows.loc["C", "p50_s"] == rows.loc["C", "p99_s"] == math.inf
    assert pd.isna(rows.loc["C", "p99.9_s"])  # three beyond it
    assert rows.loc["A", "p95_s"] == 0.03 and pd.isna(rows.loc["A", "p99_s"])
    assert known_percent(only[only["workload"] == "C"]) == 99


def test_medians_of_runs_count_unanswered_requests() -> None:
    one, many = bootstrap([3.0]), bootstrap([1.0, 2.0, 3.0, 4.0, 5.0])
    assert one is not None and math.isnan(one.low)
    assert many is not None and many.low <= many.value == 3.0 <= many.high
    assert bootstrap([]) is None
    most, some = bootstrap([0.1, math.inf, math.inf]), bootstrap([0.1, math.nan, 0.2, math.inf])
    assert most is not None and most.value == math.inf and all(map(math.isnan, most.error))
    assert some is not None and some.value == 0.2 and some.n == 3
    frames = (pd.DataFrame({"seed": [0, 1], "x": x}) for x in ([math.inf, 0.2], [0.1, 0.1]))
    ratio = quotient(*frames, "x")
    assert ratio is not None and ratio.value == pytest.approx(2) and ratio.n == 1


def test_figure_7_names_the_gaps_of_each_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    """F is a Poisson process: its gaps are balanced in every row."""
    of = [run for run in all_runs() if run.run.parameters["scenario"] == "burst"]
    monkeypatch.setattr(figures, "draw", lambda panels, *_, **__: panels)
    panels: Any = figures.burstiness(evidence_of(*of))
    titles = [title for title, _ in panels]
    assert len(titles) == 6
    assert ["sharp bursts" in title for title in titles] == [False] * 4 + [True] * 2


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_report_has_every_figure(tmp_path: Path) -> None:
    assert len(list(made_up.cells("pm-full"))) > 150
    for run in (*all_runs(), *why_runs(as_in_the_paper)):
        made_up.write(run, tmp_path)
    made = build(tmp_path, "pm")
    drawn = {figure.entry.id for figure in made.figures if figure.path is not None}
    missing = {figure.entry.id: figure.missing for figure in made.figures if figure.path is None}
    assert drawn == {entry.id for entry in FIGURES}, missing
    assert set(missing) == {entry.id for entry in LOCAL_FIGURES}
    written = json.loads(made.claims_path.read_text())
    assert {one["id"] for one in written} == {one.id for one in (*CLAIMS, *STATEMENTS, *TAIL_LOCAL)}
    assert "Simulated" in made.path.read_text()
    with raises(UserError, "no figure '12'", where="pm"):
        build(tmp_path, "pm", only="12")
