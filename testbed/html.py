"""Tables and progress for Jupyter, with every text escaped.

All of it is plain HTML, not widgets: it is drawn without the internet, and in exported pages too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

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
    border = ""
    if status in COLOURS:
        border = f' style="border-left: 4px solid {COLOURS[status]}; padding-left: 6px"'
    words = f"<b>{escape(title)}</b>{escape(note)}"
    if not shown and not any(columns):
        return f"<p{border}>{words}</p>"
    caption = f"<caption {_LEFT}>{words}</caption>"
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


def in_kernel() -> bool:
    """Return True if this runs in a notebook's kernel."""
    shell = sys.modules.get("IPython")
    running: Any = None if shell is None else shell.get_ipython()
    return getattr(running, "kernel", None) is not None


def live(html: str = "") -> Callable[[str], None]:
    """Show `html` in the running notebook cell; return a function that replaces it."""
    import IPython.display

    shown: Any = IPython.display.HTML
    display: Any = IPython.display.display
    handle = display(shown(html), display_id=True)
    return lambda text: handle.update(shown(text))


def bar(share: float, text: str) -> str:
    """Return a bar and a text in one line."""
    return f'<progress value="{share:.3f}"></progress> {escape(text)}'
