"""Looks through everything that is about to be packed for what must not leave."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from analysis.aside import libraries
from analysis.bundle import hosts, private
from analysis.bundle.credentials import SECRETS
from analysis.bundle.folders import workers
from analysis.bundle.pictures import told_by
from analysis.bundle.redact import is_text, read_texts
from schemas.errors import UserError

_HARMLESS = {"OS_REGION_NAME", "OS_INTERFACE", "OS_IDENTITY_API_VERSION", "OS_AUTH_TYPE"}
_HARMLESS |= {"OS_AUTH_URL", "OS_PROJECT_DOMAIN_NAME", "OS_USER_DOMAIN_NAME", "OS_PROTOCOL"}
_SHORTEST = 6  # a shorter value of a variable occurs by chance
_PICTURE = re.compile(rb'"(?:data:image/png;base64,)?(iVBOR[\w+/=\\]*)"')
_HEX = re.compile(rb"<([0-9A-Fa-f\s]{8,})>")
_BLANKS = re.compile(rb"\s{65,}")  # patterns that allow some look for them again at each
_COMMON_HOSTS = {"localhost", "host", "debian", "ubuntu", "admin", "client", "server", "node"}

_KINDS: tuple[tuple[str, Callable[[bytes], list[bytes]]], ...] = (
    ("a machine's address", private.addresses_v4),
    ("a machine's IPv6 address", private.addresses_v6),
    ("a hardware address", private.macs),
    ("a home folder", private.homes),
    ("a mail address", private.mails),
)
_HINTS = sorted({hint for _, hints, _ in SECRETS for hint in hints})


@dataclass(frozen=True)
class Finding:
    """Something that must not leave. It is not repeated: who reads this may not be who owns it."""

    file: str
    line: int  # from 1
    what: str


def words_of_this_machine(names: Iterable[str] = ()) -> dict[str, str]:
    """What is looked for literally, and what it is: this machine's host name, `names`, and the
    values of the OpenStack variables that are set (but for those that name public things)."""
    found = dict.fromkeys((name for name in names if name), "a host name that was to be hidden")
    host = socket.gethostname()
    for name in {host, host.partition(".")[0]}:
        if len(name) >= 4 and name.lower() not in _COMMON_HOSTS:
            found[name] = "this machine's host name"
    for name, value in os.environ.items():
        if name.startswith("OS_") and name not in _HARMLESS and len(value) >= _SHORTEST:
            found[value] = f"the value of the variable {name}"
    return found


def scan(
    files: Mapping[str, Path],
    words: Mapping[str, str] | None = None,
    *,
    begun: Beside | None = None,
) -> list[Finding]:
    """Everything that must not leave in `files` (name -> file), by file and line; of a Parquet
    file the line is that of its first occurrence among the distinct texts.

    Args:
        files: what to look at, names included. Of pictures it is what is written beside them: they
            are drawn from runs that are looked into.
        words: further words to look for, and what each is.
        begun: what another process looks through already, for the same words.
    """
    sought = dict(words or {})
    theirs = begun.names if begun is not None else ()
    ours = sorted(files.keys() - theirs)
    found = _look_at_all({name: files[name] for name in ours}, sought)
    if begun is not None:
        found |= begun.found()
    return [finding for name in sorted(files) for finding in found[name]]


def _look_at_all(files: Mapping[str, Path], words: Mapping[str, str]) -> dict[str, list[Finding]]:
    """Of many files another process looks at one half."""
    if workers(len(files)) == 1:
        return _look(_places(files), words)
    names = list(files)
    with Beside(words) as beside:
        for name in names[1::2]:
            beside.add(name, files[name])
        found = _look(_places({name: files[name] for name in names[::2]}), words)
        return found | beside.found()


_Place = tuple[str, Path, Path | None]
"""A file's name, where it is, and where it may have been renamed to meanwhile."""


def _places(files: Mapping[str, Path]) -> list[_Place]:
    return [(name, file, None) for name, file in files.items()]


def _look(places: Iterable[_Place], words: Mapping[str, str]) -> dict[str, list[Finding]]:
    sought = _Words(words)
    found = {name: list(_in_file(name, file, moved, sought)) for name, file, moved in places}
    together = "\n".join(found).encode()
    if any(True for _ in (*findings(together), *sought.findings(together))):
        found = {name: [*_in_name(name, sought), *inside] for name, inside in found.items()}
    return {name: list(dict.fromkeys(those)) for name, those in found.items()}


