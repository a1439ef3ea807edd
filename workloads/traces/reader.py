"""Reader of traces of any size, line by line; it keeps one block of requests at a time."""

from __future__ import annotations

import codecs
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import IO, Literal, NoReturn

import numpy as np

from schemas.errors import UserError
from workloads.traces.formats import Malformed, Parser, Row, detect, make_parser
from workloads.traces.requests import RequestBlock

BLOCK = 1 << 16
"""Requests in a block, and the largest displacement of a request in the order of arrivals."""
_LOOK = 200  # lines at the start that show the format
_SHOWN = 20  # malformed rows that are kept
_CHUNK = 1 << 18  # bytes read at a time
_LONGEST = 1 << 16  # characters of a line; a file without line ends is no trace


@dataclass
class ReadingReport:
    """Report of a reading. `malformed` counts bad rows; `examples` holds the first of them as
    (line, reason). `reordered` counts rows that are earlier than the row before them."""

    format: str = ""
    lines: int = 0
    requests: int = 0
    malformed: int = 0
    reordered: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)

    def sentence(self, path: Path) -> str:
        """Return one sentence on the rows left out; empty if there are none."""
        return f"{path}: {self.left_out()}" if self.malformed else ""

    def left_out(self) -> str:
        """Return the number of malformed rows and the first error; empty if there are none."""
        if not self.malformed:
            return ""
        line, reason = self.examples[0]
        rows = "1 malformed row" if self.malformed == 1 else f"{self.malformed} malformed rows"
        return f"{rows} left out; the first is line {line}: {reason}"


