"""Import path for this folder's synthetic runs, and a check of every figure that the tests draw."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.core import report, style
from analysis.core.claims import Evidence
from analysis.core.figures import Drawn, FigureEntry
from tests.drawing import misleading, unlike

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def no_figure_misleads() -> Iterator[None]:
    """Check that every drawn figure of a report agrees with its legend and caption."""
    save, draw = style.save, report.draw
    drawn: dict[str, Any] = {}

    def saved(figure: Any, folder: Path, name: str) -> Path:
        drawn[name] = figure
        assert misleading(figure) == [], name
        return save(figure, folder, name)

    def captioned(entry: FigureEntry, evidence: Evidence, folder: Path, prefix: str) -> Drawn:
        made = draw(entry, evidence, folder, prefix)
        if made.path is not None:
            assert unlike(made.entry.caption, drawn[made.path.stem]) == [], made.path.stem
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", saved)
        patch.setattr(report, "draw", captioned)
        yield
