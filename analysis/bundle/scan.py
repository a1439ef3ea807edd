"""Looks through everything that is about to be packed for what must not leave."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from analysis.bundle import private
from analysis.bundle.folders import workers
from analysis.bundle.redact import is_text, read_parquet
from schemas.errors import UserError

_HARMLESS = {"OS_REGION_NAME", "OS_INTERFACE", "OS_IDENTITY_API_VERSION", "OS_AUTH_TYPE"}
_HARMLESS |= {"OS_AUTH_URL", "OS_PROJECT_DOMAIN_NAME", "OS_USER_DOMAIN_NAME", "OS_PROTOCOL"}
_SHORTEST = 6  # a shorter value of a variable occurs by chance
_PICTURE = re.compile(rb'"(?:data:image/png;base64,)?iVBOR[\w+/=\\]*"')
_COMMON_HOSTS = {"localhost", "host", "debian", "ubuntu", "admin", "client", "server", "node"}

_KINDS: tuple[tuple[str, Callable[[bytes], list[bytes]]], ...] = (
    ("a machine's address", private.addresses_v4),
    ("a machine's IPv6 address", private.addresses_v6),
    ("a hardware address", private.macs),
    ("a home folder", private.homes),
    ("a mail address", private.mails),
)
_HINTS = sorted({hint for _, hints, _ in private.SECRETS for hint in hints})


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


def scan(files: Mapping[str, Path], words: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything that must not leave in `files` (name -> file), by file and line; of a Parquet
    file the line is that of its first occurrence among the distinct texts.

    Args:
        files: what to look at, names included. Pictures are not looked into: they are drawn from
            runs that are.
        words: further words to look for, and what each is.
    """
    names, sought = sorted(files), dict(words or {})
    if workers(len(names)) == 1:
        found = _look({name: files[name] for name in names}, sought)
    else:
        ours, theirs = ({name: files[name] for name in names[part::2]} for part in (0, 1))
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(_look_beside, theirs, sought)
            found = _look(ours, sought)
            found |= beside.result() or _look(theirs, sought)
    return [finding for name in names for finding in found[name]]


def _look(files: Mapping[str, Path], words: Mapping[str, str]) -> dict[str, list[Finding]]:
    sought = _Words(words)
    together = "\n".join(files).encode()
    named = any(True for _ in (*findings(together), *sought.findings(together)))
    return {
        name: list(
            dict.fromkeys(
                (*(_in_name(name, sought) if named else ()), *_in_file(name, file, sought))
            )
        )
        for name, file in files.items()
    }


def _look_beside(
    files: Mapping[str, Path], words: Mapping[str, str]
) -> dict[str, list[Finding]] | None:
    """What `_look` finds, in a process of its own; None where it did not come to its end. (The
    words can be secrets: they go through a pipe.)"""
    asked = {"files": {name: str(file) for name, file in files.items()}, "words": dict(words)}
    paths = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run(
        [sys.executable, "-c", "from analysis.bundle.scan import main; main()"],
        input=json.dumps(asked).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    if ran.returncode:
        return None
    return {
        name: [Finding(name, line, what) for line, what in found]
        for name, found in json.loads(ran.stdout).items()
    }


def main() -> None:
    """The other process."""
    asked = json.load(sys.stdin)
    files = {name: Path(file) for name, file in asked["files"].items()}
    found = _look(files, asked["words"])
    json.dump(
        {name: [(one.line, one.what) for one in those] for name, those in found.items()}, sys.stdout
    )


def _in_name(name: str, words: _Words) -> Iterator[Finding]:
    for what, _ in (*findings(name.encode()), *words.findings(name.encode())):
        yield Finding(name, 1, f"{what}, in the file's name")


def _in_file(name: str, file: Path, words: _Words) -> Iterator[Finding]:
    suffix = Path(name).suffix
    if suffix in (".png", ".pdf"):
        return
    try:
        data = _texts(file) if suffix == ".parquet" else file.read_bytes()
    except UserError:
        yield Finding(name, 1, "a table that cannot be read")
        return
    if b"iVBOR" in data:
        data = _PICTURE.sub(b'"', data)
    for what, start in findings(data):
        yield Finding(name, data.count(b"\n", 0, start) + 1, what)
    for what, start in words.findings(data):
        yield Finding(name, data.count(b"\n", 0, start) + 1, what)


def findings(data: bytes) -> Iterator[tuple[str, int]]:
    """What is in a text, and at which byte."""
    for what, look in _KINDS:
        for found in dict.fromkeys(look(data)):
            yield what, data.find(found)
    held = {hint for hint in _HINTS if hint in data}
    for what, hints, pattern in private.SECRETS:
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


def _texts(file: Path) -> bytes:
    """The distinct texts of a Parquet file, a line each; names of columns and notes on them too."""
    table = read_parquet(file, texts_only=True)
    notes = [note for pair in (table.schema.metadata or {}).items() for note in pair]
    texts = [
        text
        for index in range(table.num_columns)
        if is_text(table.column(index).type)
        for text in table.column(index).unique().to_pylist()
        if text
    ]
    return b"\n".join([*notes, *(text.encode() for text in texts)])
