"""Catalogue entries of figures, the result of drawing functions when runs are missing, and tables
next to figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analysis.core.claims import Evidence
from analysis.core.stats import Estimate


@dataclass(frozen=True)
class Missing:
    """Reason why a figure could not be drawn: the runs that are missing."""

    runs: str


@dataclass(frozen=True)
class Table:
    """A table of a report: texts; each row is a tuple as long as `heads`."""

    id: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def as_json(self) -> list[dict[str, str]]:
        """Return one mapping per row."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


def value_text(found: Estimate | None) -> str:
    """Format an estimate's value to three digits as a table's cell; a dash for None."""
    return "–" if found is None else f"{found.value:.3g}"


def interval_text(found: Estimate | None, digits: int = 3) -> str:
    """Format an estimate with its interval as a table's cell; no interval for a single run."""
    if found is None:
        return "–"
    value, low, high = (f"{x:.{digits}g}" for x in (found.value, found.low, found.high))
    return value if found.n < 2 else f"{value} [{low}, {high}]"


def bytes_text(count: int) -> str:
    """Format a number of bytes: ``4 MiB``, ``256 KiB``."""
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{count // 2**10} KiB"


@dataclass(frozen=True)
class FigureEntry:
    """One figure: its content, its drawing function, and the command for its runs. `campaign`
    selects their grid (``hotbed run <paper>-full --figure <campaign>``), by default the figure's
    id. `facts` adds facts from the runs to the caption. `not_simulated`: the reason why simulated
    runs do not feed the figure."""

    id: str
    title: str
    caption: str
    draw: Callable[[Evidence, Path, str], Path | Missing]
    campaign: str = ""
    command: str | None = None  # command for its runs, if it is not the paper's command
    facts: Callable[[Evidence], str] | None = None
    not_simulated: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "campaign", self.campaign or self.id)


@dataclass(frozen=True)
class Drawn:
    """Result of drawing a figure: `path` to the PNG, or the missing runs."""

    entry: FigureEntry
    path: Path | None
    missing: str | None
