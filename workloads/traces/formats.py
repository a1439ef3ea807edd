"""How a line of each trace format is read. A row is (time_ns, size, read, offset)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.errors import UserError
from workloads.traces.requests import UNKNOWN_OFFSET

Row = tuple[int, int, bool, int]

_LIMIT = 1 << 62  # what an array can hold, with room for differences
_NS_PER_US = 1000
_NS_PER_TICK = 100  # FILETIME
_KINDS = {"read": True, "write": False}
_PLAIN = {"DiskRead": True, "DiskWrite": False}


class Malformed(ValueError):
    """A line is no row of its format; the message says why."""


class Parser:
    """Takes a file's lines in order; keeps what earlier lines told (headers, the first time)."""

    name = ""

    def row(self, line: str) -> Row | None:
        """The request of a line, None for a line that is none (a header, another event).

        Raises:
            Malformed: the line should be a request and is not.
        """
        raise NotImplementedError

    def finish(self) -> None:
        """Called after the last line; UserError when the file as a whole is not of the format."""


def _whole(text: str, what: str, base: int = 10) -> int:
    try:
        if "_" in text or "+" in text:  # Python takes them; a trace does not have them
            raise ValueError
        found = int(text, base)
    except ValueError:
        raise Malformed(f"{what} {text.strip()[:40]!r} is not a number") from None
    if not 0 <= found < _LIMIT:
        raise Malformed(f"{what} {text.strip()[:40]} is out of range")
    return found


def _kind(text: str) -> bool | None:
    """Whether DiskRead or DiskWrite, however it is written, is a read; None for anything else."""
    return _KINDS.get(text.strip().lower().removeprefix("disk"))


class Plain(Parser):
    """``ns,hex size,DiskRead|DiskWrite``, as WorkloadCompactor's; a hex offset may follow. A line
    that begins with # is a comment."""

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


@dataclass
class Msr(Parser):
    """MSR Cambridge: ``Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime``.

    Timestamps are FILETIME ticks of 100 ns at which a request was issued; times count from the
    first row's. A line that begins with # is a comment. `disk` keeps the requests of one disk only.
    """

    disk: int | None = None
    name: str = "msr"
    _zero: int | None = None

    def row(self, line: str) -> Row | None:
        fields = line.split(",")
        if line[0] == "#" or fields[0].strip().lower() == "timestamp":
            return None
        if len(fields) != 7:
            raise Malformed(f"has {len(fields)} columns, not the 7 of MSR Cambridge")
        kind = _KINDS.get(fields[3].strip().lower())
        if kind is None:
            raise Malformed(f"type {fields[3].strip()[:40]!r} is not Read or Write")
        ticks = _whole(fields[0], "timestamp")
        disk = _whole(fields[2], "disk number")
        offset, size = _whole(fields[4], "offset"), _whole(fields[5], "size")
        self._zero = ticks if self._zero is None else self._zero
        time = (ticks - self._zero) * _NS_PER_TICK
        if not -_LIMIT < time < _LIMIT:
            raise Malformed(f"timestamp {ticks} lies centuries from the first")
        return None if self.disk not in {None, disk} else (time, size, kind, offset)


_EVENTS = {"DiskRead": True, "DiskWrite": False}
_NEEDED = ("TimeStamp", "ByteOffset", "IOSize")
_READ = (*_NEEDED, "ElapsedTime", "DiskNum")


def _places(header: list[str]) -> dict[str, int]:
    """Where a header line has the columns that are read, as far as it has them."""
    found = {"".join(text.split()).lower(): place for place, text in enumerate(header)}
    return {name: found[name.lower()] for name in _READ if name.lower() in found}


def _quoted(line: str) -> list[str]:
    """The columns of a line in which commas may stand in double quotes."""
    try:
        return next(csv.reader([line], skipinitialspace=True))
    except (csv.Error, StopIteration):
        raise Malformed("has a quoted column that cannot be read") from None


@dataclass
class Microsoft(Parser):
    """Microsoft production traces: columns by the header lines before ``EndHeader``, whose names
    may be in other letters. Commas in double quotes, as of file names, part no columns.

    Times are in microseconds, offsets and sizes in hex. A DiskRead or DiskWrite row is logged when
    the request is complete: it arrived ElapsedTime before (where the header has that column and
    unless `completion` is set). Init rows announce the same requests and are left out, as are all
    other events. `disk` keeps the requests of one disk only.
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
            raise Malformed(f"the header does not tell the columns of {event}")
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


FORMATS: dict[str, Callable[[], Parser]] = {"plain": Plain, "msr": Msr, "microsoft": Microsoft}


def make_parser(name: str, *, disk: int | None = None, completion: bool = False) -> Parser:
    """A fresh parser.

    Raises:
        UserError: there is no such format, or it does not tell disks.
    """
    if name not in FORMATS:
        raise UserError(f"trace format {name!r}: known are {', '.join(FORMATS)}, and auto")
    if name == "msr":
        return Msr(disk=disk)
    if name == "microsoft":
        return Microsoft(disk=disk, completion=completion)
    if disk is not None:
        raise UserError("a plain trace does not tell disks: leave the disk out")
    return Plain()


def detect(lines: list[str]) -> str:
    """The format of a file that begins with `lines`.

    Raises:
        UserError: it is none of them.
    """
    written = [text.strip() for text in lines if text.strip()]
    if not written:
        raise UserError("the file is empty: a trace has a request a line")
    for line in written:
        fields = [text.strip() for text in line.split(",")]
        if fields[0] in {"BeginHeader", "EndHeader"} or fields[0].startswith("Disk"):
            return "microsoft"
        if fields[0].lower() == "timestamp":
            return "msr"
        if not fields[0].isdigit():
            continue
        if len(fields) == 7 and fields[3].lower() in _KINDS:
            return "msr"
        if len(fields) in {3, 4} and (_kind(fields[2]) is not None or fields[2].startswith("Disk")):
            return "plain"
    raise UserError(
        "the format is not known: the first lines are neither ns,hex size,DiskRead|DiskWrite, nor "
        "MSR Cambridge's 7 columns, nor a Microsoft trace's header; name it with --format"
    )
