"""What the parameters of a cell have in common, whichever kind of campaign it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

from campaigns.checked import allowed_of, checked
from schemas.sizes import counts_of, size_name

SIZE = "size"


class KindParameters(BaseModel):
    """Parameters of one cell, see `campaigns.plan.Parameters`; every kind has its own `controller`,
    `contents` and `label`. `ALLOWED` says in words what a field may hold where its type does not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ALLOWED: ClassVar[Mapping[str, str]] = {}

    @property
    def controller(self) -> str:
        """Whose doing the result is: a method, a scheduler, a policy."""
        raise NotImplementedError

    @property
    def osds(self) -> None:
        """There is no store that has a size of its own."""
        return

    @property
    def memory_mib(self) -> float | None:
        """Memory that the cell needs at most, about, of who makes it; None: hardly any."""
        return None

    def contents(self) -> str:
        """What cells share that follow each other in a block, an instance or traces."""
        raise NotImplementedError

    def label(self) -> str:
        """A short text for people."""
        raise NotImplementedError

    def canonical(self) -> dict[str, Any]:
        """JSON-able, every field present: what is hashed, stored and given to a worker."""
        return self.model_dump(mode="json")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every parameter that a campaign file may name."""
        return tuple(cls.model_fields)

    @classmethod
    def allowed(cls, name: str) -> str:
        """What the parameter `name` may hold, in words."""
        if name in cls.ALLOWED:
            return f"allowed: {cls.ALLOWED[name]}"
        return allowed_of(cls.model_fields[name])

    @classmethod
    def stands_for(cls, _: Mapping[str, Any]) -> dict[str, str]:
        """By field, the name of the value of a cell that it was made from."""
        return {}


class SizedParameters(KindParameters):
    """Parameters of which two, named by `SIZED`, may be given in one word: `size` (``1K-10K``).
    `SIZE_EXAMPLE` is such a word."""

    SIZED: ClassVar[tuple[str, str]]
    SIZE_EXAMPLE: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _without_size(cls, values: Any) -> Any:
        """One cell has one way to be written: without `size`."""
        if not isinstance(values, Mapping) or SIZE not in values:
            return values
        plain = dict(values)
        if set(cls.SIZED) & set(plain):
            raise ValueError(f"size already says {' and '.join(cls.SIZED)}: keep one of them")
        counts = counts_of(str(plain.pop(SIZE)), of=cls.SIZED, example=cls.SIZE_EXAMPLE)
        return plain | dict(zip(cls.SIZED, counts, strict=True))

    @property
    def size(self) -> str:
        """``10K-10M``."""
        first, second = (getattr(self, name) for name in self.SIZED)
        return size_name(first, second)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """See `KindParameters.names`."""
        return (SIZE, *cls.model_fields)

    @classmethod
    def allowed(cls, name: str) -> str:
        """See `KindParameters.allowed`."""
        if name == SIZE:
            return f"allowed: {'-'.join(cls.SIZED)}, such as {cls.SIZE_EXAMPLE}"
        return super().allowed(name)

    @classmethod
    def stands_for(cls, values: Mapping[str, Any]) -> dict[str, str]:
        """See `KindParameters.stands_for`."""
        return dict.fromkeys(cls.SIZED, SIZE) if SIZE in values else {}


P = TypeVar("P", bound=KindParameters)


def check(model: type[P], values: Mapping[str, Any], where: str) -> P:
    """`values` as typed parameters of a kind.

    Raises:
        UserError: file, grid, key, what is allowed; see `campaigns.checked.checked`.
    """
    return checked(
        model,
        values,
        where,
        model.allowed,
        names=model.names(),
        stands_for=model.stands_for(values),
    )
