"""Base of the cells' models, and the choice of the model that fits a cell."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError, model_validator
from pydantic.fields import FieldInfo

from schemas.errors import UserError, not_allowed, unknown
from schemas.model import Model
from schemas.sizes import counts_of, size_name
from schemas.yaml_file import plain_message

SIZE = "size"

_BOUNDS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


class CellParameters(Model):
    """Parameters of one cell. Every kind adds a `controller`, a field or a property: the name under
    which the engine counts the result. `ALLOWED` gives the allowed values of a field in words if
    its type does not."""

    ALLOWED: ClassVar[Mapping[str, str]] = {}

    @property
    def memory_mib(self) -> float:
        """Rough upper bound of the memory to compute the cell; 0 for hardly any."""
        return 0.0

    def contents(self) -> str:
        """Return a name of the contents, such as objects, that cells share. Cells that share them
        run one after another."""
        raise NotImplementedError

    def label(self) -> str:
        """Return a short text for people."""
        raise NotImplementedError

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return every parameter that a campaign file may name."""
        return tuple(cls.model_fields)

    @classmethod
    def allowed(cls, name: str) -> str:
        """Return the values that the parameter `name` may have, in words."""
        if name in cls.ALLOWED:
            return cls.ALLOWED[name]
        return _allowed_of(cls.model_fields[name])

    @classmethod
    def stands_for(cls, _: Mapping[str, Any]) -> dict[str, str]:
        """Return, by field, the name of the given value behind it."""
        return {}


class SizedCell(CellParameters):
    """Parameters with two fields, named by `SIZED`, that one word `size` can give (``1K-10K``).
    `SIZE_EXAMPLE` is such a word."""

    SIZED: ClassVar[tuple[str, str]]
    SIZE_EXAMPLE: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _without_size(cls, values: Any) -> Any:
        """Replace `size` by the two fields, so that a cell has only one notation."""
        if not isinstance(values, Mapping) or SIZE not in values:
            return values
        plain = dict(values)
        if set(cls.SIZED) & set(plain):
            raise ValueError(f"size already says {' and '.join(cls.SIZED)}: keep one of them")
        counts = counts_of(str(plain.pop(SIZE)), of=cls.SIZED, example=cls.SIZE_EXAMPLE)
        return plain | dict(zip(cls.SIZED, counts, strict=True))

    @property
    def size(self) -> str:
        """Size in one word: ``10K-10M``."""
        first, second = (getattr(self, name) for name in self.SIZED)
        return size_name(first, second)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return (SIZE, *cls.model_fields)

    @classmethod
    def allowed(cls, name: str) -> str:
        if name == SIZE:
            return f"{'-'.join(cls.SIZED)}, such as {cls.SIZE_EXAMPLE}"
        return super().allowed(name)

    @classmethod
    def stands_for(cls, values: Mapping[str, Any]) -> dict[str, str]:
        return dict.fromkeys(cls.SIZED, SIZE) if SIZE in values else {}


C = TypeVar("C", bound=CellParameters)


