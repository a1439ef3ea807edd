"""Replaces what tells of somebody's machines, the same thing by the same other thing everywhere:
addresses by those that RFC 5737 and RFC 3849 set aside for documents, folders and host names by
words. Numbers stay as they are, so that figures and claims come out as they did."""

from __future__ import annotations

import io
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from analysis.bundle import hosts as machine_names
from analysis.bundle import private
from analysis.bundle.hosts import is_distinct
from schemas.errors import UserError

_V4 = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")

_USER = re.compile(rb"(?<![\w.+-])(?!someone@)[\w.+-]{1,64}@(?=host-\d)")


def _v4() -> Iterator[str]:
    return chain.from_iterable(map(str, ipaddress.ip_network(net).hosts()) for net in _V4)


def _v6() -> Iterator[str]:
    return (f"2001:db8::{number:x}" for number in range(1, 2**16))


def _mac() -> Iterator[str]:
    return (f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}" for number in range(1, 2**16))


class Redactor:
    """Remembers what it has put in which place; `counts` says how often, by kind."""

    def __init__(self, folders: Mapping[str, str], hosts: Mapping[str, str] | None = None) -> None:
        """`folders` and `hosts`: absolute folders and host names, and what is written instead."""
        self.counts: Counter[str] = Counter()
        self._folders = _words(folders, before=rb"")
        self._names = {
            old.encode(): new.encode() for old, new in {**folders, **(hosts or {})}.items()
        }
        self._machines: dict[str, str] = {}
        self._learn(hosts or {})
        self._pools: dict[str, Iterator[str]] = {
            "addresses": _v4(),
            "IPv6 addresses": _v6(),
            "hardware addresses": _mac(),
        }
        self._given: dict[bytes, bytes] = {}
        self._harmless: set[str] = set()

    def _learn(self, hosts: Mapping[str, str]) -> None:
        self._machines |= hosts
        self._names |= {old.encode(): new.encode() for old, new in hosts.items()}
        before = private.begins(rb"[\w.-]")
        self._hosts = _words(self._machines, before=before)
        distinct = {name: new for name, new in self._machines.items() if is_distinct(name)}
        self._distinct = _words(distinct, before=before)
        self._plain = [name.encode() for name in self._machines.keys() - distinct.keys()]

    def has_plain(self, data: bytes) -> bool:
        """Whether a machine is called by a word of this text that a program may have as well."""
        return any(name in data for name in self._plain)

    def named_in(self, data: bytes) -> int | None:
        """The line of the first machine's name in a text that can be nothing else."""
        found = self._distinct.search(data) if self._distinct is not None else None
        return data.count(b"\n", 0, found.start()) + 1 if found is not None else None

    def data(self, data: bytes, *, code: bool = False) -> bytes:
        """A text file's contents.

        Args:
            data: these.
            code: whether they keep words that are machines' names too.
        """
        for name in map(bytes.decode, machine_names.machines(data)):
            if name not in self._machines:
                self._learn({name: f"host-{len(self._machines) + 1}"})
        machines = self._distinct if code else self._hosts
        mails = set(private.mails(data))
        if mails:
            data = self._replace(
                "mail addresses",
                private.MAIL,
                data,
                lambda found: b"someone@example.org" if found in mails else found,
            )
        for kind, pattern in (("folders", self._folders), ("host names", machines)):
            # Looking for a name is ten times as quick as for a pattern, and most files have none.
            if pattern is not None and any(name in data for name in self._names):
                data = self._replace(kind, pattern, data, self._names.__getitem__)
        if b"@host-" in data:
            data = self._replace("users", _USER, data, lambda _: b"someone@")
        if private.homes(data):
            data = self._replace("homes", private.HOME, data, lambda _: b"$HOME")
        for kind, found, pattern in (
            ("addresses", private.addresses_v4(data), private.IPV4),
            ("IPv6 addresses", private.addresses_v6(data), private.IPV6),
            ("hardware addresses", private.macs(data), private.MAC),
        ):
            if found:
                instead = self._instead(kind, found)
                data = self._replace(kind, pattern, data, instead)
        return data

    def _instead(self, kind: str, found: list[bytes]) -> Callable[[bytes], bytes]:
        for old in found:
            if old not in self._given:
                new = next(self._pools[kind], None)
                if new is None:
                    raise UserError(f"the runs name more {kind} than a bundle can replace.")
                self._given[old] = new.encode()
        mine = set(found)
        return lambda old: self._given[old] if old in mine else old

    def _replace(
        self,
        kind: str,
        pattern: re.Pattern[bytes],
        data: bytes,
        instead: Callable[[bytes], bytes],
    ) -> bytes:
        def new(match: re.Match[bytes]) -> bytes:
            made = instead(match[0])
            self.counts[kind] += made != match[0]
            return made

        return pattern.sub(new, data)

    def parquet(self, file: Path) -> bytes | None:
        """A Parquet file with its texts replaced; None where there is nothing to replace.

        Raises:
            UserError: it cannot be read.
        """
        import pyarrow.parquet as pq

        found = read_texts(file)
        texts, names = found.table, found.names
        made_anew: dict[str, list[str | None]] = {}
        for index, name in enumerate(texts.column_names):
            column = texts.column(index)
            values = {text: self._text(text) for text in column.unique().to_pylist() if text}
            if all(old == new for old, new in values.items()):
                continue
            made_anew[name] = [values.get(text, text) for text in column.to_pylist()]
        called = [self._text(name) for name in names]
        notes = texts.schema.metadata or {}
        noted = {self.data(key): self.data(note) for key, note in notes.items()}
        if not made_anew and called == names and noted == notes:
            return None
        table = read_parquet(file)
        for name, values_anew in made_anew.items():
            index = table.column_names.index(name)
            table = table.set_column(index, name, [values_anew])
        table = table.rename_columns(called).replace_schema_metadata(noted)
        sink = io.BytesIO()
        pq.write_table(table, sink)
        return sink.getvalue()

    def _text(self, text: str) -> str:
        if text in self._harmless:  # names of nodes and metrics are in every file
            return text
        made = self.data(text.encode()).decode()
        if made == text:
            self._harmless.add(text)
        return made


