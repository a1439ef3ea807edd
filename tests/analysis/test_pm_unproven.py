"""Bounds of runs on real machines: counted if proven, and reported if not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_pm import as_in_the_paper, extra_of, run_of

from analysis.core.claims import Claim, Evidence, Measured, NotRun, evaluate, explained
from analysis.core.figures import FigureEntry, Missing
from analysis.core.load import LoadedRun
from analysis.core.stats import Estimate
from analysis.papers.prioritymeister.bound_table import bound_tables
from analysis.papers.prioritymeister.catalogue import LOCAL_FIGURES
from analysis.papers.prioritymeister.claims import CLAIMS, LOCAL_CLAIMS
from analysis.papers.prioritymeister.explained import EXPLAINED
from analysis.papers.prioritymeister.runs import table
from analysis.papers.prioritymeister.unproven import sentence, unproven
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.session import typed_cells
from schemas.cells.prioritymeister import PM

KEPT = {"late_s": 2e-4, "behind_s": 0.01, "allowed_s": 0.02, "network_kept": 1.0, "unanswered": 0.0}
LACKING = [
    ({"network_kept": 0.0}, "the network was not enforced as planned"),
    ({"behind_s": 0.03}, "the server was further behind its charges than its profile allows"),
    ({"allowed_s": 0.0}, "the profile tells no overhead of the server"),
    ({"unanswered": 2.0}, "requests were not answered"),
]


def live(
    kept: Mapping[str, float], block: int = 0, ratio: float | None = 0.5, **more: object
) -> LoadedRun:
    """Return a run of pm on a testbed, with the values `kept` for workload A."""
    told = {"scenario": "disk", "k": 3.0, "slo_percentile": 95, "seconds": 180, **more}
    cell = PM.of(**told)
    extra = extra_of(cell, block, as_in_the_paper)
    extra = {k: v for k, v in extra.items() if not k.endswith("_bound_ratio")}
    extra |= {"A_bound_s": 0.1, "A_bound_blocking_s": 0.1}
    extra |= {f"A_{name}": value for name, value in kept.items()}
    if ratio is not None:
        extra["A_bound_ratio"] = ratio
    return run_of(cell, block, extra, "local")


def evidence_of(*runs: LoadedRun) -> Evidence:
    return Evidence(table(runs), runs)


def bounds() -> Claim:
    return next(one for one in LOCAL_CLAIMS if one.id == "pm-bounds-local")


def test_a_bound_that_is_proven_counts() -> None:
    evidence = evidence_of(live(KEPT), live(KEPT, 1, 0.7))
    assert unproven(evidence.table).empty
    assert sentence(evidence.table) is None
    found = evaluate(bounds(), evidence)
    assert (found.measured, found.n) == (1.0, 2)


@pytest.mark.parametrize(("lacks", "why"), LACKING)
def test_what_a_bound_lacks_is_said(lacks: dict[str, float], why: str) -> None:
    evidence = evidence_of(live(KEPT), live(KEPT | lacks, 1, None))
    found = evaluate(bounds(), evidence)
    assert found.n == 1
    assert f"1 bounds of runs on real machines are not proven: 1 as {why}" in (found.note or "")
    (made,) = bound_tables(evidence.table)
    assert made.rows[-1][-1] == f"not proven: {why}"
    alone = bounds().compute(evidence_of(live(KEPT | lacks, 0, None)))
    assert isinstance(alone, NotRun) and why in alone.why


def rows_of_a(*runs: LoadedRun) -> list[dict[str, str]]:
    (made,) = bound_tables(table(runs))
    return [row for row in made.as_json() if row["workload"] == "A"]


def test_the_table_of_bounds_tells_what_the_plan_proves() -> None:
    unmet = KEPT | {"planned": 0.0, "bound_s": 1.4, "bound_blocking_s": 1.5}
    (row,) = rows_of_a(live(unmet), live(unmet, 1))
    assert row["SLO (ms)"] == "30 to 31.5"
    assert (row["planned bound (ms)"], row["SLO proven"]) == ("1,400", "0 of 2")
    assert (row["median of bound"], row["verdict"]) == ("0.5", "held")
    met = KEPT | {"planned": 1.0, "bound_s": 0.02, "bound_blocking_s": 0.04}
    (row,) = rows_of_a(live(unmet), live(met, 1))
    assert (row["planned bound (ms)"], row["SLO proven"]) == ("20 to 1,400", "1 of 2")
    (row,) = rows_of_a(live(met, blocking=True))
    assert (row["planned bound (ms)"], row["SLO proven"]) == ("40", "1 of 1")
    broken, row = rows_of_a(live(met), live(unmet, 1, 1.5))
    assert broken["SLO proven"] == "0 of 1" and "BROKEN in run" in broken["scenario"]
    assert row["SLO proven"] == "1 of 2"
    (row,) = rows_of_a(live(unmet | {"network_kept": 0.0}, 0, None))
    assert (row["SLO proven"], row["median of bound"]) == ("0 of 1", "-")


@pytest.mark.parametrize("ground", ["local", "sim"])
def test_a_workload_that_the_plan_has_no_bound_for_has_a_row(ground: str) -> None:
    run = live(KEPT, 0, None)
    extra = {k: v for k, v in run.summary.extra.items() if not k.startswith("A_bound")}
    summary = run.summary.model_copy(update={"extra": extra | {"A_planned": 0.0}})
    told = run.run.model_copy(update={"ground": ground})
    (row,) = rows_of_a(replace(run, run=told, summary=summary))
    assert (row["SLO (ms)"], row["planned bound (ms)"]) == ("30", "-")
    assert row["SLO proven"] == "0 of 1"
    assert row["verdict"] == "not proven: the plan has no finite bound for the workload"


@pytest.mark.parametrize("entry", LOCAL_FIGURES, ids=lambda entry: entry.id)
def test_a_figure_without_runs_on_a_testbed_names_its_campaigns_k(
    entry: FigureEntry, tmp_path: Path
) -> None:
    made = entry.draw(evidence_of(), tmp_path, "none")
    assert isinstance(made, Missing)
    if entry.id == "bounds-local":
        assert "k" not in made.runs.split()
        return
    for name in ("pm-local", "pm-local-quick"):
        file = find_campaign(name)
        campaign = load_campaign(file)
        typed = typed_cells(campaign, file)
        figure = entry.id.removesuffix("-local")
        of = [cell for g in campaign.grids if figure in g.figures for cell in typed[g.name]]
        assert made.runs.endswith(f"all of one k (pm-local: {of[0].k:g})"), made.runs
        assert len({cell.k for cell in of}) == 1
        assert all(f"the scenario {cell.scenario}" in made.runs for cell in of)


def test_a_ratio_without_what_was_enforced_is_no_proof() -> None:
    evidence = evidence_of(live({}))
    found = bounds().compute(evidence)
    assert isinstance(found, NotRun) and "does not tell what was enforced" in found.why


def test_the_best_explanation_is_said_where_a_claim_does_not_come_out() -> None:
    assert set(EXPLAINED) <= {one.id for one in CLAIMS}
    orders = next(one for one in CLAIMS if one.id == "pm-orders")

    def of(value: float) -> Measured | NotRun:
        declared = Measured(Estimate(value, value, value, 3), "sim", 1.0, "as measured")
        fixed = Claim(
            orders.id, "11", "x", 6.0, lambda _: declared, "x", kind="within", tolerance=0.0
        )
        return explained(fixed, EXPLAINED.get(fixed.id)).compute(evidence_of())

    assert of(6.0) == Measured(Estimate(6.0, 6.0, 6.0, 3), "sim", 1.0, "as measured")
    told = of(4.0)
    assert isinstance(told, Measured)
    assert (told.note or "").startswith("as measured; best explanation: PM plans for the longest")


def test_captions_on_a_testbed_name_its_own_slos() -> None:
    for entry in LOCAL_FIGURES:
        assert "99.9th percentile alone" not in entry.caption
        assert "95th percentile alone" in entry.caption or entry.id == "bounds-local"
