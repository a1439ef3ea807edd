"""Tables for Jupyter, with every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 200
COLOURS = {"done": "#1a7f37", "failed": "#cf222e", "spoiled": "#9a6700", "interrupted": "#57606a"}
"""Colours by a run's status."""
_LEFT = 'style="text-align:left"'


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    note: str = "",
    status: str | None = None,
) -> str:
    """Return a table with one cell for each value.

    Args:
        columns: the head; no head if every name is empty.
        rows: the body; at most `MOST_ROWS` are shown.
        title, note: the caption, with the title in bold.
        status: colours the border, see `COLOURS`.
    """
    shown = list(rows)
    border = f' style="border-left: 4px solid {COLOURS[status]}"' if status in COLOURS else ""
    caption = f"<caption {_LEFT}><b>{escape(title)}</b>{escape(note)}</caption>"
    head = f"<thead><tr>{_cells('th', columns)}</tr></thead>"
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in shown[:MOST_ROWS])
    more = len(shown) - MOST_ROWS
    return (
        f"<table{border}>{caption if title else ''}{head if any(columns) else ''}"
        f"<tbody>{body}</tbody></table>{f'<p>and {more} more</p>' if more > 0 else ''}"
    )


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and their values."""
    body = "".join(f"<tr>{_cells('th', row[:1])}{_cells('td', row[1:])}</tr>" for row in rows)
    return f"<table><tbody>{body}</tbody></table>"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag} {_LEFT}>{escape(text)}</{tag}>" for text in texts)