class Beside:
    """Looks through files in a process of its own, each from when it is added; ends with the
    block. (The words can be secrets: they go through a pipe.)"""

    def __init__(self, words: Mapping[str, str] | None = None) -> None:
        self._places: dict[str, _Place] = {}
        self._words = dict(words or {})
        self._process = subprocess.Popen(
            # -P: what lies in the current folder is no library, whatever its name.
            [sys.executable, "-P", "-c", "from analysis.bundle.scan import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": libraries()},
        )
        self._asked: SimpleQueue[object] = SimpleQueue()
        self._asked.put(self._words)
        self._answer = b""
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._wait()

    @property
    def names(self) -> Collection[str]:
        """Of the files that were added."""
        return self._places.keys()

    def add(self, name: str, file: Path, moved: Path | None = None) -> None:
        """Have a file looked through that nobody writes to any more; `moved`: where it may be
        renamed to meanwhile."""
        self._places[name] = (name, file, moved)
        self._asked.put((name, str(file), str(moved) if moved is not None else None))

    def found(self) -> dict[str, list[Finding]]:
        """What is in each file, waited for. What the other process did not come to the end of is
        looked through here."""
        self._wait()
        if self._process.returncode != 0:
            return _look(self._places.values(), self._words)
        return {
            name: [Finding(name, line, what) for line, what in found]
            for name, found in json.loads(self._answer).items()
        }

    def _wait(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _ask(self) -> None:
        """In a thread of its own, as the pipe takes no more when the other is behind."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(OSError), stdin:  # it may be gone
            while (asked := self._asked.get()) is not None:
                stdin.write(json.dumps(asked).encode() + b"\n")
        with stdout:
            self._answer = stdout.read()
        self._process.wait()


def main() -> None:
    """The other process: a line of words, then one for each file; the answer comes at the end."""
    words = json.loads(sys.stdin.buffer.readline())
    asked = (json.loads(line) for line in sys.stdin.buffer)
    places = ((name, Path(file), Path(to) if to is not None else None) for name, file, to in asked)
    found = _look(places, words)
    json.dump(
        {name: [(one.line, one.what) for one in those] for name, those in found.items()}, sys.stdout
    )


def _in_name(name: str, words: _Words) -> Iterator[Finding]:
    for what, _ in (*findings(name.encode()), *words.findings(name.encode())):
        yield Finding(name, 1, f"{what}, in the file's name")


def _in_file(name: str, file: Path, moved: Path | None, words: _Words) -> Iterator[Finding]:
    try:
        try:
            data = _contents(name, file)
        except (FileNotFoundError, UserError):
            if moved is None or file.exists():
                raise
            data = _contents(name, moved)
    except UserError:
        yield Finding(name, 1, "a table that cannot be read")
        return
    except _OpaqueError:
        yield Finding(name, 1, "a table with columns that cannot be looked into")
        return
    data = _BLANKS.sub(lambda blanks: blanks[0][:64], data)
    if b"iVBOR" in data:
        data = _PICTURE.sub(_beside_points, data)
    for what, start in findings(data):
        yield Finding(name, data.count(b"\n", 0, start) + 1, what)
    for what, start in words.findings(data):
        yield Finding(name, data.count(b"\n", 0, start) + 1, what)


def findings(data: bytes) -> Iterator[tuple[str, int]]:
    """What is in a text, and at which byte."""
    for what, look in _KINDS:
        for found in dict.fromkeys(look(data)):
            yield what, data.find(found)
    letters = private.letters(data)
    for name in hosts.machines(data, letters):
        yield "a machine's name", data.find(name)
    held = {hint for hint in _HINTS if hint in letters}
    for what, hints, pattern in SECRETS:
        if not held.isdisjoint(hints):
            for match in pattern.finditer(data):
                yield what, match.start()


class _Words:
    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = {word.encode(): what for word, what in words.items()}
        joined = b"|".join(map(re.escape, sorted(self._words, key=len, reverse=True)))
        self._pattern = (
            re.compile(private.begins(rb"[\w-]") + rb"(?:" + joined + rb")(?![\w-])")
            if joined
            else None
        )

    def findings(self, data: bytes) -> Iterator[tuple[str, int]]:
        if self._pattern is None or not any(word in data for word in self._words):
            return
        for match in self._pattern.finditer(data):
            yield self._words[match[0]], match.start()


class _OpaqueError(Exception):
    """A table holds what is neither a text nor a number."""


def _contents(name: str, file: Path) -> bytes:
    if name.endswith(".parquet"):
        return _texts(file)
    data = file.read_bytes()
    told = told_by(data)
    if told is None:
        return data
    return told if not data.startswith(b"%PDF-") else _in_pdf(told)


def _beside_points(picture: re.Match[bytes]) -> bytes:
    """What a picture within a page or notebook says; what only begins like one is left there."""
    try:
        told = told_by(base64.b64decode(picture[1].replace(b"\\n", b"")))
    except ValueError:
        told = None
    return picture[0] if told is None else b'"' + told.replace(b"\n", b" ") + b'"'


def _in_pdf(told: bytes) -> bytes:
    """A PDF file's words, which are in UTF-16 where they are not in ASCII, and may be in
    hexadecimal digits."""
    parts = [
        told,
        *(
            bytes.fromhex(digits.decode()[: len(digits) // 2 * 2])
            for digits in (b"".join(found.split()) for found in _HEX.findall(told))
        ),
    ]
    return b"\n".join([*parts, *(part.replace(b"\0", b"") for part in parts if b"\0" in part)])


def _texts(file: Path) -> bytes:
    """The distinct texts of a Parquet file, a line each; names of columns and notes on them too."""
    found = read_texts(file)
    if found.opaque:
        raise _OpaqueError
    table = found.table
    texts = [
        text
        for index in range(table.num_columns)
        if is_text(table.column(index).type)
        for text in table.column(index).unique().to_pylist()
        if text
    ]
    return b"\n".join([*found.notes, *(text.encode() for text in (*found.names, *texts))])
