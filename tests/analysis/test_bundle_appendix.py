"""Appendix and metadata of a bundle: claims, expectations, commands, and what the formats allow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from synthetic_runs import written

from analysis.bundle.describe import (
    Derived,
    PackedCells,
    Ran,
    command_of,
    crate,
    expected,
    first_look,
    numbered,
    pages,
    ran,
    trovi,
    zenodo,
)
from analysis.bundle.publish import about_of
from analysis.core.papers import SHORT_NAMES, paper
from schemas.bundle import About, Author, Manifest, Sources
from schemas.claim import ClaimResult
from schemas.errors import UserError
from tests.errors import raises

LACKING = "no block has both"


def claim(figure: str, effect: str, **more: Any) -> ClaimResult:
    """Return a claim about a ratio, measured as 2 or without any run."""
    body = {"id": f"claim-{figure}", "paper": "dlr", "figure": figure, "effect": effect}
    body |= {"statement": f"Figure {figure} says so", "rule": "about", "tolerance": 0.25}
    body |= {"kind": "ratio", "stated": True, "sized": True, "size": "within tolerance"}
    body |= {"paper_value": 2.0, "no_effect": 1.0, "larger": True, "unit": "ratio"}
    found = {"measured": 2.0, "ci95": (1.9, 2.1), "n": 3, "ground": "local", "note": None}
    none = {"measured": None, "ci95": None, "n": 0, "ground": None, "note": LACKING}
    return ClaimResult.model_validate(body | (none if effect == "not run" else found) | more)


def about(**more: Any) -> About:
    body: dict[str, Any] = dict.fromkeys(("title", "short_description", "description"), "x")
    body |= {"date": "2026-01-01", "authors": (Author(name="A group"),)}
    return About.model_validate(body | more)


def manifest_of(*campaigns: str) -> Manifest:
    body: dict[str, Any] = {"report": "dlr-tiny", "campaigns": campaigns, "commit": None}
    body |= {"hotbed_version": "0.1.0", "libraries": {}, "files": ()}
    return Manifest.model_validate(body)


def derived_of(folder: Path, *claims: ClaimResult, **commands: str) -> Derived:
    return Derived("A paper", claims, (), {}, folder / "dlr-tiny", 6, commands)


def ran_of(name: str, *figures: str) -> Ran:
    """Return a campaign with cells that feed these figures."""
    parts = tuple(PackedCells(name, figure, (figure,), 3, 3, 3, 60.0) for figure in figures)
    return Ran(name, "local", "local", "", (), 3, 60.0, "", "", (), parts)


def test_claims_with_runs_come_first_and_everything_is_there_once(tmp_path):
    note = "some runs never became stable: they count with all that was seen of them"
    place = "https://example.org/hotbed"
    claims = (*(claim(one, "not run") for one in "347"), claim("6", "confirmed", note=note))
    made = pages(about(repository=place), manifest_of("x"), derived_of(tmp_path, *claims), ())
    text, page = made["APPENDIX.md"].decode(), made["appendix.html"].decode()
    assert text.index("| C4 | 6 |") < text.index("| C1 | 3 |") < text.index("## 3. ")
    assert page.index('id="C4"') < page.index('id="C1"') < page.index("<h2>3. ")
    for shown in (text, page):
        assert shown.count(LACKING) == shown.count(note) == 1
        assert place in shown[shown.index("Get Hotbed") : shown.index("make setup")]


def test_every_effect_has_its_reason_and_command(tmp_path):
    claims = (
        claim("6a", "confirmed"),
        claim("6a", "contradicted"),
        *(claim("6a", "not run", note=note) for note in ("no seq", "no seq", "no rand")),
        claim("6a", "inconclusive", ci95=None, n=1),
        claim("6a", "inconclusive", rule="within"),
    )
    known = {"6a": "hotbed run dlr-full --figure 6"}
    derived, held = derived_of(tmp_path, *claims, **known), campaign(tmp_path / "dlr-tiny")
    made = numbered(derived, [held])
    assert made[0].command == "hotbed rerun BUNDLE --figure 6a"
    assert {one.command for one in made[2:5]} == {"hotbed run dlr-full --figure 6"}
    holds = [one.holds for one in made]
    assert holds == ["yes", "no", *["not tested"] * 3, "undecided", "undecided"]
    assert made[5].why == "a single run has no confidence interval"
    assert "neither within the tolerance nor outside" in made[6].why
    text = pages(about(), manifest_of("dlr-tiny"), derived, [held])["APPENDIX.md"].decode()
    assert "**C3, C4** (not run): no seq: `hotbed run dlr-full --figure 6`" in text
    assert "**C5** (not run): no rand" in text
    assert "**C2** (contradicted)" in text


def test_tested_claims_are_run_again_from_the_bundle(tmp_path):
    """The catalogue's command does not apply if the bundle has runs of the figure: it names another
    campaign's runs."""
    commands = {"6a": "x", "7b": "x", "bounds-local": "x"}
    commands |= {name: f"hotbed run dlr-full --figure {name[0]}" for name in ("8a", "9")}
    derived, again = derived_of(tmp_path, **commands), "hotbed rerun BUNDLE"
    for figure, command in {
        "6a": f"{again} --figure 6a",
        "7-local": f"{again} --figure 7",
        "7b": f"{again} --figure 7",
        "bounds-local": again,
        "6a, 7": f"{again} --figure 6a; {again} --figure 7",
        "6a, bounds": again,
    }.items():
        assert command_of(figure, derived, [ran_of("tiny", "6a", "7")]) == command
    assert command_of("8a, 9", derived, []) == "; ".join((commands["8a"], commands["9"]))
    both = [ran_of("tiny", "6a"), ran_of("mine", "7")]
    assert command_of("7", derived, both) == f"{again} --campaign mine --figure 7"
    several = f"{again} --campaign tiny; {again} --campaign mine"
    assert command_of("bounds", derived, both) == several


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_every_claim_has_a_command_that_makes_its_runs(short, tmp_path):
    """No claim falls back to the bundle's own cells, which do not cover the claim."""
    chosen = paper(short)
    derived = derived_of(tmp_path, **chosen.commands(simulated=False))
    for figure in {one.figure for part in chosen.parts for one in part.claims}:
        assert command_of(figure, derived, ()).startswith("hotbed run ") or short == "dlr-scale"
        assert "BUNDLE" not in command_of(figure, derived, ())


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "2.00x (1.75x … 2.25x)"),
        ({"rule": "at_least"}, "at least 2.00x (1.75x counts)"),
        ({"rule": "at_most", "unit": "relative change", "no_effect": 0.0}, "at most 200.0 % (250"),
        ({"rule": "at_most", "tolerance": 0.0, "unit": "s"}, "at most 2.00 s"),
        ({"sized": False}, "above 1.00x, the whole 95 % interval too (2.00x in the paper)"),
        (
            {
                "paper_value": 10.0,
                "no_effect": 10.0,
                "larger": False,
                "unit": "ms",
                "sized": False,
                "kind": "seconds",
            },
            "below 10.00 ms, the whole 95 % interval too",
        ),
        (
            {
                "paper_value": 1.0,
                "rule": "within",
                "tolerance": 0.0,
                "unit": "share",
                "measured": 0.9,
                "ci95": None,
            },
            "100.0 %, both ends of the 95 % interval too",
        ),
        ({"paper_value": 1.0, "rule": "within"}, "the whole 95 % interval in 0.75x … 1.25x"),
        ({"paper_value": None}, "above 1.00x, the whole 95 % interval too"),
        ({"paper_value": None, "no_effect": None}, "an effect as stated, with a 95 % interval"),
    ],
)
def test_the_expectation_is_what_is_judged(more, text):
    assert expected(claim("6", "confirmed", **more)).startswith(text)