class Cells(Generic[C]):
    """The cells of a kind: a union of models, discriminated by fields with literal values.

    Args:
        members: the models.
        by: the fields that discriminate them, one after another.
        idle: parameters that a campaign may give to all of its cells; cells with a model that
            lacks them run without them. Any other such parameter must have its default.
    """

    def __init__(self, *members: type[C], by: tuple[str, ...], idle: Collection[str] = ()) -> None:
        self.members, self._by, self._idle = members, by, idle
        self.names = tuple(dict.fromkeys(name for one in members for name in one.names()))
        self._defaults: dict[str, Any] = {}
        for one in members:
            for name, item in one.model_fields.items():
                if not item.is_required():
                    self._defaults.setdefault(name, _default(item))
        self._defaults = dict.fromkeys(self.names) | self._defaults
        self._defaults.pop(SIZE, None)

    def of(self, **values: Any) -> C:
        """Return a cell with these parameters; see `check`."""
        return self.check(values, "cell")

    def check(self, values: Mapping[str, Any], where: str) -> C:
        """Return a cell's typed parameters; None counts as not given. UserError: file and grid
        (`where`), parameter, and the values that are allowed."""
        values = {name: value for name, value in values.items() if value is not None}
        for name in values:
            if name not in self.names:
                raise unknown("parameter", name, self.names, where=where)
        try:
            model = self.model_of(values)
            own = self._own(model, values)
        except ValueError as error:
            raise UserError(error, where=where) from error
        return _checked(model, own, where)

    def model_of(self, values: Mapping[str, Any]) -> type[C]:
        """Return the model that fits a cell's values. ValueError: a discriminating parameter is
        missing or has another value; the message names the allowed ones."""
        fitting, so_far = self.members, ""
        for name in self._by:
            allowed = [value for one in fitting for value in _literals(one, name)]
            words = f"allowed: {', '.join(dict.fromkeys(allowed))}"
            defaults = [one.model_fields[name].default for one in fitting]
            value = values.get(name, next((d for d in defaults if d in allowed), None))
            if value is None:
                raise ValueError(f"{name} is missing; {words}")
            if value not in allowed:
                here = so_far if value in _values(self.members, name) else ""
                raise ValueError(f"{name}: {value!r} is not allowed{here}; {words}")
            fitting = tuple(one for one in fitting if value in _literals(one, name))
            so_far = f" with {name} {value}"
        return fitting[0]

    @property
    def fields(self) -> tuple[str, ...]:
        """Every parameter of the kind."""
        return tuple(self._defaults)

    def defaults(self, *names: str) -> dict[str, Any]:
        """Return the defaults of these parameters; None for a parameter without default."""
        return {name: self._defaults[name] for name in names}

    def row(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every parameter of the kind: the cell's, else the default; None for a
        parameter without default."""
        return {**self._defaults, **parameters}

    def current(self, older: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a cell from the time of one model for all operations.
        ValueError: see `model_of`."""
        return {
            name: older.get(name, None if item.is_required() else _default(item))
            for name, item in self.model_of(older).model_fields.items()
        }

    def _own(self, model: type[C], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that belong to the model. ValueError: a value would have no effect; the
        message says where it belongs."""
        known = model.names()
        for name, value in values.items():
            if name in known or name in self._idle or value == self._defaults[name]:
                continue
            by = self._by[-1] if len(self._by) == 1 else self._by[0]
            having = [one for one in self.members if name in one.model_fields]
            if set(_values(having, by)) & set(_literals(model, by)):
                by = self._by[-1]
            of, this = _values(having, by), values.get(by, self._defaults[by])
            raise ValueError(f"{name} belongs to {by} {', '.join(of)}: leave it out of {this}")
        return {name: value for name, value in values.items() if name in known}


def _default(item: FieldInfo) -> Any:
    return item.get_default(call_default_factory=True)


def _values(models: Collection[type[CellParameters]], name: str) -> list[str]:
    return list(dict.fromkeys(value for one in models for value in _literals(one, name)))


def _literals(model: type[CellParameters], name: str) -> tuple[Any, ...]:
    return get_args(model.model_fields[name].annotation)


def _checked(model: type[C], values: Mapping[str, Any], where: str) -> C:
    for name, value in values.items():
        # YAML's yes/no would pass for 1/0, and vice versa.
        field = model.model_fields.get(name)
        if isinstance(value, bool) != (field is not None and field.annotation is bool):
            raise not_allowed(f"{where}: {name}", value, model.allowed(name))
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        place = error.errors()[0]["loc"]
        if not place:
            raise UserError(plain_message(error), where=where) from error
        name = str(place[0])
        allowed = model.allowed(name)
        given = model.stands_for(values)
        if name in given:
            name, allowed = given[name], f"{name} {allowed}"
        if name not in values:
            raise UserError(f"{name} is missing", where=where, allowed=allowed) from error
        raise not_allowed(f"{where}: {name}", values[name], allowed) from error


def _allowed_of(field: FieldInfo) -> str:
    """Return the values of a field by its type and bounds: ``a number above 0``."""
    kinds = (field.annotation,)
    if get_origin(field.annotation) in (Union, types.UnionType):
        kinds = tuple(one for one in get_args(field.annotation) if one is not type(None))
    choices = [str(c) for one in kinds if get_origin(one) is Literal for c in get_args(one)]
    if choices:
        return ", ".join(choices)
    bounds = [
        f"{word} {getattr(rule, name):,}"
        for rule in field.metadata
        for name, word in _BOUNDS
        if getattr(rule, name, None) is not None
    ]
    kind = next((_KINDS[one] for one in kinds if one in _KINDS), "a text")
    return f"{kind} {' and '.join(bounds)}".rstrip()
