"""Parsers of the lines of each trace format. A row is (time_ns, size, read, offset)."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.errors import UserError
from workloads.traces.requests import UNKNOWN_OFFSET

Row = tuple[int, int, bool, int]

_LIMIT = 1 << 62  # limit of an array's values, with room for differences
_NS_PER_US = 1000
_KINDS = {"read": True, "write": False}
_PLAIN = {"DiskRead": True, "DiskWrite": False}


class Malformed(ValueError):
    """Error for a line that is no row of its format; the message gives the reason."""


class Parser:
    """Parser that takes a file's lines in order and remembers earlier ones, such as headers."""

    name = ""

    def row(self, line: str) -> Row | None:
        """Return the request of a line, None for another line (a header, another event).

        Raises:
            Malformed: the line should be a request and is not.
        """
        raise NotImplementedError

    def finish(self) -> None:
        """Check the whole file after the last line; raise UserError if it is not of the format."""


def _whole(text: str, what: str, base: int = 10, unit: int = 1) -> int:
    try:
        if "_" in text or "+" in text:  # Python accepts these; a trace does not have them
            raise ValueError
        found = int(text, base) * unit
    except ValueError:
        raise Malformed(f"{what} {text.strip()[:40]!r} is not a number") from None
    if not 0 <= found < _LIMIT:
        raise Malformed(f"{what} {text.strip()[:40]} is out of range")
    return found


def _kind(text: str) -> bool | None:
    """Return True for DiskRead, False for DiskWrite, in any spelling; None for anything else."""
    return _KINDS.get(text.strip().lower().removeprefix("disk"))


class HexSizeParser(Parser):
    """Format ``ns,hex size,DiskRead|DiskWrite`` of WorkloadCompactor; a hex offset may follow. A
    line that begins with # is a comment."""

    name = "plain"

    def row(self, line: str) -> Row | None:
        if line[0] == "#":
            return None
        fields = line.split(",")
        if len(fields) != 3 and len(fields) != 4:
            raise Malformed(f"has {len(fields)} columns, not ns,hex size,DiskRead|DiskWrite")
        kind = _PLAIN.get(fields[2])
        if kind is None:
            kind = _kind(fields[2])
        if kind is None:
            raise Malformed(f"kind {fields[2].strip()[:40]!r} is not DiskRead or DiskWrite")
        offset = _whole(fields[3], "offset", 16) if len(fields) == 4 else UNKNOWN_OFFSET
        return _whole(fields[0], "time"), _whole(fields[1], "size", 16), kind, offset


_LETTERS = {"r": True, "w": False, "read": True, "write": False}
_DIGITS = {"0": True, "1": False}
_MEANINGS = (
    {"timestamp"},
    {"disknumber", "lun", "deviceid", "volumeid", "asu"},
    {"type", "iotype", "opcode"},
    {"offset", "lba"},
    {"size", "length"},
)
"""Names of the columns to read: time, disk, kind, offset and size."""


