"""Cells and minutes that the documentation tells are those of the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from pages import ROOT

from campaigns.dry_run import DryRunReport
from campaigns.session import Request, dry_run

pytestmark = pytest.mark.slow


def _rows(page: str) -> Iterator[list[str]]:
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("| ").split(" |")]


# A row with more names than numbers, or fewer, is a test that fails: an error here, where tests are
# collected, would end those of all other files too.


def _campaigns() -> Iterator[tuple[str | None, int | None]]:
    """Every campaign whose cells docs/campaigns.md tells, with their number."""
    for row in _rows("campaigns.md"):
        names = re.findall(r"`([a-z0-9-]+)`", row[0])
        cells = re.findall(r"\d+", row[2]) if len(row) == 4 else []
        if names and cells:
            yield from zip_longest(names, map(int, cells))


def _figures() -> Iterator[tuple[str | None, int | None, int | None]]:
    """Figures of dlr-full in docs/experiments.md with their cells and minutes."""
    for row in _rows("experiments.md"):
        found = re.match(r"`hotbed run dlr-full --figure ([^`]+)`(.*)", row[2]) if row[2:] else None
        if found and len(row) == 5:
            more = re.findall(r"`(-?[a-z-]+)`", found[2])
            names = [found[1], *(_whole(name, found[1]) for name in more)]
            numbers = [map(int, re.findall(r"\d+", cell)) for cell in row[3:]]
            yield from zip_longest(names, *numbers)


def _whole(name: str, first: str) -> str:
    """`-rand` behind `beyond-heterogeneity-seq` is beyond-heterogeneity-rand."""
    return f"{first.rpartition('-')[0]}{name}" if name.startswith("-") else name


def _plan(campaign: str | None, figure: str | None, folder: Path) -> DryRunReport:
    assert campaign is not None, "a row has more numbers than names"
    return dry_run(Request(campaign, figure, artifacts=folder))


@pytest.mark.parametrize(("name", "cells"), list(_campaigns()))
def test_a_campaign_has_as_many_cells_as_the_docs_say(
    name: str | None, cells: int | None, tmp_path: Path
) -> None:
    assert _plan(name, None, tmp_path).cells == cells


@pytest.mark.parametrize(("figure", "cells", "minutes"), list(_figures()))
def test_a_figure_of_dlr_takes_what_the_docs_say(
    figure: str | None, cells: int | None, minutes: int | None, tmp_path: Path
) -> None:
    assert figure is not None, "a row has more numbers than figures"
    plan = _plan("dlr-full", figure, tmp_path)
    assert (plan.cells, round(plan.pending_s / 60)) == (cells, minutes)


def test_tables_are_found() -> None:
    assert len(list(_campaigns())) >= 25
    assert len(list(_figures())) >= 12