def campaign(folder: Path) -> Ran:
    """Return two grids that both feed figure 6a; only the first feeds figure 6b."""
    cells = []
    for block in range(3):
        for op, figures in (("seq", ["6a", "6b"]), ("rand", ["6a"])):
            parameters = {"op": op, "scenario": "heterogeneity", "controller": "dlr"}
            made = written(folder, block, "dlr", parameters, {})
            cells.append({"run_id": made.parent.name, "grids": [f"fig6-{op}"], "figures": figures})
    grids = [{"name": f"fig6-{op}", "figures": ["6a", "6b"]} for op in ("seq", "rand")]
    body = {"campaign": {"name": "dlr-tiny", "spec": "dlr.yaml", "grids": grids}, "cells": cells}
    (folder / "campaign.json").write_text(json.dumps(body))
    return ran(folder)


def test_the_first_look_is_quick_and_prefers_figures_of_claims(tmp_path):
    """Reruns of other cells on machines would support no statement."""
    made = campaign(tmp_path / "dlr-tiny")
    grids = {one.name: one.machine_s for one in made.experiments}
    parts = {part.name: part for part in made.parts}
    assert (parts["6a"].cells, parts["6a"].attempts) == (6, 6)
    assert parts["6a"].machine_s == pytest.approx(grids["fig6-seq"] + grids["fig6-rand"])

    def first(*claimed: str) -> str:
        found = first_look([made], claimed)
        assert found is not None
        return found.name

    assert [first(), first("9"), first("6b"), first("6a"), first("6a-local")] == [
        *("6b", "6b", "6b", "6a", "6a"),
    ]
    # Simulated cells are identical to the bit and need no testbed, even without a claim.
    simulated = replace(made, ground="sim", parts=(replace(made.parts[0], name="9"),))
    found = first_look([made, simulated], ["6b"])
    assert found is not None
    assert found.name == "9"


