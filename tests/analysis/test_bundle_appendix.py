"""Appendix of a bundle: the reviewer's first information comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.bundle.build import Inputs, about_of
from analysis.bundle.derive import Derived, FigureCells, Ran
from analysis.bundle.describe import command_of, expected, pages
from analysis.core.papers import SHORT_NAMES, paper
from analysis.core.report import format_value
from schemas.bundle import Author, Manifest
from schemas.claim import ClaimResult

LACKING = "no block has both"


def claim(figure: str, verdict: str, **more: Any) -> ClaimResult:
    """Return a claim about a ratio, measured as 2 or without any run."""
    run = verdict != "not run"
    body: dict[str, Any] = {
        "id": f"claim-{figure}",
        "paper": "dlr",
        "figure": figure,
        "statement": f"Figure {figure} says so",
        "paper_value": 2.0,
        "measured": 2.0 if run else None,
        "ci95": (1.9, 2.1) if run else None,
        "n": 3 if run else 0,
        "ground": "local" if run else None,
        "verdict": verdict,
        "kind": "about",
        "tolerance": 0.25,
        "no_effect": 1.0,
        "larger": True,
        "unit": "ratio",
        "note": None if run else LACKING,
    }
    return ClaimResult.model_validate(body | more)


def appendix(tmp_path: Path, *claims: ClaimResult, **about: str) -> tuple[str, str]:
    """Return APPENDIX.md and appendix.html of a bundle with these claims and no campaigns."""
    derived = Derived("A paper", claims, (), {}, tmp_path, 6)
    inputs = Inputs(
        files={},
        hotbed_version="0.1.0",
        commit=None,
        authors=(Author(name="Hotbed maintainers"),),
        about={"date": "2026-01-01"} | about,
    )
    manifest = Manifest(
        report="dlr-tiny",
        campaigns=("dlr-tiny",),
        comparison=False,
        hotbed_version="0.1.0",
        commit=None,
        libraries={},
        redacted={},
        left_out={},
        notes=(),
        files=(),
    )
    made = pages(about_of(inputs, derived, ()), manifest, derived, ())
    return made["APPENDIX.md"].decode(), made["appendix.html"].decode()


UNTESTED = tuple(claim(figure, "not run") for figure in ("3", "4", "7"))


def test_claims_that_runs_tell_of_come_before_those_of_which_there_are_none(
    tmp_path: Path,
) -> None:
    text, page = appendix(tmp_path, *UNTESTED, claim("6", "reproduced"))
    assert text.index("| C4 | 6 |") < text.index("| C1 | 3 |") < text.index("## 3. ")
    assert page.index('id="C4"') < page.index('id="C1"') < page.index("<h2>3. ")
    for shown in (text, page):
        assert "with 1 claim that is computed from them and can be computed again" in shown
        assert "Of several claims" not in shown  # the section states the reason once
        assert shown.count(LACKING) == 1


def test_what_it_takes_to_begin_is_what_set_up_asks_for(root: Path, tmp_path: Path) -> None:
    """Set-up installs packages as root and leaves its command in the environment."""
    setup = (root / "tools" / "setup.sh").read_text()
    assert "as_root" in setup
    assert "venv=.venv" in setup
    for shown in appendix(tmp_path, claim("6", "reproduced")):
        begin = shown[shown.index("make setup") : shown.index("hotbed verify BUNDLE")]
        assert "sudo where Debian packages are missing" in begin
        assert "no root" not in begin
        assert ". .venv/bin/activate" in begin


def test_a_stranger_is_told_where_the_code_is_or_that_nobody_says(tmp_path: Path) -> None:
    place = "https://example.org/hotbed"
    for shown in appendix(tmp_path, claim("6", "reproduced"), repository=place):
        begin = shown[shown.index("Get Hotbed") : shown.index("make setup")]
        assert place in begin
    for shown in appendix(tmp_path, claim("6", "reproduced")):
        begin = shown[shown.index("Get Hotbed") : shown.index("make setup")]
        assert "this bundle does not say where it is: ask who published it" in begin


def test_what_is_to_be_known_of_a_value_stands_beside_it(tmp_path: Path) -> None:
    """For example that the value is a bound, also for claims that hold."""
    note = "some runs never became stable: they count with all that was seen of them"
    for shown in appendix(tmp_path, claim("6", "reproduced", note=note)):
        assert shown.count(note) == 1


def test_where_no_run_tells_of_a_claim_that_is_said(tmp_path: Path) -> None:
    text, page = appendix(tmp_path, *UNTESTED)
    for shown in (text, page):
        assert "No run in this bundle tests a claim." in shown
        assert "and no claim that can be computed from them" in shown


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (30.0, "s", "30.00 s"),
        (172800.0, "s", "172,800 s"),
        (5.0, "ms", "5.00 ms"),
        (2.0, "ratio", "2.00x"),
        (0.5, "relative change", "50.0 %"),
        (0.5, "share of the runs", "0.50"),
        (12.5, "%", "12.50 %"),
        (None, "s", "–"),
    ],
)
def test_a_value_has_its_unit(value: float | None, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


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
    ],
)
def test_what_was_tested_is_run_again_from_the_bundle(
    figure: str, command: str, tmp_path: Path
) -> None:
    """The catalogue's command does not apply: it names another campaign's runs."""
    derived = Derived("x", (), (), {}, tmp_path, 6, {figure: "hotbed run other --figure 7"})
    assert command_of(figure, derived, [ran_of("tiny", "6a", "7")]) == command


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
    ],
)
def test_what_is_expected_is_what_is_judged(more: dict[str, Any], text: str) -> None:
    assert expected(claim("6", "reproduced", **more)) == text
