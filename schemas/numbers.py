"""Numbers as people write them, in files and on the command line.

Standard library only: the agent side imports this file.
"""

from __future__ import annotations

import math
import re

_DIGITS = r"(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)"
EXPONENT = re.compile(rf"[-+]?{_DIGITS}[eE][-+]?[0-9]+$")
_NUMBER = re.compile(rf"[-+]?{_DIGITS}(?:[eE][-+]?[0-9]+)?")
_OTHER_BASE = re.compile(r"[-+]?(?:0[0-9_]*[0-9]|[0-9][0-9_]*(?::[0-9]+)+(?:\.[0-9_]*)?)")


def refuse_other_bases(text: str) -> None:
    """Raise ValueError if `text` is decimal to people, but octal or base 60 to YAML."""
    if _OTHER_BASE.fullmatch(text):
        what = "begins with 0, as an octal number does; write it without the 0"
        if ":" in text:
            what = "is a number of base 60 to YAML; write it in decimals"
        raise ValueError(f"{text!r} {what}, or in quotes if it is a text")


def number(text: str) -> int | float | None:
    """Return the decimal number in `text`; None if it is none. It is an int if it is whole and
    written without a point, or below 2**53 with an exponent (1e9). ValueError: it begins with a
    zero, as an octal number does."""
    text = text.strip()
    refuse_other_bases(text)
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    if math.isfinite(value) and not re.search("[.eE]", text):
        return int(text)
    return whole(value) if EXPONENT.match(text) else value


def whole(value: float) -> int | float:
    """Return a whole number that a float holds exactly as an int, others unchanged."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def plain(value: object) -> object:
    """Return the number that a text holds, and anything else unchanged."""
    try:
        found = number(value) if isinstance(value, str) else None
    except ValueError:
        return value
    return value if found is None else found
