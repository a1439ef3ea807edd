"""A workload's XML as text: secrets masked or filled in. `cosdrive check` tells what it means."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from xml.parsers import expat

from schemas.errors import UserError
from workloads.cosbench.access import MASK, SECRET_KEYS

_CONFIG = re.compile(r"""(\bconfig\s*=\s*)("[^"]*"|'[^']*')""")
_ATTRIBUTE = re.compile(rb"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_REFERENCE = re.compile(r"&(?:#\d+|#x[\da-fA-F]+|amp|lt|gt|quot|apos);")
_WEB = {"swift", "s3"}
_LOGIN = {"swauth", "keystone", "httpauth"}


def masked(text: str) -> str:
    """`text` with the value of every secret key of every config string as ``***``."""

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


def secrets(text: str) -> frozenset[str]:
    """Every secret in it, as it is used and as XML writes it. Nothing where it is no XML."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError:
        return frozenset()
    found = {value for _, key, value in _pairs(root) if key.lower() in SECRET_KEYS}
    return frozenset(found - {MASK, ""})


def scrubbed(text: str, hidden: frozenset[str]) -> str:
    """`text` without any of the secrets, wherever they are; for logs that others wrote."""
    for secret in sorted(hidden, key=len, reverse=True):
        for form in {secret, _escaped(secret)}:
            text = text.replace(form, MASK)
    return text


def _escaped(value: str) -> str:
    for plain, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        value = value.replace(plain, written)
    return value


def parsed(text: str, where: str) -> ET.Element:
    """The XML's root.

    Raises:
        UserError: it is no XML; says where it stops being one.
    """
    try:
        return ET.fromstring(text)
    except ET.ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise UserError(f"{where}, line {line}, column {column + 1}: no XML ({reason}).") from None


def name_of(text: str, where: str) -> str:
    """The workload's name.

    Raises:
        UserError: it is no workload, or has no name.
    """
    root = parsed(text, where)
    name = root.get("name", "").strip()
    if root.tag != "workload" or not name:
        raise UserError(f"{where}: a workload begins with <workload name=...>, not <{root.tag}>.")
    return name


def filled(text: str, values: Mapping[str, str], where: str) -> str:
    """The workload with credentials: each ``***`` replaced, and what the outermost auth and storage
    elements need and lack added. What the file says itself stays, and every element its line: what
    is wrong with it is told by lines of the user's file.

    Args:
        text: the XML.
        values: of username, password, auth_url, accesskey, secretkey, endpoint, token,
            storage_url, those that are known; and proxies, which go to the storage.
        where: the file's name, for errors.

    Raises:
        UserError: it is no XML, has a document type, or a ``***`` stays.
    """
    root = parsed(text, where)
    places = _start_tags(text.encode(), where)
    before = [element.get("config") for element in root.iter()]
    for element, key, value in list(_pairs(root)):
        if value == MASK and key.lower() in values:
            _set(element, key, values[key.lower()])
    for element in (*root.findall("auth"), *root.findall("storage")):
        for key in (*_needed(element), *_optional(element)):
            if key in values and not dict(_config(element)).get(key):
                _set(element, key, values[key])
    for element, key, value in _pairs(root):
        if value == MASK:
            raise UserError(
                f"{where}: {key} of <{element.tag}> is masked ({MASK}): give it by --credentials, "
                "a file that only you can read, or in the environment (docs/cosbench.md)."
            )
    after = [element.get("config") for element in root.iter()]
    made = text.encode()
    # From the end on, so that places before it stay right.
    for place, old, new in reversed(list(zip(places, before, after, strict=True))):
        if new is not None and new != old:
            made = _with_config(made, place, new)
    return made.decode()


def _start_tags(text: bytes, where: str) -> list[int]:
    """Where each element begins, in the file's order; `text` is well-formed."""
    parser = expat.ParserCreate("utf-8")
    found: list[int] = []

    def refuse(*_: object) -> None:
        raise UserError(
            f"{where}, line {parser.CurrentLineNumber}: document types (<!DOCTYPE ...>) are not "
            "supported; take it out."
        )

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda *_: found.append(parser.CurrentByteIndex)
    parser.Parse(text, True)
    return found


def _with_config(text: bytes, start: int, config: str) -> bytes:
    """With another config in the element that begins at `start`, on as many lines as before."""
    name = re.compile(rb"<[^\s/>]+").match(text, start)
    assert name is not None
    # Blanks here were references: a parser takes those that are plain for spaces.
    written = re.sub(r"[\t\n\r]", lambda blank: f"&#{ord(blank[0])};", _escaped(config))
    at, value = name.end(), f'config="{written}"'.encode()
    while (attribute := _ATTRIBUTE.match(text, _blank(text, at))) is not None:
        at = attribute.end()
        if attribute[1] == b"config":
            lines = b"\n" * attribute[2].count(b"\n")
            return text[: attribute.start(1)] + value + lines + text[at:]
    return text[:at] + b" " + value + text[at:]


def _blank(text: bytes, at: int) -> int:
    """The last of the blanks that begin at `at`."""
    while text[at : at + 2].isspace() and len(text) > at + 1:
        at += 1
    return at


def _needed(element: ET.Element) -> tuple[str, ...]:
    kind = element.get("type", "")
    if element.tag == "auth" and kind in _LOGIN:
        return ("username", "password", "auth_url")
    if element.tag == "storage" and kind in ("s3", "librados"):
        return ("accesskey", "secretkey", "endpoint")
    return ()


def _optional(element: ET.Element) -> tuple[str, ...]:
    if element.tag != "storage" or element.get("type") not in _WEB:
        return ()
    return () if "proxies_file" in dict(_config(element)) else ("proxies",)


def _config(element: ET.Element) -> list[tuple[str, str]]:
    """Keys and values; a key may be there more than once."""
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
    """How long each stage is to last at the most, by name, as far as its works end by time; to
    tell people the time left, no more. Nothing where it is no XML."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError:
        return {}
    found: dict[str, float] = {}
    for stage in root.iter("workstage"):
        longest = 0.0
        for work in stage.iter("work"):
            longest = max(longest, sum(_number(work, key) for key in ("rampup", "runtime")))
        found[stage.get("name", "")] = longest + _number(stage, "closuredelay")
    return found


def _number(element: ET.Element, key: str) -> float:
    try:
        return float(element.get(key, "0"))
    except ValueError:
        return 0.0