def read_parquet(file: Path) -> Any:
    """A Parquet file as a pyarrow table.

    Raises:
        UserError: it cannot be read.
    """
    return _read(file, _opened(file), None)


@dataclass(frozen=True)
class Texts:
    """Of a Parquet file: `table`, its columns of texts as a pyarrow table; `names` of all columns;
    `notes`: names within columns, and whatever else its schema says; `opaque`: columns that nobody
    looks into."""

    table: Any
    names: list[str]
    notes: list[bytes]
    opaque: list[str]


def read_texts(file: Path) -> Texts:
    """What a Parquet file says in words.

    Raises:
        UserError: it cannot be read, a text is none in UTF-8, or two columns have one name.
    """
    opened = _opened(file)
    with _told(file):
        schema = opened.schema_arrow
        names, notes = schema.names, [*_notes(schema.metadata), *_within(schema)]
        notes.append(str(opened.metadata.created_by).encode())
        opaque = _opaque(schema)
    if len(set(names)) < len(names):
        raise _unreadable(file, "two of its columns have one name")
    table = _read(file, opened, [one.name for one in schema if is_text(one.type)])
    return Texts(table, names, notes, opaque)


def _notes(metadata: Mapping[bytes, bytes] | None) -> Iterator[bytes]:
    return chain.from_iterable((metadata or {}).items())


def _within(fields: Iterable[Any]) -> Iterator[bytes]:
    """Notes on columns, and the same and the names of what is within them."""
    for one in fields:
        yield from _notes(one.metadata)
        inner = [one.type.field(index) for index in range(one.type.num_fields)]
        yield from (field.name.encode() for field in inner)
        yield from _within(inner)


def _read(file: Path, opened: Any, columns: list[str] | None) -> Any:
    with _told(file):
        table = opened.read(columns=columns)
        if columns:
            table.validate(full=True)
        return table


def _opened(file: Path) -> Any:
    import pyarrow.parquet as pq

    with _told(file):
        return pq.ParquetFile(file)


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """What is wrong with a Parquet file, as a sentence. (Names that are no UTF-8 are told late.)"""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, why: object) -> UserError:
    return UserError(f"{file}: is no Parquet file that can be read ({why}).")


def opaque_columns(file: Path) -> list[str]:
    """Columns of a Parquet file that hold texts within lists or bytes: nobody looks into those.

    Raises:
        UserError: it cannot be read.
    """
    opened = _opened(file)
    with _told(file):
        return _opaque(opened.schema_arrow)


def _opaque(schema: Iterable[Any]) -> list[str]:
    return [
        field.name
        for field in schema
        if not is_text(field.type) and any(word in str(field.type) for word in ("string", "binary"))
    ]


def is_text(kind: Any) -> bool:
    """Whether a column holds texts."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _words(names: Mapping[str, str], *, before: bytes) -> re.Pattern[bytes] | None:
    """Any of the names as a whole word."""
    if not names:
        return None
    longest_first = sorted((name.encode() for name in names), key=len, reverse=True)
    joined = b"|".join(map(re.escape, longest_first))
    return re.compile(before + b"(?:" + joined + rb")(?![\w-])")
