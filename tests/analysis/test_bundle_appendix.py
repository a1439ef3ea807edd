"""Appendix of a bundle: order, expectations, untested claims, commands that make the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import finished

from analysis.bundle.build import Inputs, about_of
from analysis.bundle.derive import Derived, FigureCells, Ran, first_look, ran
from analysis.bundle.describe import command_of, expected, numbered, pages, untested
from analysis.core.papers import SHORT_NAMES, paper
from schemas.bundle import Author, Manifest
from schemas.claim import ClaimResult

LACKING = "no block has both"


def claim(figure: str, verdict: str, **more: Any) -> ClaimResult:
    """Return a claim about a ratio, measured as 2 or without any run."""
    body = {"id": f"claim-{figure}", "paper": "dlr", "figure": figure, "verdict": verdict}
    body |= {"statement": f"Figure {figure} says so", "kind": "about", "tolerance": 0.25}
    body |= {"paper_value": 2.0, "no_effect": 1.0, "larger": True, "unit": "ratio"}
    found = {"measured": 2.0, "ci95": (1.9, 2.1), "n": 3, "ground": "local", "note": None}
    none = {"measured": None, "ci95": None, "n": 0, "ground": None, "note": LACKING}
    return ClaimResult.model_validate(body | (none if verdict == "not run" else found) | more)


def appendix(tmp_path: Path, *claims: ClaimResult, **about: str) -> tuple[str, str]:
    """Return APPENDIX.md and appendix.html of a bundle with these claims and no campaigns."""
    derived = Derived("A paper", claims, (), {}, tmp_path, 6)
    authors = (Author(name="Hotbed maintainers"),)
    inputs = Inputs({}, "0.1.0", None, authors, about={"date": "2026-01-01"} | about)
    body: dict[str, Any] = {"report": "dlr-tiny", "campaigns": ("dlr-tiny",), "commit": None}
    body |= {"hotbed_version": "0.1.0", "libraries": {}, "files": ()}
    manifest = Manifest.model_validate(body)
    made = pages(about_of(inputs, derived, ()), manifest, derived, ())
    return made["APPENDIX.md"].decode(), made["appendix.html"].decode()


UNTESTED = tuple(claim(figure, "not run") for figure in ("3", "4", "7"))


def test_claims_with_runs_come_first_and_everything_is_there_once(tmp_path: Path) -> None:
    note = "some runs never became stable: they count with all that was seen of them"
    place = "https://example.org/hotbed"
    tested = claim("6", "reproduced", note=note)
    text, page = appendix(tmp_path, *UNTESTED, tested, repository=place)
    assert text.index("| C4 | 6 |") < text.index("| C1 | 3 |") < text.index("## 3. ")
    assert page.index('id="C4"') < page.index('id="C1"') < page.index("<h2>3. ")
    for shown in (text, page):
        assert shown.count(LACKING) == shown.count(note) == 1
        assert place in shown[shown.index("Get Hotbed") : shown.index("make setup")]


def ran_of(name: str, *figures: str) -> Ran:
    """Return a campaign with cells that feed these figures."""
    parts = tuple(FigureCells(name, figure, 3, 3, 60.0) for figure in figures)
    return Ran(name, "local", "local", "", (), 3, 3, 60.0, "", "", (), parts)


@pytest.mark.parametrize(
    ("figure", "command"),
    [
        ("6a", "hotbed rerun BUNDLE --figure 6a"),
        ("6", "hotbed rerun BUNDLE --figure 6"),
        ("7-local", "hotbed rerun BUNDLE --figure 7"),
        ("7b", "hotbed rerun BUNDLE --figure 7"),
        ("bounds-local", "hotbed rerun BUNDLE"),
        ("6a, 7", "hotbed rerun BUNDLE --figure 6a; hotbed rerun BUNDLE --figure 7"),
        ("6a, bounds", "hotbed rerun BUNDLE"),
        # No run covers these figures; the catalogue may have a command for them.
        ("8a", "hotbed run dlr-full --figure 8"),
        ("8a, 9", "hotbed run dlr-full --figure 8; hotbed run dlr-full --figure 9"),
    ],
)
def test_what_was_tested_is_run_again_from_the_bundle(
    figure: str, command: str, tmp_path: Path
) -> None:
    """The catalogue's command does not apply: it names another campaign's runs."""
    commands = {"6a": "x", "7b": "x", "bounds-local": "x"}
    commands |= {name: f"hotbed run dlr-full --figure {name[0]}" for name in ("8a", "9")}
    derived = Derived("x", (), (), {}, tmp_path, 6, commands)
    held = [] if "8" in figure else [ran_of("tiny", "6a", "7")]
    assert command_of(figure, derived, held) == command


def test_of_several_campaigns_each_is_named(tmp_path: Path) -> None:
    derived = Derived("x", (), (), {}, tmp_path, 6)
    both = [ran_of("tiny", "6a"), ran_of("mine", "7")]
    assert command_of("7", derived, both) == "hotbed rerun BUNDLE --campaign mine --figure 7"
    assert command_of("bounds", derived, both) == (
        "hotbed rerun BUNDLE --campaign tiny; hotbed rerun BUNDLE --campaign mine"
    )


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_every_claim_has_a_command_that_makes_its_runs(short: str, tmp_path: Path) -> None:
    """No claim falls back to the bundle's own cells, which do not cover the claim."""
    chosen = paper(short)
    derived = Derived("x", (), (), {}, tmp_path, 6, chosen.commands(simulated=False))
    for figure in {one.figure for part in chosen.parts for one in part.claims}:
        assert command_of(figure, derived, ()).startswith("hotbed run ") or short == "dlr-scale"
        assert "BUNDLE" not in command_of(figure, derived, ())


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "2.00x (1.75x … 2.25x)"),
        ({"kind": "at_least"}, "at least 2.00x (1.75x counts)"),
        ({"kind": "at_most", "unit": "relative change", "no_effect": 0.0}, "at most 200.0 % (250"),
        ({"kind": "at_most", "tolerance": 0.0, "unit": "s"}, "at most 2.00 s"),
        ({"size": False}, "above 1.00x, the whole 95 % interval too (2.00x in the paper)"),
        (
            {"paper_value": 10.0, "no_effect": 10.0, "larger": False, "unit": "ms", "size": False},
            "below 10.00 ms, the whole 95 % interval too",
        ),
        (
            {"paper_value": 1.0, "kind": "within", "tolerance": 0.0, "unit": "share"},
            "1.00, both ends of the 95 % interval too",
        ),
        ({"paper_value": 1.0, "kind": "within"}, "the whole 95 % interval in 0.75x … 1.25x"),
        ({"paper_value": None}, "above 1.00x, the whole 95 % interval too"),
        ({"paper_value": None, "no_effect": None}, "an effect as stated, with a 95 % interval"),
    ],
)
def test_what_is_expected_is_what_is_judged(more: dict[str, Any], text: str) -> None:
    assert expected(claim("6", "reproduced", **more)).startswith(text)


