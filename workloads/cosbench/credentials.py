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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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

_VALUE = r"""("[^"]*"|'[^']*')"""
_CONFIG = re.compile(rf"(\sconfig\s*=\s*){_VALUE}")
_TYPE = re.compile(rf"\stype\s*=\s*{_VALUE}")
_NAME = r"[\w:.-]+"
_TAG = re.compile(rf"<!--.*?-->|<(/?)({_NAME})((?:\s+{_NAME}\s*=\s*{_VALUE})*\s*)(/?)>", re.DOTALL)


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

    def refused(what: str) -> UserError:
        allowed = f'a JSON object of {_ALLOWED}, proxies (["http://HOST:PORT", ...])'
        return UserError(what, where=f"credentials {where}", allowed=allowed)

    try:
        document: Any = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise refused("is no JSON object")
    proxies = document.pop("proxies", [])
    if not isinstance(proxies, list) or not all(isinstance(one, str) for one in proxies):
        raise refused("proxies is no list of addresses")
    if isinstance(document.get("s3"), bool):
        del document["s3"]  # in a tenant's file, but no credential
    values: dict[str, str] = {}
    for name, value in document.items():
        key = _NAMES.get(name, name)
        if key not in _KEYS or not _fits(value):
            raise refused(f"{name!r} is not known, or no text without ';'")
        values[key] = value
    return Credentials(values, tuple(proxies))


def _fits(value: object) -> bool:
    return isinstance(value, str) and bool(value) and ";" not in value and value.isprintable()


def found_in(path: Path | None) -> Credentials:
    """Return the file's credentials and, for keys that it lacks, the environment's.

    Variables are HOTBED_COSBENCH_USERNAME, _PASSWORD, _AUTH_URL and so on.

    Raises:
        UserError: as `from_file`, or a variable cannot be part of a config string.
    """
    given = Credentials({}) if path is None else from_file(path)
    values = {}
    for key in _KEYS:
        value = os.environ.get(VARIABLES + key.upper())
        if value is not None and not _fits(value):
            raise UserError(f"{VARIABLES}{key.upper()} is empty, or has a ';' in it")
        if value is not None:
            values[key] = value
    return Credentials({**values, **given.values}, given.proxies)


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
        # Any character may be written as a reference, also those that divide keys and values.
        plain = html.unescape(found[2][1:-1])
        pairs = _pairs(plain)
        hidden = [
            f"{key}={MASK}" if value and key.lower() in SECRET_KEYS else part
            for part, key, value in pairs
        ]
        return found[0] if hidden == plain.split(";") else found[1] + _quoted(hidden, found[2])

    return _CONFIG.sub(mask, text)


def _pairs(config: str) -> list[tuple[str, str, str]]:
    """Return each part of a config string with its key and value; a key may be there twice."""
    parts = [(part, *part.partition("=")) for part in config.split(";")]
    return [
        (part, key.strip(), value.strip()) if equals else (part, "", "")
        for part, key, equals, value in parts
    ]


def _quoted(parts: list[str], old: str) -> str:
    """Return a config's value in XML, on as many lines as the `old` one with its quotes."""
    value = html.escape(";".join(parts), quote=False).replace(old[0], f"&#{ord(old[0])};")
    # Line ends here were references: a parser reads plain ones as spaces.
    return re.sub(r"[\t\n\r]", lambda blank: f"&#{ord(blank[0])};", f"{old[0]}{value}{old[0]}")


def secrets(text: str) -> frozenset[str]:
    """Return every secret in a workload's XML."""
    found = set()
    for config in _CONFIG.finditer(text):
        for _, key, value in _pairs(html.unescape(config[2][1:-1])):
            if key.lower() in SECRET_KEYS:
                found.add(value)
    return frozenset(found - {MASK, ""})


def scrubbed(text: str, hidden: frozenset[str]) -> str:
    """Return `text` without any of the secrets, plain or escaped; for logs of other programs."""
    for secret in sorted(hidden, key=len, reverse=True):
        for form in {secret, html.escape(secret, quote=False), html.escape(secret)}:
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
        UserError: it is no XML, or a ``***`` stays.
    """
    try:
        ET.fromstring(text)
    except ET.ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise UserError(
            f"no XML ({reason})", where=f"{where}, line {line}, column {column + 1}"
        ) from None
    depth = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal depth
        end, tag, attributes, alone = found[1], found[2], found[3], found[5]
        if tag is None:
            return found[0]  # a comment
        depth += -1 if end else 0 if alone else 1
        if end:
            return found[0]
        outermost = depth == (1 if alone else 2) and tag in ("auth", "storage")
        made = _filled_attributes(attributes, tag, values, outermost, where)
        return f"<{tag}{made}{alone}>"

    return _TAG.sub(fill, text)


def _filled_attributes(
    attributes: str, tag: str, values: Mapping[str, str], outermost: bool, where: str
) -> str:
    config = _CONFIG.search(attributes)
    old = config[2] if config else '""'
    plain = re.sub(r"[\t\n\r]", " ", old[1:-1])  # as a parser reads them
    pairs = [pair for pair in _pairs(html.unescape(plain)) if pair[0].strip()]
    needed = _needed(attributes, tag, {key for _, key, _ in pairs}) if outermost else ()
    made = []
    for part, key, value in pairs:
        if value == MASK and key.lower() not in values:
            raise UserError(
                f"{key} of <{tag}> is masked ({MASK})",
                where=where,
                do=(
                    "give it by --credentials, a file that only you can read, or in the "
                    "environment (docs/cosbench.md)"
                ),
            )
        gap = value == MASK or (not value and key in needed and key in values)
        made.append(f"{key}={values[key.lower()]}" if gap else part.strip())
    absent = [key for key in needed if key in values and key not in {key for _, key, _ in pairs}]
    made += [f"{key}={values[key]}" for key in absent]
    if made == [part.strip() for part, _, _ in pairs]:
        return attributes
    if config is None:
        end = len(attributes.rstrip())
        return f"{attributes[:end]} config={_quoted(made, old)}{attributes[end:]}"
    lines = "\n" * old.count("\n")
    return attributes[: config.start(2)] + _quoted(made, old) + lines + attributes[config.end(2) :]


def _needed(attributes: str, tag: str, own: set[str]) -> tuple[str, ...]:
    """Return the keys that an element of this type needs; cosdrive's storages can have proxies."""
    found = _TYPE.search(attributes)
    kind = found[1][1:-1] if found else ""
    proxied = tag == "storage" and kind in ("swift", "s3") and "proxies_file" not in own
    return (*_NEEDED.get(kind, ()), *(("proxies",) if proxied else ()))


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
