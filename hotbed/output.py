"""Output of every verb: a table for people, or the same facts as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemas.shown import clean
from testbed.terminal import console

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
"""The `--json` option, the same on every verb that reports."""


def plain(value: object) -> Any:
    """Return `value` as JSON types: models and dataclasses become mappings, NaN becomes null."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return plain(dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    return str(value)


def emit(
    data: BaseModel | Mapping[str, object] | list[Any] | Any,
    as_json: bool,
    table: Callable[[], object],
) -> None:
    """Print `data` (a model, dataclass, mapping or list of them) as one JSON document if `as_json`,
    else the result of `table()`: a string or anything that rich can print; None if it has printed
    by itself."""
    if as_json:
        text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
        # Escape the same characters as elsewhere, here in JSON's own way.
        print(clean(text, lambda each: json.dumps(each)[1:-1]))
        return
    view = table()
    if isinstance(view, str):
        print(view)
    elif view is not None:
        shown = console()
        shown.print(_fitting(view, shown) if sys.stdout.isatty() else view)


def _fitting(view: Any, shown: Console) -> Any:
    """Return `view` with every table that is too wide for the terminal as one list a row."""
    from rich.console import Group
    from rich.measure import Measurement
    from rich.table import Table

    if isinstance(view, Group):
        return Group(*(_fitting(each, shown) for each in view.renderables))
    least = Measurement.get(shown, shown.options.update(width=10_000), view).minimum
    if not isinstance(view, Table) or least <= shown.width:
        return view
    lists: list[Any] = [view.title] if view.title else []
    for row in zip(*(column.cells for column in view.columns), strict=True):
        made = Table.grid(padding=(0, 2))
        made.add_column()
        made.add_column(overflow="fold")
        for column, cell in zip(view.columns, row, strict=True):
            if cell:
                made.add_row(column.header, cell)
        lists += [made, ""]
    return Group(*lists, *([view.caption] if view.caption else []))


def amount(value: float, unit: str) -> str:
    """Return an amount for people, such as ``172 MB/s``."""
    from testbed.spec.quantities import format_si  # here: `--help` needs no pydantic

    return format_si(value, unit)


def new_table(*columns: str, title: str = "", caption: str = "", numbers: int = 99) -> Table:
    """Return an empty table; the columns from number `numbers` (from 0) on are right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        caption=caption or None,
        caption_justify="left",
        pad_edge=False,
    )
    for place, name in enumerate(columns):
        made.add_column(name, justify="right" if place >= numbers else "left")
    return made