def campaign(folder: Path) -> Ran:
    """Return two grids that both feed figure 6a; only the first feeds figure 6b."""
    cells = []
    for block in range(3):
        for op, figures in (("seq", ["6a", "6b"]), ("rand", ["6a"])):
            parameters = {"op": op, "scenario": "heterogeneity", "controller": "dlr"}
            run, made = finished(folder, block, "dlr", parameters)
            (made / "run.json").write_text(run.model_dump_json())
            cells.append({"run_id": run.run_id, "grids": [f"fig6-{op}"], "figures": figures})
    grids = [{"name": f"fig6-{op}", "figures": ["6a", "6b"]} for op in ("seq", "rand")]
    body = {"campaign": {"name": "dlr-tiny", "spec": "dlr.yaml", "grids": grids}, "cells": cells}
    (folder / "campaign.json").write_text(json.dumps(body))
    return ran(folder)


def test_the_first_look_takes_what_the_command_runs(tmp_path: Path) -> None:
    made = campaign(tmp_path / "dlr-tiny")
    grid = {one.grid: one.machine_s for one in made.experiments}
    parts = {part.figure: part for part in made.parts}
    assert (parts["6a"].cells, parts["6a"].attempts) == (6, 6)
    assert parts["6a"].machine_s == pytest.approx(grid["fig6-seq"] + grid["fig6-rand"])
    found = first_look([made])
    assert found is not None
    assert (found.figure, found.cells) == ("6b", 3)


def test_the_first_look_prefers_what_claims_tell_of(tmp_path: Path) -> None:
    """Reruns of other cells on machines would support no statement."""
    made = campaign(tmp_path / "dlr-tiny")

    def first(*claimed: str) -> str:
        found = first_look([made], claimed)
        assert found is not None
        return found.figure

    assert [first(), first("9"), first("6b"), first("6a"), first("6a-local")] == [
        *("6b", "6b", "6b", "6a", "6a"),
    ]
    # Simulated cells are identical to the bit and need no testbed, even without a claim.
    simulated = replace(made, ground="sim", parts=(replace(made.parts[0], figure="9"),))
    found = first_look([made, simulated], ["6b"])
    assert found is not None
    assert found.figure == "9"


def test_what_was_not_tested_is_no_failure(tmp_path: Path) -> None:
    claims = (
        claim("6a", "reproduced"),
        claim("6a", "not reproduced"),
        *(claim("6a", "not run", note=note) for note in ("no seq", "no seq", "no rand")),
        claim("6a", "inconclusive", ci95=None, n=1),
        claim("6a", "inconclusive", kind="within"),
    )
    known = {"6a": "hotbed run dlr-full --figure 6"}
    held = campaign(tmp_path / "dlr-tiny")
    made = numbered(Derived("DLR", claims, (), {}, tmp_path, 6, known), [held])
    commands = [one.command for one in made]
    assert commands[0] == "hotbed rerun BUNDLE --figure 6a"
    assert set(commands[2:5]) == {"hotbed run dlr-full --figure 6"}
    holds = [one.holds for one in made]
    assert holds == ["yes", "no", *["not tested"] * 3, "undecided", "undecided"]
    assert [(one.numbers, one.why) for one in untested(made)] == [
        (("C3", "C4"), "no seq"),
        (("C5",), "no rand"),
    ]
    assert made[5].why == "a single run has no confidence interval"
    assert "neither within the tolerance nor outside" in made[6].why
