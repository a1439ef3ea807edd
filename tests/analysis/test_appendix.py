"""Claims in an artefact's appendix: values that count, untested claims, and the command that makes
the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import finished

from analysis.bundle import describe as appendix
from analysis.bundle.derive import Derived, Ran, first_look, ran
from schemas.claim import ClaimResult


def claim(name: str = "x", **changed: Any) -> ClaimResult:
    body: dict[str, Any] = {
        "id": name,
        "paper": "dlr",
        "figure": "6a",
        "statement": "It is faster",
        "paper_value": 0.4,
        "measured": 0.3,
        "ci95": (0.2, 0.4),
        "n": 3,
        "ground": "local",
        "verdict": "direction",
        "kind": "about",
        "tolerance": 0.25,
        "no_effect": 0.0,
        "larger": True,
        "unit": "relative change",
    }
    return ClaimResult.model_validate(body | changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "40.0 % (30.0 % … 50.0 %)"),
        ({"paper_value": 2.2, "no_effect": 1.0, "unit": "ratio"}, "2.20x (1.90x … 2.50x)"),
        ({"kind": "at_least"}, "at least 40.0 % (30.0 % counts)"),
        ({"kind": "at_most"}, "at most 40.0 % (50.0 % counts)"),
        (
            {"kind": "at_least", "paper_value": 0.6, "no_effect": 1.0, "unit": "ratio"},
            "at least 0.60x (0.70x counts)",
        ),
        ({"kind": "at_most", "tolerance": 0.0, "unit": "s"}, "at most 0.40 s"),
        (
            {"kind": "within", "paper_value": 1.0, "tolerance": 0.05, "unit": "ratio"},
            "the whole 95 % interval in 0.95x … 1.05x",
        ),
        ({"paper_value": None}, "above 0.0 %, the whole 95 % interval too"),
        (
            {"paper_value": None, "no_effect": 1.0, "larger": False, "unit": "ratio"},
            "below 1.00x, the whole 95 % interval too",
        ),
        (
            {"paper_value": None, "no_effect": None},
            "an effect as stated, with a 95 % interval that excludes no effect",
        ),
    ],
)
def test_what_is_expected_has_the_values_that_count(changed: dict[str, Any], said: str) -> None:
    assert appendix.expected(claim(**changed)) == said


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


def test_claims_of_a_figure_s_part_have_its_command(tmp_path: Path) -> None:
    made = campaign(tmp_path / "dlr-tiny")
    commands = {figure: f"hotbed run dlr-full --figure {figure[0]}" for figure in ("7", "8a")}
    derived = Derived("DLR", (), (), {}, tmp_path, 6, commands)
    # No run covers these figures; the catalogue has a command for them.
    assert appendix.command_of("7a", derived, []) == "hotbed run dlr-full --figure 7"
    assert appendix.command_of("7a, 8a", derived, []) == (
        "hotbed run dlr-full --figure 7; hotbed run dlr-full --figure 8"
    )
    assert appendix.command_of("99", derived, []) == "hotbed rerun BUNDLE"
    # Use the bundle's own cells; use all of them if a figure has no cells of its own.
    assert appendix.command_of("6a", derived, [made]) == "hotbed rerun BUNDLE --figure 6a"
    assert appendix.command_of("6a-local", derived, [made]) == "hotbed rerun BUNDLE --figure 6a"
    assert appendix.command_of("6a, 8a", derived, [made]) == "hotbed rerun BUNDLE"


def test_what_was_not_tested_is_no_failure(tmp_path: Path) -> None:
    without = {"measured": None, "ci95": None, "n": 0, "ground": None, "verdict": "not run"}
    claims = (
        claim("a", verdict="reproduced"),
        claim("b", verdict="not reproduced"),
        claim("c", note="no seq", **without),
        claim("d", note="no seq", **without),
        claim("e", note="no rand", **without),
        claim("f", verdict="inconclusive", ci95=None, n=1),
        claim("g", verdict="inconclusive", kind="within"),
    )
    known = {"6a": "hotbed run dlr-full --figure 6"}
    held = campaign(tmp_path / "dlr-tiny")
    made = appendix.numbered(Derived("DLR", claims, (), {}, tmp_path, 6, known), [held])
    commands = [one.command for one in made]
    assert commands[0] == "hotbed rerun BUNDLE --figure 6a"
    assert set(commands[2:5]) == {"hotbed run dlr-full --figure 6"}
    holds = [one.holds for one in made]
    assert holds == ["yes", "no", *["not tested"] * 3, "undecided", "undecided"]
    assert [(one.numbers, one.why) for one in appendix.untested(made)] == [
        (("C3", "C4"), "no seq"),
        (("C5",), "no rand"),
    ]
    assert made[5].why == "a single run has no confidence interval"
    assert "neither within the tolerance nor outside" in made[6].why
