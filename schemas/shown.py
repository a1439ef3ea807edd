"""Texts from outside, made safe to show.

Standard library only: the agent side imports this file.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

_ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that a terminal may act on (ECMA-48, bidirectional text), or cannot print."""


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def clean(text: str, escape: Callable[[str], str] = _escape, keep: str = "\n\t") -> str:
    """Return `text` with control, format, surrogate and line-separator characters escaped, except
    those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        escape(each) if unicodedata.category(each) in _ACTING and each not in keep else each
        for each in text
    )


def line(text: str) -> str:
    """Return `text` as one line: `clean`, with newlines and tabs escaped as well."""
    return clean(text, keep="")