class ColumnLayout(NamedTuple):
    """Rows of a public format, and the units of their numbers.

    Attributes:
        columns: names in their usual order, as `_heading` writes them.
        time_ns: nanoseconds in a unit of time.
        offset, size: bytes in a unit of each.
        kinds: notation of reads (True) and writes, in lower case.
        more: True if further columns may follow.
    """

    name: str
    columns: str
    time_ns: int
    offset: int = 1
    size: int = 1
    kinds: Mapping[str, bool] = _LETTERS
    more: bool = False

    def holds(self, width: int) -> bool:
        """Return True if a row may have this number of columns."""
        usual = len(self.columns.split())
        return width == usual or (self.more and width > usual)

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the columns that `_MEANINGS` lists."""
        return [next(i for i, name in enumerate(names) if name in known) for known in _MEANINGS]


LAYOUTS = (
    ColumnLayout("msr", "timestamp hostname disknumber type offset size responsetime", 100),
    ColumnLayout(
        "msr", "timestamp datetime hostname disknumber type offset size responsetime", 100
    ),
    ColumnLayout("systor17", "timestamp response iotype lun offset size", 10**9),
    ColumnLayout("alibaba", "deviceid opcode offset length timestamp", 1000),
    ColumnLayout(
        "tencent", "timestamp offset size iotype volumeid", 10**9, 512, 512, kinds=_DIGITS
    ),
    ColumnLayout("spc", "asu lba size opcode timestamp", 10**9, offset=512, more=True),
)
"""Formats with one row per request; docs/prioritymeister.md has their sources."""


def _heading(line: str) -> tuple[ColumnLayout, list[str]] | None:
    """Return the layout of a heading, and its names with only letters and digits; None for another
    line."""
    names = ["".join(filter(str.isalnum, name)).lower() for name in line.split(",")]
    found = (layout for layout in LAYOUTS if sorted(layout.columns.split()) == sorted(names))
    return next(((layout, names) for layout in found), None)


def _time(text: str, what: str, unit_ns: int) -> int:
    """Return the nanoseconds of a number that may have a fraction; smaller parts are cut off."""
    whole, dot, part = text.strip().partition(".")
    if dot and not part.isdecimal():
        raise Malformed(f"{what} {text.strip()[:40]!r} is not a number")
    fraction = int(part[:9].ljust(9, "0")) * unit_ns // 10**9 if dot else 0
    return _whole(whole, what) * unit_ns + fraction


@dataclass
class TableParser(Parser):
    """Format of `LAYOUTS`; a heading gives the order of the columns, which is else the usual one.

    Times count from the first row. A line that begins with # is a comment. `disk` keeps the
    requests of only one disk.
    """

    name: str
    disk: int | None = None
    _zero: int | None = None
    _headed: tuple[ColumnLayout, list[str]] | None = None
    _known: dict[int, tuple[ColumnLayout, list[str], list[int]]] = field(default_factory=dict)

    def row(self, line: str) -> Row | None:
        if line[0] == "#":
            return None
        if line[0].isalpha():
            self._headed, self._known = _heading(line), {}
            if self._headed is None or self._headed[0].name != self.name:
                self._headed = None
                raise Malformed(f"is neither a request nor a heading of {self.name}")
            return None
        fields = line.split(",")
        layout, names, places = self._known.get(len(fields)) or self._learn(len(fields))
        time, disk, kind, offset, size = places
        read = layout.kinds.get(fields[kind].strip().lower())
        if read is None:
            wanted = " or ".join(kind.upper() for kind in list(layout.kinds)[:2])
            raise Malformed(f"{names[kind]} {fields[kind].strip()[:40]!r} is not {wanted}")
        at = _time(fields[time], names[time], layout.time_ns)
        number = _whole(fields[disk], names[disk])
        row = (
            _whole(fields[size], names[size], unit=layout.size),
            read,
            _whole(fields[offset], names[offset], unit=layout.offset),
        )
        self._zero = at if self._zero is None else self._zero
        if not -_LIMIT < at - self._zero < _LIMIT:
            raise Malformed(f"{names[time]} {fields[time].strip()} is centuries from the first")
        return None if self.disk not in {None, number} else (at - self._zero, *row)

    def _learn(self, width: int) -> tuple[ColumnLayout, list[str], list[int]]:
        """Return layout, names and places of the columns for rows of this width."""
        usual = [(one, one.columns.split()) for one in LAYOUTS if one.name == self.name]
        for layout, names in [self._headed] if self._headed else usual:
            if layout.holds(width):
                return self._known.setdefault(width, (layout, names, layout.places(names)))
        columns = ",".join(usual[0][1])
        raise Malformed(f"has {width} columns, not those of {self.name}: {columns}")


_EVENTS = {"DiskRead": True, "DiskWrite": False}
_NEEDED = ("TimeStamp", "ByteOffset", "IOSize")
_READ = (*_NEEDED, "ElapsedTime", "DiskNum")


def _places(header: list[str]) -> dict[str, int]:
    """Return the places of the columns to read in a header line, as far as it has them."""
    found = {"".join(text.split()).lower(): place for place, text in enumerate(header)}
    return {name: found[name.lower()] for name in _READ if name.lower() in found}


def _quoted(line: str) -> list[str]:
    """Return the columns of a line that may have commas in double quotes."""
    try:
        return next(csv.reader([line], skipinitialspace=True))
    except (csv.Error, StopIteration):
        raise Malformed("has a quoted column that cannot be read") from None


@dataclass
class Microsoft(Parser):
    """Microsoft production traces: columns by the header lines before ``EndHeader``; upper and
    lower case do not matter. Commas in double quotes, as in file names, separate no columns.

    Times are in microseconds, offsets and sizes in hex. A DiskRead or DiskWrite row is logged when
    the request is complete: it arrived ElapsedTime before (if the header has this column and
    `completion` is not set). Init rows announce the same requests and are left out, like all other
    events. `disk` keeps the requests of only one disk.
    """

    disk: int | None = None
    completion: bool = False
    name: str = "microsoft"
    _columns: dict[str, dict[str, int]] = field(default_factory=dict)
    _in_header: bool = True
    _seen_end: bool = False

    def row(self, line: str) -> Row | None:
        fields = line.split(",")
        event = fields[0].strip()
        if event == "EndHeader":
            self._in_header, self._seen_end = False, True
            for name in self._columns:
                self._check(name)
            return None
        if self._in_header:
            if event in _EVENTS:
                self._columns[event] = _places(fields)
            return None
        if event not in _EVENTS:
            return None
        columns = self._columns.get(event)
        if columns is None:
            raise Malformed(f"the header has no columns of {event}")
        quote = line.find('"')
        if quote >= 0 and line.count(",", 0, quote) < max(columns.values()):
            fields = _quoted(line)
        return self._request(fields, columns, read=_EVENTS[event])

    def _check(self, event: str) -> None:
        missing = [name for name in _NEEDED if name not in self._columns[event]]
        if self.disk is not None and "DiskNum" not in self._columns[event]:
            missing.append("DiskNum")
        if missing:
            raise UserError(f"the header's line {event} has no column {missing[0]}")

    def _request(self, fields: list[str], columns: Mapping[str, int], *, read: bool) -> Row | None:
        def column(name: str, base: int = 10) -> int:
            place = columns[name]
            if place >= len(fields):
                raise Malformed(f"has {len(fields)} columns, and no {name}")
            return _whole(fields[place], name, base)

        time = column("TimeStamp")
        size, offset = column("IOSize", 16), column("ByteOffset", 16)
        if "ElapsedTime" in columns and not self.completion:
            time -= column("ElapsedTime")
        if self.disk is not None and column("DiskNum") != self.disk:
            return None
        if abs(time) >= _LIMIT // _NS_PER_US:
            raise Malformed(f"TimeStamp {time} is out of range")
        return time * _NS_PER_US, size, read, offset

    def finish(self) -> None:
        if not self._seen_end:
            raise UserError("there is no EndHeader line: the columns are not known")


FORMATS = ("plain", "microsoft", *dict.fromkeys(layout.name for layout in LAYOUTS))
_NOT_READ = {
    "FIU": re.compile(r"\d+\s+\d+\s+\S+\s+\d+\s+\d+\s+[RW]\s+\d+\s+\d+\s"),
    "blkparse": re.compile(r"\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Z]"),
}


def make_parser(name: str, *, disk: int | None = None, completion: bool = False) -> Parser:
    """Return a fresh parser.

    Raises:
        UserError: there is no such format, or it does not distinguish disks.
    """
    if name not in FORMATS:
        raise UserError(f"trace format {name!r}", allowed=f"{', '.join(FORMATS)}, and auto")
    if name == "microsoft":
        return Microsoft(disk=disk, completion=completion)
    if name != "plain":
        return TableParser(name, disk)
    if disk is not None:
        raise UserError("a plain trace has no disks", do="leave the disk out")
    return HexSizeParser()


def detect(lines: list[str]) -> str:
    """Return the format of a file that begins with `lines`.

    Raises:
        UserError: it has no known format.
    """
    written = [text.strip() for text in lines if text.strip()]
    if not written:
        raise UserError("the file is empty: a trace has a request a line")
    for line in written:
        found = _format_of(line)
        if found is not None:
            return found
    other = [name for name, form in _NOT_READ.items() if any(map(form.match, written))]
    formats = ", ".join(FORMATS)
    what = f"the format is not known: name one of {formats} with --format"
    if other:
        what = f"the format of {other[0]} is not supported; supported are {formats}"
    raise UserError(
        f"{what}; or write the trace as plain, with a line "
        "ns,hex size,DiskRead|DiskWrite,hex offset for each request"
    )


def _format_of(line: str) -> str | None:
    fields = [text.strip() for text in line.split(",")]
    if fields[0] in {"BeginHeader", "EndHeader"} or fields[0].startswith("Disk"):
        return "microsoft"
    heading = _heading(line)
    if heading is not None:
        return heading[0].name
    if not line[0].isdigit():
        return None
    for layout in LAYOUTS:
        kind = layout.places(layout.columns.split())[2]
        if layout.holds(len(fields)) and fields[kind].lower() in layout.kinds:
            return layout.name
    if len(fields) in {3, 4} and (_kind(fields[2]) is not None or fields[2].startswith("Disk")):
        return "plain"
    return None
