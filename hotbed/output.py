"""Output of every verb: a table for people, or the same facts as JSON for programs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from schemas.shown import clean
from testbed.terminal import console

Verb = TypeVar("Verb", bound=Callable[..., Any])

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
"""The `--json` option, the same on every verb that reports (see `Verbs`)."""


@dataclasses.dataclass(frozen=True)
class Output:
    """Output of a verb: `data` for programs, the result of `view` for people (see `emit`), and the
    exit code."""

    data: Any
    view: Callable[[], object]
    code: int = 0


class Verbs(typer.Typer):
    """Group of verbs. Each that returns an `Output` takes `--json`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(no_args_is_help=True, **settings)

    def command(self, *names: Any, **settings: Any) -> Callable[[Verb], Verb]:
        """Return a decorator that adds a verb to the group."""
        add = super().command(*names, **settings)

        def adding(verb: Verb) -> Verb:
            add(_with_json(verb) if "Output" in str(verb.__annotations__.get("return")) else verb)
            return verb

        return adding


def _with_json(verb: Callable[..., Output | None]) -> Callable[..., None]:
    """Return a verb with the option `--json`, which prints the `Output` that `verb` returns. If
    `verb` itself has the parameter `as_json`, it may print while it works."""
    signature = inspect.signature(verb, eval_str=True)
    own = "as_json" in signature.parameters

    @functools.wraps(verb)
    def printing(*, as_json: bool, **options: Any) -> None:
        made = verb(**options, as_json=as_json) if own else verb(**options)
        if made is not None:
            emit(made.data, as_json, made.view)
            if made.code:
                raise typer.Exit(made.code)

    if not own:
        keyword = inspect.Parameter.KEYWORD_ONLY
        flag = inspect.Parameter("as_json", keyword, default=False, annotation=JsonFlag)
        signature = signature.replace(parameters=[*signature.parameters.values(), flag])
        printing.__annotations__ = verb.__annotations__ | {"as_json": JsonFlag}
    printing.__signature__ = signature  # type: ignore[attr-defined]
    return printing


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
    else the result of `table()`: a string, anything that rich can print, or a list of such parts;
    None prints nothing."""
    if as_json:
        text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
        # Escape the same characters as elsewhere, here in JSON's own way.
        print(clean(text, lambda each: json.dumps(each)[1:-1]))
        return
    made = table()
    for view in made if isinstance(made, list) else [made]:
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


def new_table(
    heads: Iterable[str],
    rows: Iterable[Iterable[Any]] = (),
    *,
    title: str = "",
    caption: str = "",
    numbers: int = 99,
) -> Table:
    """Return a table; the columns from number `numbers` (from 0) on are right-aligned. A cell is a
    value or a text of rich; None is an empty cell, and rows may end early."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        caption=caption or None,
        caption_justify="left",
        pad_edge=False,
    )
    for place, name in enumerate(heads):
        made.add_column(name, justify="right" if place >= numbers else "left")
    for row in rows:
        made.add_row(
            *("" if one is None else one if isinstance(one, Text) else str(one) for one in row)
        )
    return made
