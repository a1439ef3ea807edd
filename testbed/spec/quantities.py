"""Sizes, rates and times as people write them: ``12GiB``, ``60MB/s``, ``500Mbit``, ``4ms``."""

from __future__ import annotations

import datetime
import math
import string
from typing import Annotated

from pydantic import BeforeValidator

from schemas.numbers import number

_BYTES = {"": 1, "B": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("kMGT", start=1)
    for unit, base in (("B", 1000), ("iB", 1024))
}
_BYTES |= {unit.replace("k", "K", 1): factor for unit, factor in _BYTES.items() if "k" in unit}
_BYTES_PER_S = {f"{unit}/s" if unit else "": factor for unit, factor in _BYTES.items()}
_BITS_PER_S = {"": 1} | {
    prefix + unit: 1000**power
    for power, prefix in enumerate(("", "k", "M", "G"))
    for unit in ("bit", "bit/s", "bps")
}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "m": 60.0, "min": 60.0}
_SECONDS |= {"h": 3600.0, "d": 86400.0}
_SI = {1000.0**power: prefix for power, prefix in enumerate(("", "k", "M", "G", "T"))}
_LETTERS = string.ascii_letters + "µ/"


def _parse(text: object, units: dict[str, int] | dict[str, float], what: str) -> float:
    unit = ""
    value = text if isinstance(text, (int, float)) and not isinstance(text, bool) else None
    if isinstance(text, str):
        amount = text.strip().rstrip(_LETTERS)
        unit = text.strip().removeprefix(amount)
        value = None if amount.startswith("-") else number(amount)
    try:
        found = float(value) * units[unit]  # type: ignore[arg-type]
        if math.isfinite(found):
            return found
    except (TypeError, KeyError, OverflowError):
        pass
    known = ", ".join(sorted((unit for unit in units if unit), key=len))
    raise ValueError(f"{text!r} is not a {what}; write a number and one of {known}")


def parse_bytes(text: object) -> int:
    """Return the bytes of ``12GiB``, ``4MB`` or a plain number; ValueError lists the units."""
    return round(_parse(text, _BYTES, "size"))


def parse_bytes_per_s(text: object) -> float:
    """Return the bytes per second of ``60MB/s`` or a plain number of bytes per second."""
    return _parse(text, _BYTES_PER_S, "bandwidth")


def parse_bits_per_s(text: object) -> float:
    """Return the bits per second of ``500Mbit`` or a plain number of bits per second."""
    return _parse(text, _BITS_PER_S, "network rate")


def parse_seconds(text: object) -> float:
    """Return the seconds of ``4ms``, ``90s``, ``25min`` or a plain number of seconds."""
    return _parse(text, _SECONDS, "time")


Bytes = Annotated[int, BeforeValidator(parse_bytes)]
BytesPerSecond = Annotated[float, BeforeValidator(parse_bytes_per_s)]
BitsPerSecond = Annotated[float, BeforeValidator(parse_bits_per_s)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]


def format_bytes(count: float) -> str:
    """Return a size for people, such as ``12.0 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_si(value: float, unit: str) -> str:
    """Return an amount for people, with three digits and an SI prefix: ``172 MB/s``, ``4.2 ms``."""
    if not math.isfinite(value):
        return "unlimited"
    shown = float(f"{value:.3g}")
    if unit == "s" and shown >= 90:
        return format_s(value)
    prefixes = {1.0: "", 1e-3: "m", 1e-6: "µ"} if unit == "s" else _SI
    factor = max((each for each in prefixes if each <= abs(shown)), default=1.0)
    return f"{shown / factor:.3g} {prefixes[factor]}{unit}"


def format_s(seconds: float) -> str:
    """Return a time for people: ``42 s``, ``3 min 05 s``, ``2 h 10 min``, ``6 d 04 h``."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def moment(at_s: float) -> str:
    """Return seconds since the epoch as a date for people: ``2026-03-01 14:05 UTC``."""
    if not math.isfinite(at_s):
        return "never"
    return datetime.datetime.fromtimestamp(at_s, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
