"""Bundling and verification of runs of every campaign kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.bundle.build import Inputs, build
from analysis.bundle.verify import verify
from schemas.bundle import Author

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def ursa(artifacts: Path) -> str:
    from tests.papers.ursa_runs import write_all

    write_all(artifacts, blocks=2)
    return "ursa-full"


def twochoice(artifacts: Path) -> str:
    from tests.papers.twochoice_runs import write_all_bursts

    write_all_bursts(artifacts, blocks=2, variations=False)
    return "twochoice-full"


def pm(artifacts: Path) -> str:
    from tests.papers.prioritymeister_runs import all_runs, write

    for run in all_runs():
        write(run, artifacts)
    return "pm"


def mos(artifacts: Path) -> str:
    """Write measured and simulated runs for one report, each as its own part."""
    from tests.papers.mos_runs import write_all, write_simulated

    write_all(artifacts)
    write_simulated(artifacts / "mos-sim", blocks=2)
    return "mos"


def compared(artifacts: Path) -> str:
    from test_bundle_rerun import BUNDLED, campaign, ranked

    ranked(campaign(artifacts / "compare-local", BUNDLED))
    return "compare-local"


@pytest.mark.parametrize("write", [ursa, twochoice, pm, mos, compared])
def test_it_is_bundled_and_verified(write: Callable[[Path], str], tmp_path: Path) -> None:
    name = write(tmp_path / "artifacts")
    inputs = Inputs({}, "0.1.0", None, (Author(name="A test"),))
    made = build(tmp_path / "artifacts", name, tmp_path / "x.zip", inputs)
    assert made.derived.shown
    assert made.derived.claims
    checked = verify(tmp_path / "x.zip")
    assert checked.ok, checked.differences[:5]
    done = {check.name for check in checked.checks if check.ok}
    assert {"files", "private", "runs", "claims", "figures", "pictures"} <= done