class TraceReader:
    """Blocks of a trace's requests in order of arrival; `report` is complete after the last block.

    Args:
        path: the file; gzip is recognised by its first bytes.
        format: ``auto``, or a name of `formats.FORMATS`.
        on_error: ``skip`` malformed rows, counted, or ``stop`` at the first.
        disk: keep one disk's requests (all formats but plain).
        completion: take a Microsoft row's TimeStamp as the arrival.
        progress: called at intervals with the bytes read so far, unpacked.
        block: requests in a block.

    Raises:
        UserError: while iterating: the file cannot be read, is of no known format, is truncated
            gzip, is out of order by more than a block, or has a malformed row and `on_error` is
            ``stop``; the message names file and line.
    """

    def __init__(
        self,
        path: Path,
        *,
        format: str = "auto",
        on_error: Literal["skip", "stop"] = "skip",
        disk: int | None = None,
        completion: bool = False,
        progress: Callable[[int], None] | None = None,
        block: int = BLOCK,
    ) -> None:
        self.path = path
        self.report = ReadingReport()
        self._format = format
        self._stop = on_error == "stop"
        self._disk, self._completion = disk, completion
        self._progress = progress
        self._block = block
        self._written: int | None = None

    def __iter__(self) -> Iterator[RequestBlock]:
        self.report = ReadingReport()
        self._written = None
        rows: list[Row] = []
        for row in self._rows():
            rows.append(row)
            if len(rows) == 2 * self._block:
                self._sort(rows)
                yield self._made(rows[: self._block])
                del rows[: self._block]
        self._sort(rows)
        for begin in range(0, len(rows), self._block):
            yield self._made(rows[begin : begin + self._block])

    def detected(self) -> str:
        """Return the format of the file: the requested one, or the one of its first lines.

        Raises:
            UserError: the file cannot be read, or is of no known format.
        """
        if self._format != "auto":
            return self._format
        self.report = ReadingReport()
        with self._open() as file:
            return self._detected(list(itertools.islice(self._lines(file), _LOOK)))

    def nothing(self) -> str:
        """Return why a trace had no request, after its end, as a part of a sentence."""
        of_disk = "" if self._disk is None else f" of disk {self._disk}"
        left_out = self.report.left_out()
        return f"the trace holds no request{of_disk}" + (f": {left_out}" if left_out else "")

    def _made(self, rows: list[Row]) -> RequestBlock:
        self.report.requests += len(rows)
        self._written = rows[-1][0]
        return RequestBlock.of(rows)

    def _sort(self, rows: list[Row]) -> None:
        """Sort by arrival; the last block may still move before rows of the block before it."""
        times = np.fromiter((row[0] for row in rows), np.int64, len(rows))
        falls = int(np.count_nonzero(times[1:] < times[:-1]))
        if not falls:
            return
        self.report.reordered += falls
        rows.sort(key=itemgetter(0))
        if self._written is not None and rows[0][0] < self._written:
            early = (self._written - rows[0][0]) / 1e9
            self._refuse(
                f"or one shortly before is {early:.6g} s early, more than {self._block} requests "
                "from its place: sort the file by time"
            )

    def _rows(self) -> Iterator[Row]:
        with self._open() as file:
            yield from self._parsed(file)

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        try:
            with self.path.open("rb") as file:
                packed = file.peek(2)[:2] == b"\x1f\x8b"
                yield gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[misc]
        except (OSError, EOFError, zlib.error) as error:
            if isinstance(error, OSError) and error.strerror:
                raise UserError(f"cannot be read ({error.strerror})", where=self.path) from error
            line = self.report.lines + 1
            raise UserError(
                f"the gzip file ends or breaks at line {line} or after it ({error})",
                where=self.path,
            ) from error

    def _parsed(self, file: IO[bytes]) -> Iterator[Row]:
        lines = self._lines(file)
        name, begin = self._format, []
        if name == "auto":
            begin = list(itertools.islice(lines, _LOOK))
            name = self._detected(begin)
        parser = self._parser(name)
        take, report = parser.row, self.report
        for line in itertools.chain(begin, lines):
            report.lines += 1
            text = line.strip()
            if not text:
                continue
            try:
                row = take(text)
            except Malformed as error:
                self._malformed(str(error))
                continue
            except UserError as error:
                self._refuse(str(error))
            if row is not None:
                yield row
        self._named(parser.finish)

    def _lines(self, file: IO[bytes]) -> Iterator[str]:
        """Yield lines without reading far ahead: one endless line must not fill the memory."""
        read, rest = 0, b""
        while chunk := file.read(_CHUNK):
            if not read:
                chunk = chunk.removeprefix(codecs.BOM_UTF8)  # from spreadsheets
            read += len(chunk)
            if self._progress is not None:
                self._progress(read)
            *pieces, rest = (rest + chunk).split(b"\n")
            for piece in pieces:
                yield piece.decode("utf-8", "replace")
            if len(rest) > _LONGEST:
                raise UserError(
                    f"line {self.report.lines + 1} has no end: no trace", where=self.path
                )
        if rest:
            yield rest.decode("utf-8", "replace")

    def _detected(self, begin: list[str]) -> str:
        return str(self._named(lambda: detect(begin)))

    def _parser(self, name: str) -> Parser:
        self.report.format = name
        parser = self._named(
            lambda: make_parser(name, disk=self._disk, completion=self._completion)
        )
        assert isinstance(parser, Parser)
        return parser

    def _named(self, call: Callable[[], object]) -> object:
        """Return `call()`; add the file's name to its UserError."""
        try:
            return call()
        except UserError as error:
            raise error.at(self.path) from error

    def _malformed(self, reason: str) -> None:
        if self._stop:
            self._refuse(reason)
        self.report.malformed += 1
        if len(self.report.examples) < _SHOWN:
            self.report.examples.append((self.report.lines, reason))

    def _refuse(self, reason: str) -> NoReturn:
        raise UserError(reason, where=f"{self.path}: line {self.report.lines}")


def load(path: Path, **options: object) -> tuple[RequestBlock, ReadingReport]:
    """Return a whole trace and its report; options of `TraceReader`. 25 bytes per request."""
    reader = TraceReader(path, **options)  # type: ignore[arg-type]
    blocks = list(reader)
    return RequestBlock.joined(blocks), reader.report
