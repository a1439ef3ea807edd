"""Tables for Jupyter; every text in them is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_LEFT = 'style="text-align:left"'


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a title, a head and one cell a value."""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return (
        f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>"
        f"<thead><tr>{_cells('th', columns)}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and their values."""
    body = "".join(f"<tr>{_cells('th', row[:1])}{_cells('td', row[1:])}</tr>" for row in rows)
    return f"<table><tbody>{body}</tbody></table>"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag} {_LEFT}>{escape(text)}</{tag}>" for text in texts)
