"""Reads what several verbs take on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.errors import UserError


def name_values(given: Iterable[str], example: str) -> dict[str, object]:
    """``--parameter NAME=VALUE`` repeated, as a mapping; whole numbers and numbers become such.

    Raises:
        UserError: one is not of that form; shows `example`.
    """
    parameters: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--parameter {text!r}: write NAME=VALUE, such as {example}.")
        parameters[name] = _value(value)
    return parameters


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Names separated by commas, in options that may be repeated."""
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
