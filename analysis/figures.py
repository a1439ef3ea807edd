"""A catalogue entry of a figure, what a drawing function returns when runs are missing, and tables
that stand beside figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analysis.claims import Evidence
from analysis.stats import Estimate


@dataclass(frozen=True)
class Missing:
    """Why a figure could not be drawn: which runs there would have to be."""

    runs: str


@dataclass(frozen=True)
class Table:
    """A table of a report: texts, a row a tuple as long as `heads`."""

    id: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def as_json(self) -> list[dict[str, str]]:
        """A mapping a row."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


def value_text(found: Estimate | None) -> str:
    """An estimate's value to three digits as a table's cell; a dash where there is none."""
    return "–" if found is None else f"{found.value:.3g}"


def interval_text(found: Estimate | None, digits: int = 3) -> str:
    """An estimate with its interval as a table's cell; without one of a single run."""
    if found is None:
        return "–"
    value, low, high = (f"{x:.{digits}g}" for x in (found.value, found.low, found.high))
    return value if found.n < 2 else f"{value} [{low}, {high}]"


def bytes_text(count: int) -> str:
    """``4 MiB``, ``256 KiB``: a number of bytes."""
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{count // 2**10} KiB"


@dataclass(frozen=True)
class FigureEntry:
    """One figure: what it shows, how it is drawn, and what makes the runs it needs. `told` adds to
    the caption what only the runs tell. `not_simulated`: the reason why simulated runs do not feed
    the figure."""

    id: str
    title: str
    caption: str
    draw: Callable[[Evidence, Path, str], Path | Missing]
    campaign: str  # the grid selector: hotbed run <paper>-full --figure <campaign>
    command: str | None = None  # what makes its runs, where the paper's command does not
    told: Callable[[Evidence], str] | None = None
    not_simulated: str | None = None


@dataclass(frozen=True)
class Drawn:
    """A figure as it came out: `path` to the PNG, or what is missing."""

    entry: FigureEntry
    path: Path | None
    missing: str | None
