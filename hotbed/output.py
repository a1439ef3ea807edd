"""How every verb reports: a table for people, or the same facts as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
"""The `--json` option, the same on every verb that reports."""

_PIPE_WIDTH = 200  # columns when nobody looks: nothing is cut off for grep


def console() -> Console:
    """The console on standard output; wide, without colours, when it is no terminal."""
    from rich.console import Console

    return Console(
        width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, soft_wrap=False
    )


def plain(value: object) -> Any:
    """`value` as JSON types: models and dataclasses become mappings, what is not a number null."""
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
    """Print `data` as one JSON document when `as_json`, else what `table()` returns.

    Args:
        data: a model, dataclass, mapping or list of them.
        as_json: the verb's `--json`.
        table: makes the view for people: a string or anything that rich can print; None when it
            printed by itself.
    """
    if as_json:
        json.dump(plain(data), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
        return
    view = table()
    if isinstance(view, str):
        print(view)
    elif view is not None:
        console().print(view)
