"""A workload's credentials: read, filled into its XML, and masked wherever the XML is kept.

They come from a file that only its owner can read, or from the environment. They go into a
workload's XML, in a file of mode 0600 that is removed when the driver begins; never onto a command
line or into kept files. `cosdrive check` interprets an XML; this module treats it as text.
"""

from __future__ import annotations

import html
import json
import os
import re
import stat
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.parsers import expat

from schemas.errors import UserError

MASK = "***"
"""Replacement of a secret wherever it is shown or kept."""

SECRET_KEYS = frozenset({"password", "secretkey", "token", "usertoken", "accesskey"})
"""Keys of a config string with values that are never shown."""

VARIABLES = "HOTBED_COSBENCH_"
SWIFT_TENANTS = "/etc/hotbed/swift"
TENANTS = (SWIFT_TENANTS, "/etc/hotbed/s3")
"""On a testbed's client nodes, folders with a file for each tenant: of its Swift, of the object
gateway of its Ceph."""

LARGEST = 16 * 2**20
_KEYS = {"username", "password", "auth_url", "accesskey", "secretkey", "endpoint", "token"}
_KEYS |= {"storage_url"}
_NAMES = {"user": "username", "key": "password"}  # of a tenant's file
_ALLOWED = "auth_url, user, key (Swift); endpoint, accesskey, secretkey (S3); token, storage_url"
_NEEDED = {
    **dict.fromkeys(("swauth", "keystone", "httpauth"), ("username", "password", "auth_url")),
    **dict.fromkeys(("s3", "librados"), ("accesskey", "secretkey", "endpoint")),
}
"""Keys that an auth or storage element of a type needs, also of a real COSBench's types."""

_CONFIG = re.compile(r"""(\bconfig\s*=\s*)("[^"]*"|'[^']*')""")
_ATTRIBUTE = re.compile(rb"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_REFERENCE = re.compile(r"&(?:#\d+|#x[\da-fA-F]+|amp|lt|gt|quot|apos);")


@dataclass(frozen=True)
class Credentials:
    """Values by COSBench's key; `proxies` are addresses that serve the tenant."""

    values: Mapping[str, str] = field(repr=False)
    proxies: tuple[str, ...] = ()

    def for_cosdrive(self) -> dict[str, str]:
        """Return the values and, of two proxies or more, their addresses.

        cosdrive's requests take turns between them, as between the addresses of one name. A real
        COSBench has no such key.
        """
        if len(self.proxies) < 2:
            return dict(self.values)
        url = urlsplit(self.values.get("auth_url") or self.values.get("endpoint") or "")
        port = url.port or (443 if url.scheme == "https" else 80)
        hosts = [urlsplit(one if "//" in one else f"//{one}") for one in self.proxies]
        shown = ",".join(f"{host.hostname}:{host.port or port}" for host in hosts)
        return {**self.values, "proxies": shown}


def from_file(path: Path) -> Credentials:
    """Read credentials from a JSON file.

    Raises:
        UserError: it cannot be read, others can read it, or it does not hold credentials.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UserError(f"cannot be read: {reason}", where=f"credentials {path}") from error
    if mode & 0o077:
        raise UserError(
            f"can be read by others (mode {mode:04o})",
            where=f"credentials {path}",
            do=f"chmod 600 {path}",
        )
    return from_json(text, str(path))


def from_json(text: str, where: str) -> Credentials:
    """Read credentials from JSON: an object of texts, and of a list `proxies`.

    Raises:
        UserError: it is none; never repeats a value.
    """
    try:
        document: Any = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UserError(
            "is no JSON object",
            where=f"credentials {where}",
            allowed=f"a JSON object of {_ALLOWED}",
        )
    values: dict[str, str] = {}
    for name, value in document.items():
        key = _NAMES.get(name, name)
        if name == "proxies" or (name == "s3" and isinstance(value, bool)):
            continue  # s3, in a tenant's file, is no credential
        if key not in _KEYS or not isinstance(value, str) or not _fits(value):
            raise UserError(
                f"{name!r} is not known, or no text without ';'",
                where=f"credentials {where}",
                allowed=f"a JSON object of {_ALLOWED}",
            )
        values[key] = value
    proxies = document.get("proxies", [])
    if not isinstance(proxies, list) or not all(isinstance(one, str) for one in proxies):
        raise UserError(
            "proxies is no list of addresses",
            where=f"credentials {where}",
            allowed='["http://HOST:PORT", ...]',
        )
    return Credentials(values, tuple(proxies))


def _fits(value: str) -> bool:
    return bool(value) and ";" not in value and value.isprintable()


def from_environment() -> Credentials:
    """Read credentials from HOTBED_COSBENCH_USERNAME, _PASSWORD, _AUTH_URL and so on, if set.

    Raises:
        UserError: one cannot be part of a config string.
    """
    values = {}
    for key in _KEYS:
        value = os.environ.get(VARIABLES + key.upper())
        if value is None:
            continue
        if not _fits(value):
            raise UserError(f"{VARIABLES}{key.upper()} is empty, or has a ';' in it")
        values[key] = value
    return Credentials(values)


def found_in(path: Path | None) -> Credentials:
    """Return the file's credentials and, for keys that it lacks, the environment's.

    Raises:
        UserError: as `from_file` and `from_environment`.
    """
    given = from_environment()
    if path is None:
        return given
    said = from_file(path)
    return Credentials({**given.values, **said.values}, said.proxies)


def read_xml(path: Path) -> str:
    """Return a workload's XML as text.

    Raises:
        UserError: it cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"has more than {LARGEST >> 20} MiB: it is no workload", where=path)
        return path.read_text(encoding="utf-8-sig")  # some editors write a byte-order mark
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path) from error
    except UnicodeDecodeError as error:
        raise UserError("is no text in UTF-8", where=path) from error


