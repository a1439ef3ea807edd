"""Rows of COSBench's CSV files, with errors that name file, line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from schemas.errors import UserError

MISSING = "N/A"
BEYOND = str(2**63 - 1)
"""COSBench's edge of a last bucket that has none."""

_COMMA = (
    "numbers with a decimal comma cannot be read; write them with a point, or run COSBench's "
    "controller again with the Java options -Duser.language=en -Duser.country=US"
)


class Row:
    """One row; columns by position, named by the file's heading in errors."""

    def __init__(self, file: Path, line: int, cells: Sequence[str], names: Sequence[str]) -> None:
        self.file = file
        self.line = line
        self.cells = cells
        self.names = names

    def wrong(self, place: int, why: str) -> NoReturn:
        """UserError about a column."""
        name = self.names[place] if place < len(self.names) else ""
        column = f"column {place + 1}" + (f" ({name})" if name else "")
        raise UserError(f"{self.file}, line {self.line}, {column}: {why}.")

    def check_width(self, columns: int, most: int) -> None:
        """Raise UserError if the row has more than the `most` columns of its heading."""
        if columns > most:
            self.wrong(most, f"{columns} columns stand where the heading has {most}: {_COMMA}")

    def text(self, place: int) -> str:
        """A column's text; UserError where the row ends before it."""
        if place >= len(self.cells):
            self.wrong(place, "the row ends before it")
        return self.cells[place].strip()

    def count(self, place: int) -> int:
        """A whole number, 0 or more."""
        text = self.text(place)
        if not text.isascii() or not text.isdigit():
            self.wrong(place, f"{text!r} is no count")
        return int(text)

    def number(self, place: int) -> float | None:
        """A number, 0 or more; None for N/A."""
        text = self.text(place)
        if text == MISSING:
            return None
        return self._float(place, text)

    def seconds(self, place: int) -> float | None:
        """Milliseconds as seconds; None for N/A."""
        value = self.number(place)
        # COSBench writes two places: what division adds beyond nine is noise.
        return None if value is None else round(value / 1e3, 9)

    def percentile(self, place: int) -> float | None:
        """Return milliseconds as seconds, infinity beyond the last bucket, None for N/A."""
        return math.inf if self.text(place) == BEYOND else self.seconds(place)

    def rate(self, place: int) -> float:
        """A number, 0 or more; 0 for N/A."""
        return self.number(place) or 0.0

    def share(self, place: int) -> float | None:
        """``99.5%`` as 0.995; None for N/A."""
        text = self.text(place)
        if text == MISSING:
            return None
        if not text.endswith("%"):
            self.wrong(place, f"{text!r} is no percentage")
        # To seven places: 99.9 / 100 is 0.9990000000000001.
        return round(self._float(place, text[:-1]) / 100, 7)

    def _float(self, place: int, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            comma = f"; {_COMMA}" if "," in text else ""
            self.wrong(place, f"{text!r} is no number{comma}")
        if not 0 <= value < float("inf"):
            self.wrong(place, f"{text!r} is no number of 0 or more")
        return value

    def moment(self, place: int) -> datetime:
        """``2026-11-21 05:29:50``: the controller's local time."""
        return self.when(place, self.text(place))

    def when(self, place: int, text: str) -> datetime:
        """See `moment`, for a part of a column."""
        try:
            return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            self.wrong(place, f"{text!r} is no date and time")


def lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of a file, empty lines left out.

    Raises:
        UserError: it cannot be read, or is no CSV.
    """
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            reader = csv.reader(handle, strict=True)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path} cannot be read as CSV: {reason}.") from error


def table(path: Path, heading: Sequence[str]) -> Iterator[Row]:
    """Rows of a file that begins with `heading`; a last column may be followed by more of its kind.

    Raises:
        UserError: the file is empty or another heading stands there.
    """
    found = lines(path)
    number, names = next(found, (1, []))
    for place, name in enumerate(heading):
        if place >= len(names) or names[place].strip() != name:
            stands = repr(names[place]) if place < len(names) else "the line's end"
            Row(path, number, names, heading).wrong(place, f"{stands} stands there")
    for number, cells in found:
        yield Row(path, number, cells, heading)
