"""Mistakes of a person that a model finds, as errors with fields: where, what, what is allowed.

pydantic's own words ("Extra inputs are not permitted", "Input should be a valid integer") do not
say what is allowed. For a value of several kinds they do not say which place is meant.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from schemas.errors import UserError, nearest, sentence

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

Place = tuple[int | str, ...]
M = TypeVar("M", bound="BaseModel")

_ALLOWED: Mapping[str, str] = {
    "a whole number": "int_type int_parsing int_from_float int_parsing_size",
    "a number": "float_type float_parsing",
    "a finite number": "finite_number",
    "true or false": "bool_type bool_parsing",
    "a text": "string_type string_unicode",
    "a path": "path_type",
    "a list": "list_type tuple_type set_type frozen_set_type iterable_type",
    "a mapping (key: value)": "dict_type mapping_type model_type model_attributes_type",
    "nothing": "none_required",
    "a date (2026-12-01)": "date_type date_parsing date_from_datetime_parsing",
    "a time (2026-12-01T08:00Z)": "datetime_type datetime_parsing datetime_from_date_parsing",
}
_KINDS = {name: words for words, names in _ALLOWED.items() for name in names.split()}
_LIMITS: Mapping[str, str] = {
    "greater_than": "a number above {gt:,}",
    "greater_than_equal": "a number of at least {ge:,}",
    "less_than": "a number below {lt:,}",
    "less_than_equal": "a number of at most {le:,}",
    "multiple_of": "a multiple of {multiple_of:,}",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "string_pattern_mismatch": "a text of the pattern {pattern}",
    "too_short": "a list or mapping with at least {min_length} in it",
    "too_long": "a list or mapping with at most {max_length} in it",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "union_tag_invalid": "{expected_tags}",
}
_SECRET = ("password", "secret", "token", "credential")
_SHOWN = 60
"""Number of characters of a wrong value to repeat."""


@dataclass(frozen=True)
class Mistake:
    """Mistake in a person's input.

    Attributes:
        place: keys and numbers (from 0) that lead to it, from the top of the input.
        kind: pydantic's name of it.
        what: what is wrong.
        allowed: allowed keys or values; empty if the model has its own words.
        do: a suggestion, or empty.
        more: number of other wrong places.
    """

    place: Place
    kind: str
    what: str
    allowed: str
    do: str
    more: int

    @property
    def words(self) -> str:
        """The mistake and the allowed values, without a place and a full stop."""
        return sentence(self.what, "", self.allowed, self.do).removesuffix(".")

    def error(self, where: object, name: Callable[[int | str], str] = str) -> UserError:
        """Return the error to raise, at `where` (the file or option); it names no key if the whole
        input is wrong. `name` names a step of the place, such as a list item by its own name."""
        place = ".".join(name(step) for step in self.place)
        more = f" ({self.more} more)" if self.more else ""
        made = UserError(f"{self.what}{more}", where=place, allowed=self.allowed, do=self.do)
        return made.at(where)


def mistake(error: ValidationError, model: type[BaseModel]) -> Mistake:
    """Return the first mistake that `model` found; a misspelt key comes before a missing one."""
    found = [_PydanticMistake.of(each, model) for each in error.errors(include_url=False)]
    chosen = _deepest(found[0], found)
    if chosen.kind == "missing":
        strangers = (
            each
            for each in found
            if each.kind == "extra_forbidden" and each.place[:-1] == chosen.place[:-1]
        )
        lacking, chosen = chosen, next(strangers, chosen)
        if chosen is not lacking:
            found.remove(lacking)
    here = [each for each in found if each.place == chosen.place]
    others = {each.place for each in found if not _related(each.place, chosen.place)}
    return Mistake(chosen.place, chosen.kind, *_words(chosen, here), len(others))


def checked(model: type[M], data: object, where: object) -> M:
    """Return `data` as a model. UserError: the first mistake, at `where` (the file or option)."""
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise mistake(error, model).error(where) from error


@dataclass(frozen=True)
class _PydanticMistake:
    """pydantic error, at its place in the input; `fields`: keys that exist there."""

    place: Place
    kind: str
    detail: ErrorDetails
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, detail: ErrorDetails, model: type[BaseModel]) -> _PydanticMistake:
        loc, kind = detail["loc"], detail["type"]
        if kind == "extra_forbidden":
            place, around = _walk(model, loc[:-1])
            return cls((*place, loc[-1]), kind, detail, _keys(around))
        place, _ = _walk(model, loc)
        if kind.startswith("union_tag"):
            place = (*place, str(detail["ctx"]["discriminator"]).strip("'"))
        return cls(place, kind, detail)


def _words(chosen: _PydanticMistake, here: Sequence[_PydanticMistake]) -> tuple[str, str, str]:
    """Return what is wrong, what is allowed, and a suggestion."""
    if chosen.kind == "extra_forbidden":
        known = sorted({field for each in here for field in each.fields})
        if not known:
            return "there is no such key", "none here", ""
        near = nearest(str(chosen.place[-1]), known)
        return "there is no such key", ", ".join(known), near
    if chosen.kind in ("missing", "union_tag_not_found"):
        return "is missing", "", ""
    allowed = [words for each in here if (words := _allowed(each.detail)) is not None]
    if not allowed:
        said = str(chosen.detail["msg"])
        own = said.removeprefix("Value error, ")
        return (own if own != said else said[:1].lower() + said[1:]), "", ""
    literals = re.findall(r"'([^']*)'", " ".join(allowed))
    value = chosen.detail.get("ctx", {}).get("tag", chosen.detail["input"])
    return _shown(chosen), " or ".join(dict.fromkeys(allowed)), nearest(str(value), literals)


def _allowed(detail: ErrorDetails) -> str | None:
    """Return what is allowed there; None if the model has its own words."""
    if detail["type"] in _KINDS:
        return _KINDS[detail["type"]]
    limits = {key: _plain(value) for key, value in detail.get("ctx", {}).items()}
    if limits.get("max_length") == 0:
        return "nothing (leave it out)"
    if detail["type"] == "string_too_short" and limits["min_length"] == 1:
        return "a text that is not empty"
    pattern = _LIMITS.get(detail["type"])
    return None if pattern is None else pattern.format(**limits)


def _plain(limit: Any) -> Any:
    """Return 0 for 0.0, and likewise for every whole float."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _shown(found: _PydanticMistake) -> str:
    value = found.detail["input"]
    if found.kind == "union_tag_invalid":
        value = found.detail["ctx"]["tag"]
    if any(word in str(step).lower() for step in found.place for word in _SECRET):
        return "this is not allowed"
    length = " of this length" if found.kind in ("too_short", "too_long") else ""
    if isinstance(value, Mapping):
        return f"a mapping{length} is not allowed"
    if isinstance(value, (list, tuple)):
        return f"a list{length} is not allowed"
    if value is None:
        return "it is empty, which is not allowed"
    text = repr(value)
    return f"{text if len(text) <= _SHOWN else text[:_SHOWN] + '...'} is not allowed"