def masked(text: str) -> str:
    """Return `text` with the value of every secret key of every config string as ``***``."""

    def mask(found: re.Match[str]) -> str:
        quote, body = found[2][0], found[2][1:-1]
        # Any character may be written as a reference, also those that divide keys and values.
        plain = _REFERENCE.sub(lambda one: html.unescape(one[0]), body)
        hidden = ";".join(_masked_pair(part) for part in plain.split(";"))
        if hidden == plain:
            return found[0]
        written = _escaped(hidden) if quote == '"' else _escaped(hidden).replace("'", "&apos;")
        return f"{found[1]}{quote}{written}{quote}"

    return _CONFIG.sub(mask, text)


def _masked_pair(part: str) -> str:
    key, equals, value = part.partition("=")
    return f"{key}={MASK}" if equals and value and key.strip().lower() in SECRET_KEYS else part


def _escaped(value: str) -> str:
    for plain, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        value = value.replace(plain, written)
    return value


def secrets(text: str) -> frozenset[str]:
    """Return every secret in a workload's XML; nothing if it is no XML."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError:
        return frozenset()
    found = {value for _, key, value in _pairs(root) if key.lower() in SECRET_KEYS}
    return frozenset(found - {MASK, ""})


def scrubbed(text: str, hidden: frozenset[str]) -> str:
    """Return `text` without any of the secrets, plain or escaped; for logs of other programs."""
    for secret in sorted(hidden, key=len, reverse=True):
        for form in {secret, _escaped(secret)}:
            text = text.replace(form, MASK)
    return text


def filled(text: str, values: Mapping[str, str], where: str) -> str:
    """Return the workload with credentials.

    Each ``***`` is replaced, and missing keys of the outermost auth and storage elements are
    added. The file's own values stay, and every element keeps its line: cosdrive names lines
    of the user's file.

    Args:
        text: the XML.
        values: of username, password, auth_url, accesskey, secretkey, endpoint, token,
            storage_url, as far as known; and proxies, which go to the storage.
        where: the file's name, for errors.

    Raises:
        UserError: it is no XML, has a document type, or a ``***`` stays.
    """
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise UserError(
            f"no XML ({reason})", where=f"{where}, line {line}, column {column + 1}"
        ) from None
    places = _start_tags(text.encode(), where)
    before = [element.get("config") for element in root.iter()]
    for element, key, value in list(_pairs(root)):
        if value == MASK and key.lower() in values:
            _set(element, key, values[key.lower()])
    for element in (*root.findall("auth"), *root.findall("storage")):
        kind, own = element.get("type", ""), dict(_config(element))
        needed = _NEEDED.get(kind, ())
        if element.tag == "storage" and kind in ("swift", "s3") and "proxies_file" not in own:
            needed = (*needed, "proxies")
        for key in needed:
            if key in values and not own.get(key):
                _set(element, key, values[key])
    for element, key, value in _pairs(root):
        if value == MASK:
            raise UserError(
                f"{key} of <{element.tag}> is masked ({MASK})",
                where=where,
                do=(
                    "give it by --credentials, a file that only you can read, or in the "
                    "environment (docs/cosbench.md)"
                ),
            )
    after = [element.get("config") for element in root.iter()]
    made = text.encode()
    # From the end on, so that earlier places stay valid.
    for place, old, new in reversed(list(zip(places, before, after, strict=True))):
        if new is not None and new != old:
            made = _with_config(made, place, new)
    return made.decode()


def _start_tags(text: bytes, where: str) -> list[int]:
    """Return the place of each element, in the file's order; `text` is well-formed."""
    parser = expat.ParserCreate("utf-8")
    found: list[int] = []

    def refuse(*_: object) -> None:
        raise UserError(
            "document types (<!DOCTYPE ...>) are not supported",
            where=f"{where}, line {parser.CurrentLineNumber}",
            do="take it out",
        )

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda *_: found.append(parser.CurrentByteIndex)
    parser.Parse(text, True)
    return found


