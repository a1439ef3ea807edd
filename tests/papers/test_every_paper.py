"""What the claims, figures and tables of all papers have in common."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from analysis.core.claims import Evidence, evaluate
from analysis.core.figures import Missing
from analysis.core.load import is_listed
from analysis.core.papers import SHORT_NAMES, Paper, Part, paper
from analysis.papers.mos.claims import REPORT_FILE as MOS_REPORT
from analysis.papers.mos.simulated import SERIES_FILE, STAGES
from analysis.papers.twochoice import runs as twochoice
from campaigns.engine.campaign_file import FILES, load_campaign
from campaigns.papers.mos import cell as mos_cell
from campaigns.papers.mos import simulated as mos_simulated
from campaigns.papers.twochoice import objects as twochoice_cell
from campaigns.papers.twochoice.cell import BURSTS_FILE
from campaigns.validate import figures_of
from testbed.simulated.cosperf.stages import STAGE_MINUTES

PAPERS = [paper(short) for short in SHORT_NAMES]
PARTS = [
    pytest.param(part, id=f"{one.short}-{number}")
    for one in PAPERS
    for number, part in enumerate(one.parts)
]
QUICK = {f"{short}-quick" for short in ("dlr", "mos", "pm", "twochoice", "ursa")}
"""Campaigns that list the claims that they are made for."""
TABULATED = [one for one in PARTS if not one.id.startswith("dlr")]
"""Parts with a table of their own, which may be empty. A report of DLR needs runs."""


@pytest.mark.parametrize("one", PAPERS, ids=lambda one: one.short)
def test_each_claim_and_figure_is_declared_once_in_the_papers_order(one: Paper) -> None:
    figures = [entry.id for entry in one.figures]
    assert max(Counter(figures).values()) == 1
    # One id a statement; grounds and stores may share it.
    counts = [Counter((c.id, c.store) for c in part.claims) for part in one.parts]
    assert max(max(each.values(), default=1) for each in counts) == 1
    shared = {claim.id: claim for part in one.parts for claim in part.claims}
    alike = ("statement", "figure", "paper_value", "unit", "kind", "rule", "stated", "baseline")
    for claim in (claim for part in one.parts for claim in part.claims):
        assert all(getattr(claim, f) == getattr(shared[claim.id], f) for f in alike), claim.id
    numbers = [int(re.sub(r"\D.*", "", name) or 99) for name in figures]
    assert len(one.parts) == 1 or numbers == sorted(numbers)


@cache
def figures_made() -> dict[str, set[str]]:
    """Return the figures that Hotbed's campaigns make, by paper."""
    found: dict[str, set[str]] = {}
    for file in FILES.glob("*.yaml"):
        campaign = load_campaign(file)
        found.setdefault(campaign.paper, set()).update(figures_of(campaign))
    return found


@pytest.mark.parametrize("one", PAPERS, ids=lambda one: one.short)
def test_campaigns_make_the_runs_of_every_figure(one: Paper) -> None:
    made = figures_made()[{"pm": "prioritymeister"}.get(one.short, one.short)]
    for entry in one.figures:
        assert any(figure.startswith(entry.campaign) for figure in made), entry.id


@pytest.mark.parametrize("one", PAPERS, ids=lambda one: one.short)
def test_claims_name_their_figure_and_paper(one: Paper) -> None:
    places = {entry.id for entry in one.figures}.union(*(part.commands for part in one.parts))
    every = [claim for part in one.parts for claim in part.claims]
    for claim in every:
        for figure in claim.figure.split(", "):
            assert figure in places or figure.rstrip("abcd") in places, claim.id
        if claim.paper == "mos":
            assert claim.baseline or claim.unit != "ratio", claim.id
    assert len({claim.paper for claim in every}) == 1


@pytest.mark.parametrize("file", sorted(FILES.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_campaign_lists_claims_of_its_own_figures(file: Path) -> None:
    campaign = load_campaign(file)
    short = file.stem.split("-")[0]
    assert campaign.claims or file.stem not in QUICK
    made = {name.rstrip("abcd") for name in figures_of(campaign)}
    every = [claim for part in paper(short).parts for claim in part.claims]
    feeds = {entry.id: entry.campaign for entry in paper(short).figures}
    for one in campaign.claims:
        listed = [claim for claim in every if is_listed(claim.id, [one])]
        assert listed, f"{one} is no claim"
        for claim in listed:
            figures = {feeds.get(name, name).rstrip("abcd") for name in claim.figure.split(", ")}
            assert figures & made, f"{claim.id} is about figure {claim.figure}"


@pytest.mark.parametrize("part", TABULATED)
def test_without_runs_nothing_is_claimed_or_drawn(part: Part) -> None:
    nothing = Evidence(part.tabulate([]), [])
    results = [evaluate(claim, nothing) for claim in part.claims]
    assert {result.effect for result in results} == {"not run"}
    assert all(result.note for result in results)
    for entry in part.figures:
        missing = entry.draw(nothing)
        assert isinstance(missing, Missing) and missing.runs, entry.id
    assert not list(part.tables(nothing.table))


def test_names_of_files_and_stages_are_the_campaigns() -> None:
    assert (MOS_REPORT, SERIES_FILE) == (mos_cell.REPORT_FILE, mos_simulated.SERIES_FILE)
    assert [span[0] for span in STAGES.values()] == list(STAGE_MINUTES[:-1])
    assert twochoice.BURSTS_FILE == BURSTS_FILE
    assert twochoice.REPORT_FILE == twochoice_cell.REPORT_FILE