def _deepest(first: _PydanticMistake, found: Sequence[_PydanticMistake]) -> _PydanticMistake:
    """Return the deepest error below the first place: for a value of several kinds, pydantic lists
    the gaps of each kind, and a deep one says more than a wrong kind of the whole."""
    chosen = first
    for each in found:
        if len(each.place) > len(chosen.place) and each.place[: len(chosen.place)] == chosen.place:
            chosen = each
    return chosen


def _related(one: Place, other: Place) -> bool:
    short = min(len(one), len(other))
    return one[:short] == other[:short]


# -- from pydantic's places, which also name kinds of unions, to places in the input ---------------


def _walk(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[Place, list[Any]]:
    """Return the steps of `loc` that are keys and numbers of the input, and what is allowed there.

    For a value of several kinds, pydantic adds the name of the kind to `loc`.
    """
    here: list[Any] = [model]
    place: list[int | str] = []
    steps = list(loc)
    while steps:
        alternatives = [each for one in here for each in _alternatives(one)]
        if len(alternatives) > 1:
            here = _narrowed(alternatives, str(steps.pop(0)))
            continue
        step = steps.pop(0)
        if step == "[key]":
            continue
        place.append(step)
        here = [below for each in alternatives for below in _below(each, step)]
    return tuple(place), here


def _alternatives(annotation: Any) -> list[Any]:
    """Return the possible kinds of a value, except None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [one for one in get_args(annotation) if one is not type(None)]
        return [each for one in kinds for each in _alternatives(one)]
    return [annotation]


def _narrowed(alternatives: Sequence[Any], label: str) -> list[Any]:
    """Return the kinds that pydantic calls `label`: a discriminator's value, or a kind's name."""
    if label.startswith("function-"):  # function-before[name(), kind]
        label = label.partition("), ")[2]
    tagged = [each for each in alternatives if _is_model(each) and label in _tags(each)]
    named = [each for each in alternatives if _name(each) == label.partition("[")[0].lower()]
    return (tagged or named or list(alternatives))[:1]


def _below(annotation: Any, step: int | str) -> list[Any]:
    if _is_model(annotation):
        fields = annotation.model_fields
        found = fields.get(step) or next(
            (field for field in fields.values() if step in (field.alias, field.validation_alias)),
            None,
        )
        return [] if found is None else [found.annotation]
    arguments = [each for each in get_args(annotation) if each is not Ellipsis]
    origin = get_origin(annotation)
    if not arguments or not isinstance(origin, type):
        return []
    if issubclass(origin, Mapping):
        return [arguments[-1]]
    if origin is tuple and isinstance(step, int) and len(arguments) > 1:
        return arguments[step : step + 1]
    return [arguments[0]]


def _keys(around: Iterable[Any]) -> tuple[str, ...]:
    models = [each for one in around for each in _alternatives(one) if _is_model(each)]
    return tuple(
        field.alias or name for each in models for name, field in each.model_fields.items()
    )


def _tags(model: Any) -> set[str]:
    return {
        str(value)
        for field in model.model_fields.values()
        if get_origin(field.annotation) is Literal
        for value in get_args(field.annotation)
    }


def _name(annotation: Any) -> str:
    return str(getattr(get_origin(annotation) or annotation, "__name__", annotation)).lower()


def _is_model(annotation: Any) -> bool:
    from pydantic import BaseModel

    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
