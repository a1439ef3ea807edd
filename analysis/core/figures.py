"""Catalogue entries of figures, the result of drawing functions when runs are missing, and tables
next to figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from analysis.core.claims import Evidence
from analysis.core.evidence import average
from analysis.core.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def value_text(found: Estimate | None, form: str = ".3g") -> str:
    """Format an estimate's value as a table's cell; a dash for None."""
    return "–" if found is None else f"{found.value:{form}}"


def interval_text(found: Estimate | None, form: str = ".3g", ends: str | None = None) -> str:
    """Format an estimate with its interval as a table's cell; no interval for a single run.
    `ends`: format of the interval, if not that of the value."""
    value = value_text(found, form)
    if found is None or found.n < 2:
        return value
    low, high = (f"{end:{form if ends is None else ends}}" for end in (found.low, found.high))
    return f"{value} [{low}, {high}]"


Column = tuple[str, Callable[[pd.DataFrame], str]]
"""Head of a table's column, and its text for a row's runs."""
COUNT: Column = ("n", lambda rows: str(len(rows)))


def interval(head: str, column: str, form: str = ".3g") -> Column:
    """Return a column with the mean over runs and its interval."""
    return head, lambda rows: interval_text(average(rows, column), form)


def value(head: str, column: str, factor: float = 1.0) -> Column:
    """Return a column with the mean over runs."""
    return head, lambda rows: value_text(average(rows, column, factor))


def total(head: str, column: str) -> Column:
    """Return a column with the sum over runs; a dash if the runs lack the number."""
    return head, lambda rows: f"{rows[column].sum():g}" if column in rows else "–"


def tabulated(
    name: str,
    title: str,
    keys: Sequence[str],
    columns: Sequence[Column],
    rows: Sequence[tuple[tuple[str, ...], pd.DataFrame]],
) -> list[Table]:
    """Return a table with a row per set of runs; no table without runs.

    Args:
        name: the table's id.
        title: its title.
        keys: heads of the columns before `columns`.
        columns: the columns for the runs.
        rows: texts for `keys`, and the runs.
    """
    texts = [(*key, *(text(its) for _, text in columns)) for key, its in rows if len(its)]
    heads = (*keys, *(head for head, _ in columns))
    return [Table(name, title, heads, tuple(texts))] if texts else []


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
    draw: Callable[[Evidence], Figure | Missing]
    campaign: str = ""
    command: str | None = None  # command for its runs, if it is not its part's command
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
