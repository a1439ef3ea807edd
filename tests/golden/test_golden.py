"""Results of simulation and planning equal the recorded results, number by number."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.golden import compute

CLOSE = 1e-9
"""Relative difference; the last digits depend on the order of runs and on the processor."""


@pytest.mark.slow
@pytest.mark.parametrize("name", compute.PLANS)
def test_plans_are_those_recorded(name: str) -> None:
    assert not differences(recorded(name), compute.plan(name))


@pytest.mark.golden
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", compute.CAMPAIGNS)
def test_claims_are_those_recorded(name: str, tmp_path: Path) -> None:
    assert not differences(recorded(name), compute.campaign(name, tmp_path))


def test_a_changed_digit_is_found() -> None:
    golden = recorded("compare-sim")
    changed = json.loads(json.dumps(golden))
    changed[0]["measured"] *= 1 + 1e-6
    changed[1]["effect"] += "?"
    assert len(differences(golden, changed)) == 2
    assert differences(golden, golden[1:])


def recorded(name: str) -> Any:
    return json.loads((compute.RESULTS / f"{name}.json").read_text())


def differences(golden: Any, found: Any, at: str = "") -> list[str]:
    """Return the differences between `found` and `golden`, one line each."""
    if isinstance(golden, dict) and isinstance(found, dict) and golden.keys() == found.keys():
        pairs = [(golden[key], found[key], f"{at}.{key}") for key in golden]
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        pairs = [
            (a, b, f"{at}[{a['id'] if isinstance(a, dict) and 'id' in a else k}]")
            for k, (a, b) in enumerate(zip(golden, found, strict=True))
        ]
    elif isinstance(golden, float) and isinstance(found, float):
        same = math.isclose(golden, found, rel_tol=CLOSE)
        return [] if same else [f"{at}: {golden!r} is {found!r}"]
    else:
        return [] if golden == found else [f"{at}: {golden!r} is {found!r}"]
    return [line for a, b, place in pairs for line in differences(a, b, place)]
