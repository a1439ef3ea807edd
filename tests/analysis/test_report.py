"""Report page and every figure, from synthetic runs."""

from __future__ import annotations

import html
import json
import re

import pytest
from synthetic import write_campaign, write_run

from analysis.core import style
from analysis.core.report import Report, build, format_interval, notes_of, shared_notes
from hotbed.verbs.report import claims_table
from schemas.claim import ClaimResult
from schemas.errors import UserError
from tests.errors import raises

pytestmark = pytest.mark.slow  # draws every figure


WITHOUT_RUNS = {
    *("3-rand", "3-write", "10-rand", "10-write", "10-threads"),
    *("reweight", "shapes"),
}
"""Figures of cells that the synthetic campaign does not have."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    artifacts = tmp_path_factory.mktemp("artifacts")
    write_campaign(artifacts, blocks=2)
    return build(artifacts, "dlr-full")


def test_every_figure_is_drawn_as_png_and_pdf(report):
    ids = [figure.entry.id for figure in report.figures]
    parts = {"1": "abcd", "6": "abc", "8": "abc"}
    expected = [
        n + p for n in map(str, (1, 3, 4, 5, 6, 7, 8, 9, 10, 11)) for p in parts.get(n, [""])
    ]
    assert [one for one in ids if one not in WITHOUT_RUNS] == [*expected, "S1"]
    assert {figure.entry.id for figure in report.figures if figure.missing} == WITHOUT_RUNS
    for figure in report.figures:
        if figure.entry.id in WITHOUT_RUNS:
            continue
        assert figure.path is not None
        assert figure.path.read_bytes().startswith(b"\x89PNG")
        assert figure.path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_the_page_stands_alone_and_says_once_what_several_claims_say(report):
    page = report.path.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert page.count("data:image/png;base64") == 18
    shared = shared_notes([claim for claim in report.claims if claim.effect != "not run"])
    assert any("disks are modelled" in note for note in shared)
    text = html.unescape(page)
    assert all(text.count(note) == 1 for note in shared)
    for claim in report.claims:
        assert claim.id in page
        assert all(note in text for note in notes_of(claim))
    claims = json.loads(report.claims_path.read_text())
    assert [ClaimResult.model_validate(c) for c in claims] == list(report.claims)


def test_what_was_not_run_is_one_folded_line_below_figures_and_claims(report):
    page = report.path.read_text()
    before, rest = page.split("<details")
    folded, after = rest.split("</details>")
    idle = {claim.id for claim in report.claims if claim.effect == "not run"}
    tested = [claim.id for claim in report.claims if claim.id not in idle]
    assert idle and tested
    for claim in report.claims:
        assert f'id="{claim.id}"' in (folded if claim.id in idle else before)
    assert before.rindex("<figure") < before.index(f'id="{tested[0]}"')
    assert 'id="runs"' in after
    anchors, ids = re.findall(r'href="#([^"]+)"', page), re.findall(r' id="([^"]+)"', page)
    assert set(anchors) <= set(ids) and len(set(ids)) == len(ids)
    assert len([one for one in anchors if one.startswith("fig")]) == 1 + page.count("<figure id")
    assert "Palden Lama. IEEE CLOUD 2017" in before
    shown = claims_table(report.claims)
    assert (shown.row_count, shown.caption) == (len(tested), f"{len(idle)} not run")


def test_a_figure_s_report_has_its_own_files_and_claims(report):
    whole = {path: path.read_bytes() for path in (report.path, report.claims_path)}
    made = build(report.path.parents[1], "dlr-full", only="6a")
    assert (made.path.name, made.claims_path.name) == ("report-fig6a.html", "claims-fig6a.json")
    assert made.claims == tuple(one for one in report.claims if "6a" in one.figure.split(", "))
    assert [one.entry.id for one in made.figures] == ["6a"]
    assert {path: path.read_bytes() for path in whole} == whole


def test_what_ends_after_the_benchmark_is_in_none_of_its_intervals(tmp_path):
    write_run(
        tmp_path / "dlr-full",
        {"op": "seq", "scenario": "heterogeneity", "controller": "default"},
        0,
        150.0,
    )
    with style.recorded(pdf=False) as shown:
        build(tmp_path, "dlr-full", only="7")
    assert shown["dlr-fig7"][0]["lines"][0]["y"] == pytest.approx([150.0] * 6, rel=0.1)


def test_missing_runs_are_named(tmp_path):
    for block in range(2):
        write_run(
            tmp_path / "dlr-quick",
            {"op": "seq", "scenario": "none", "controller": "default"},
            block,
            240.0,
        )
    made = build(tmp_path, "dlr-quick")
    assert all(figure.path is None and figure.missing for figure in made.figures)
    assert "hotbed run dlr-full --figure 6" in made.path.read_text()


def test_a_campaign_s_report_lists_the_claims_it_was_made_for(tmp_path):
    folder = tmp_path / "dlr-quick"
    for block in range(2):
        for controller in ("default", "dlr"):
            cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            write_run(folder, cell, block, 100.0 + 10 * block)
    everything = build(tmp_path, "dlr-quick")
    assert not everything.others.count
    cells = [{"run_id": path.name} for path in folder.iterdir() if path.name != "figures"]
    wanted = {"claims": ["dlr-heterogeneity-seq-*", "overhead"], "ground": "local"}
    (folder / "campaign.json").write_text(json.dumps({"campaign": wanted, "cells": cells}))
    made = build(tmp_path, "dlr-quick")
    assert [claim.id for claim in made.claims] == [
        *("dlr-heterogeneity-seq-throughput", "dlr-heterogeneity-seq-latency", "overhead"),
    ]
    assert made.others.count == len(everything.claims) - 3
    assert made.others.commands == ("hotbed run dlr-full",)
    assert "hotbed run dlr-full" in made.path.read_text()


def test_unknown_campaigns_and_figures_are_refused(tmp_path):
    for name in ("nonesuch", "none-such", "dlr-quick"):
        with raises(UserError, where=name, allowed="no campaign has runs; papers: dlr"):
            build(tmp_path, name)
    with raises(UserError, "no runs of dlr", where=str(tmp_path), do="dlr-quick"):
        build(tmp_path, "dlr")
    cell = {"op": "seq", "scenario": "none", "controller": "default"}
    write_run(tmp_path / "dlr-quick", cell, 0, 1.0)
    (tmp_path / "empty").mkdir()
    with raises(UserError, where="dlr-full", allowed="campaigns with runs: dlr-quick"):
        build(tmp_path, "dlr-full")
    with raises(UserError, "no figure '2'", allowed="1a"):
        build(tmp_path, "dlr-quick", only="2")


@pytest.mark.parametrize(
    ("interval", "unit", "shown"),
    [
        ((1.0301, 1.0304), "ratio", "1.0301x … 1.0304x"),
        ((0.0, 1e-4), "share", "0.00 % … 0.01 %"),
        ((0.54, 1.0), "share", "54.0 % … 100.0 %"),
        (None, "s", "–"),
    ],
)
def test_an_interval_never_looks_as_if_it_had_no_width(
    interval: tuple[float, float] | None, unit: str, shown: str
) -> None:
    assert format_interval(interval, unit) == shown