def _with_config(text: bytes, start: int, config: str) -> bytes:
    """Write another config into the element that begins at `start`, on as many lines as before."""
    name = re.compile(rb"<[^\s/>]+").match(text, start)
    assert name is not None
    # Blanks here were references: a parser reads plain blanks as spaces.
    written = re.sub(r"[\t\n\r]", lambda blank: f"&#{ord(blank[0])};", _escaped(config))
    at, value = name.end(), f'config="{written}"'.encode()
    while (attribute := _ATTRIBUTE.match(text, _last_blank(text, at))) is not None:
        at = attribute.end()
        if attribute[1] == b"config":
            lines = b"\n" * attribute[2].count(b"\n")
            return text[: attribute.start(1)] + value + lines + text[at:]
    return text[:at] + b" " + value + text[at:]


def _last_blank(text: bytes, at: int) -> int:
    while text[at : at + 2].isspace() and len(text) > at + 1:
        at += 1
    return at


def _config(element: ET.Element) -> list[tuple[str, str]]:
    """Return keys and values; a key may be there more than once."""
    parts = (part.partition("=") for part in element.get("config", "").split(";"))
    return [(key.strip(), value.strip()) for key, equals, value in parts if equals]


def _pairs(root: ET.Element) -> Iterator[tuple[ET.Element, str, str]]:
    for element in root.iter():
        for key, value in _config(element):
            yield element, key, value


def _set(element: ET.Element, key: str, value: str) -> None:
    """Put `value` in the place of each mask or gap of that key, at the end if the key is absent."""
    parts = [part.strip() for part in element.get("config", "").split(";") if part.strip()]
    pairs = [tuple(word.strip() for word in part.partition("=")) for part in parts]
    made = [
        f"{key}={value}" if pair in ((key, "=", MASK), (key, "=", "")) else part
        for pair, part in zip(pairs, parts, strict=True)
    ]
    if not any(name == key for name, *_ in pairs):
        made.append(f"{key}={value}")
    element.set("config", ";".join(made))


def planned_seconds(text: str) -> dict[str, float]:
    """Return the longest planned time of each stage by name, to show the time left.

    Works that end by a count have none. Nothing if it is no XML.
    """
    try:
        root = ET.fromstring(text)
    except ET.ParseError:
        return {}
    found: dict[str, float] = {}
    for stage in root.iter("workstage"):
        works = [_number(one, "rampup") + _number(one, "runtime") for one in stage.iter("work")]
        found[stage.get("name", "")] = max(works, default=0.0) + _number(stage, "closuredelay")
    return found


def _number(element: ET.Element, key: str) -> float:
    try:
        return float(element.get(key, "0"))
    except ValueError:
        return 0.0
