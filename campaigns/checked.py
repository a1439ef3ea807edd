"""Values of a file as a typed model: the one sentence that a mistake in a cell comes to."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from schemas.errors import UserError
from schemas.yaml_file import plain_message

Model = TypeVar("Model", bound=BaseModel)

_BOUNDS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


def checked(
    model: type[Model],
    values: Mapping[str, Any],
    where: str,
    allowed: Callable[[str], str],
    *,
    names: Collection[str] | None = None,
    stands_for: Mapping[str, str] | None = None,
) -> Model:
    """`values` as a model of a cell's parameters.

    Args:
        model: the parameters.
        values: one cell's, by name.
        where: file and grid, for the message.
        allowed: what a parameter may hold, in words, see `allowed_of`.
        names: that a file may use; by default the model's fields.
        stands_for: by field, the name of the value that it was made from.

    Raises:
        UserError: file, grid, key, what is allowed.
    """
    names = model.model_fields if names is None else names
    for key, value in values.items():
        if key not in names:
            raise UserError(f"{where}: unknown parameter {key!r}; a cell has {', '.join(names)}.")
        # YAML's yes/no would pass for 1/0, and the other way round.
        if isinstance(value, bool) != _is_bool(model, key):
            raise UserError(f"{where}: {key}: {value!r} is not allowed; {allowed(key)}.")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        place = error.errors()[0]["loc"]
        key = str(place[0]) if place else ""
        if not key:
            raise UserError(f"{where}: {plain_message(error)}.") from error
        words = allowed(key)
        if stands_for and key in stands_for:
            key, words = stands_for[key], f"{key}: {words}"
        if key not in values:
            raise UserError(f"{where}: {key} is missing; {words}.") from error
        raise UserError(f"{where}: {key}: {values[key]!r} is not allowed; {words}.") from error


def allowed_of(field: FieldInfo) -> str:
    """What a field may hold, in words, by its type and bounds: ``allowed: a number above 0``."""
    choices = _choices(field.annotation)
    if choices:
        return f"allowed: {', '.join(choices)}"
    bounds = [
        f"{word} {getattr(rule, name):,}"
        for rule in field.metadata
        for name, word in _BOUNDS
        if getattr(rule, name, None) is not None
    ]
    kind = next((_KINDS[one] for one in _types(field.annotation) if one in _KINDS), "a text")
    return f"allowed: {kind} {' and '.join(bounds)}".rstrip()


def _is_bool(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and field.annotation is bool


def _types(annotation: Any) -> tuple[Any, ...]:
    """A type, or those of which it is one, None left out."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(one for one in get_args(annotation) if one is not type(None))
    return (annotation,)


def _choices(annotation: Any) -> list[str]:
    return [
        str(choice)
        for one in _types(annotation)
        if get_origin(one) is Literal
        for choice in get_args(one)
    ]
