"""Expected errors: their type, their fields and the facts that they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

E = TypeVar("E", bound=BaseException)


@contextmanager
def raises(kind: type[E], *facts: str, **fields: str) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error of this type.

    Args:
        kind: the type.
        facts: names, numbers and commands that its message must have.
        fields: text that a field must have, such as ``where="a.yaml"``; "" for an empty field.
    """
    with pytest.raises(kind) as caught:
        yield caught
    for fact in facts:
        assert fact in str(caught.value)
    for name, text in fields.items():
        field = str(getattr(caught.value, name))
        assert text in field if text else not field, f"{name}: {field}"
