"""A workload's credentials: from a file that only its owner can read, or from the environment.

They go into a workload's XML, in a file of mode 0600 that is removed when the driver has ended;
never onto a command line, and never into what is kept.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from schemas.errors import UserError

VARIABLES = "HOTBED_COSBENCH_"
SWIFT_TENANTS = "/etc/hotbed/swift"
TENANTS = (SWIFT_TENANTS, "/etc/hotbed/s3")
"""On a testbed's client nodes, folders with a file for each tenant: of its Swift, of the object
gateway of its Ceph."""

_KEYS = {"username", "password", "auth_url", "accesskey", "secretkey", "endpoint", "token"}
_KEYS |= {"storage_url"}
_NAMES = {"user": "username", "key": "password"}  # of a tenant's file
_ALLOWED = "auth_url, user, key (Swift); endpoint, accesskey, secretkey (S3); token, storage_url"


@dataclass(frozen=True)
class Credentials:
    """Values by COSBench's key; `proxies` are addresses that serve the tenant."""

    values: Mapping[str, str] = field(repr=False)
    proxies: tuple[str, ...] = ()

    def for_cosdrive(self) -> dict[str, str]:
        """The values and, of two proxies or more, their addresses: the requests go round between
        them, as between the addresses of one name. A real COSBench has no such key."""
        if len(self.proxies) < 2:
            return dict(self.values)
        url = urlsplit(self.values.get("auth_url") or self.values.get("endpoint") or "")
        port = url.port or (443 if url.scheme == "https" else 80)
        hosts = [urlsplit(one if "//" in one else f"//{one}") for one in self.proxies]
        shown = ",".join(f"{host.hostname}:{host.port or port}" for host in hosts)
        return {**self.values, "proxies": shown}


def from_file(path: Path) -> Credentials:
    """Credentials from a JSON file.

    Raises:
        UserError: it cannot be read, others can read it, or it does not hold credentials.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UserError(f"credentials {path} cannot be read: {reason}.") from error
    if mode & 0o077:
        raise UserError(
            f"credentials {path} can be read by others (mode {mode:04o}): chmod 600 {path}."
        )
    return from_json(text, str(path))


def from_json(text: str, where: str) -> Credentials:
    """Credentials from JSON: an object of texts, and of a list `proxies`.

    Raises:
        UserError: it is none; never repeats a value.
    """
    try:
        document: Any = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UserError(f"credentials {where}: write a JSON object of {_ALLOWED}.")
    values: dict[str, str] = {}
    for name, value in document.items():
        key = _NAMES.get(name, name)
        if name == "proxies" or (name == "s3" and isinstance(value, bool)):
            continue  # whether its proxies speak S3 too is no credential
        if key not in _KEYS or not isinstance(value, str) or not _fits(value):
            raise UserError(
                f"credentials {where}: {name!r} is not known, or no text without ';': write a "
                f"JSON object of {_ALLOWED}."
            )
        values[key] = value
    proxies = document.get("proxies", [])
    if not isinstance(proxies, list) or not all(isinstance(one, str) for one in proxies):
        raise UserError(f"credentials {where}: 'proxies' is a list of addresses.")
    return Credentials(values, tuple(proxies))


def _fits(value: str) -> bool:
    return bool(value) and ";" not in value and value.isprintable()


def from_environment(environment: Mapping[str, str] | None = None) -> Credentials:
    """Credentials from HOTBED_COSBENCH_USERNAME, _PASSWORD, _AUTH_URL, _ACCESSKEY, _SECRETKEY,
    _ENDPOINT, _TOKEN and _STORAGE_URL, those that are set.

    Raises:
        UserError: one cannot be part of a config string.
    """
    found = os.environ if environment is None else environment
    values = {}
    for key in _KEYS:
        value = found.get(VARIABLES + key.upper())
        if value is None:
            continue
        if not _fits(value):
            raise UserError(f"{VARIABLES}{key.upper()} is empty, or has a ';' in it.")
        values[key] = value
    return Credentials(values)


def found_in(path: Path | None) -> Credentials:
    """What the file says and, where it is silent, the environment.

    Raises:
        UserError: as `from_file` and `from_environment`.
    """
    given = from_environment()
    if path is None:
        return given
    said = from_file(path)
    return Credentials({**given.values, **said.values}, said.proxies)