# ---- metadata ------------------------------------------------------------------------------------


def test_files_are_identified_by_uris_and_have_their_known_sizes(tmp_path):
    path = "controllers/mine/read me 100%.md"
    held = replace(ran_of("dlr-tiny"), spec="/x/mine.yaml")
    sizes = {path: 42, "specs/mine.yaml": 7}
    whole = crate(about(), manifest_of("dlr-tiny"), derived_of(tmp_path), [held], sizes)
    graph = {one["@id"]: one for one in whole["@graph"]}
    packed = graph["controllers/mine/read%20me%20100%25.md"]
    assert (packed["@type"], packed["contentSize"]) == ("File", "42")
    assert graph["artifacts/dlr-tiny/"]["@type"] == "Dataset"
    assert "contentSize" not in graph["artifacts/dlr-tiny/"]
    assert "Apache-2.0" in graph[graph["./"]["license"]["@id"]]["description"]
    assert packed["@id"] in [part["@id"] for part in graph["./"]["hasPart"]]
    assert graph["#run-dlr-tiny"]["object"] == [{"@id": "specs/mine.yaml"}]


def test_trovi_finds_its_own_file():
    """Trovi's importer expects a descriptor with the file's name and has its own limits."""
    long = about(title="word " * 49, description="more " * 1200)
    graph = {one["@id"]: one for one in trovi(long)["@graph"]}
    assert graph["trovi.json"]["about"] == {"@id": "./"}
    assert "ro-crate-metadata.json" not in graph
    assert graph["#ChameleonJupyterLab"]["trovi_type"] == "jupyterhub"
    assert len(graph["./"]["name"]) <= 140
    assert len(graph["./"]["description"]) <= 5000
    assert zenodo(about(description="a < b & c"))["description"] == "a &lt; b &amp; c"


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("--about: date", {"date": "yesterday"}),
        ("2026-02-30", {"date": "2026-02-30"}),
        ("authors.0", {"authors": [{}]}),
        *(
            ("authors.0", {"authors": [{"name": "x", "orcid": f"0000-0000-0000-{end}"}]})
            for end in ("0000", "0010")
        ),
        ("titel", {"titel": "x"}),
        ("keywords", {"keywords": []}),
        ("keywords", {"keywords": ["Ceph", "Ceph"]}),
        *(
            ("license", {"license": text})
            for text in ("free for all", "My-Own-1.0", "Apache-2.0+", "cc-by-4.0")
        ),
        ("doi", {"doi": "10.5281/a b"}),
    ],
)
def test_values_that_the_formats_refuse_are_refused(place, wrong, tmp_path):
    sources = Sources("0.1.0", None, ({"name": "Hotbed maintainers"},))
    with raises(UserError, place):
        about_of({"date": "2026-01-01", **wrong}, sources, derived_of(tmp_path), ())


def test_a_description_from_yaml_is_completed_from_the_runs(tmp_path):
    sources = Sources("0.1.0", None, ({"name": "Hotbed maintainers"},))
    stated = yaml.safe_load("{date: 2026-01-31, version: 1.0}")
    made = about_of(stated, sources, derived_of(tmp_path), ())
    assert made.title.startswith("A paper")
    assert (made.date, made.version) == ("2026-01-31", "1.0")
    for orcid in ("0000-0000-0000-0001", "0000-0000-0000-001X"):
        assert Author(name="A group", orcid=orcid).orcid == orcid
