"""The `site` block of a spec for machines of one's own, as it is written.

```yaml
site:
  kind: inventory
  options:
    inventory: hosts.ini            # an Ansible inventory, or a YAML file with a list `hosts`
    nodes: {admin: machine-a, osd: [machine-b, machine-c]}
    devices: {osd: {osd: /dev/sdb1, scratch: /dev/sdb2}}
```
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from schemas.errors import UserError
from testbed.spec import explain
from testbed.store_spec import Strict

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
_DEVICE = re.compile(r"/dev/[A-Za-z0-9._/:+=@-]+")


def _address(text: str) -> str:
    """An IP address or a host's name: nothing that ssh would take for an option."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not _HOST_NAME.fullmatch(text):
            raise ValueError(f"{text!r} is neither an IP address nor a host's name") from None
    return text


def _device(path: str) -> str:
    if not _DEVICE.fullmatch(path) or ".." in path:
        raise ValueError(
            f"{path!r} is no device: write a path such as /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 "
            "or /dev/sdb"
        )
    return path


class JumpOption(Strict):
    """A machine that ssh goes through (ProxyJump), written ``[user@]host[:port]``."""

    address: str
    user: str | None = None
    port: int = Field(default=22, ge=1, le=65535)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if "," in value:
            raise ValueError(f"{value!r}: write it as [user@]host[:port], one machine only")
        user, _, host = value.rpartition("@")
        bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", host)
        plain = re.fullmatch(r"([^:]+)(?::(\d+))?", host)
        found = bracketed or plain
        if found is None:
            raise ValueError(f"{value!r}: write it as [user@]host[:port], one machine only")
        return {
            "address": found.group(1),
            "user": user or None,
            "port": int(found.group(2) or 22),
        }

    @field_validator("address")
    @classmethod
    def _check_address(cls, text: str) -> str:
        return _address(text)

    @field_validator("user")
    @classmethod
    def _check_user(cls, text: str | None) -> str | None:
        return _user(text)


def _user(text: str | None) -> str | None:
    if text is not None and not _USER.fullmatch(text):
        raise ValueError(f"{text!r} is no user's name")
    return text


class LoginOptions(Strict):
    """How a machine is logged in on the first time; None: as said for all, else ssh's default.

    `key` is a private key's file, or a public key's whose private half an agent holds.
    """

    user: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = None
    proxy_jump: JumpOption | None = None

    @field_validator("user")
    @classmethod
    def _check_user(cls, text: str | None) -> str | None:
        return _user(text)


class HostOptions(LoginOptions):
    """One machine. `private_address` is where the other machines reach it, if not where we do;
    `host_key` is its public host key or that key's fingerprint (``SHA256:...``).
    """

    address: str
    name: str = ""
    private_address: str | None = None
    host_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"address": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _named(self) -> HostOptions:
        _address(self.address)
        if self.private_address is not None:
            try:
                ipaddress.ip_address(self.private_address)
            except ValueError:
                raise ValueError(
                    f"private_address {self.private_address!r} is no IP address"
                ) from None
        if not self.name:
            self.__dict__["name"] = self.address
        return self


class DevicesOfNode(Strict):
    """The devices of a node: the store's, in the order of the disks, and the one for files."""

    osd: tuple[str, ...] = ()
    scratch: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if isinstance(value, str):
            return {"osd": [value]}
        if isinstance(value, list | tuple):
            return {"osd": list(value)}
        if isinstance(value, Mapping) and isinstance(value.get("osd"), str):
            return {**value, "osd": [value["osd"]]}
        return value

    @model_validator(mode="after")
    def _paths(self) -> DevicesOfNode:
        paths = [_device(path) for path in (*self.osd, *filter(None, [self.scratch]))]
        if len(set(paths)) != len(paths):
            raise ValueError("a device is named twice; store and files need devices of their own")
        return self


def _list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_list), Field(min_length=1)]


class InventoryOptions(LoginOptions):
    """Options of the site `inventory`; docs/sites.md has them in full."""

    inventory: str | None = None
    hosts: tuple[HostOptions, ...] = ()
    nodes: dict[str, Names] = Field(default_factory=dict)
    devices: dict[str, DevicesOfNode] = Field(default_factory=dict)
    signal: Literal["iowait", "io_pressure"] | None = None
    known_hosts: str | None = None
    accept_host_keys: bool = False
    wipe: Annotated[tuple[str, ...], BeforeValidator(_list)] = ()

    @field_validator("wipe")
    @classmethod
    def _devices_at_nodes(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_consent(name) for name in names)

    @model_validator(mode="after")
    def _one_source(self) -> InventoryOptions:
        if self.inventory is not None and self.hosts:
            raise ValueError("give either inventory (a file) or hosts (a list), not both")
        return self


def check_consent(name: str) -> str:
    """`name` if it is ``DEVICE@NODE``.

    Raises:
        ValueError: it is not.
    """
    path, at, node = name.rpartition("@")
    if not at or not node or not _DEVICE.fullmatch(path):
        raise ValueError(f"{name!r}: write device@node, such as /dev/sdb@osd0")
    return name


def read_options(options: Mapping[str, object], where: str = "site.options") -> InventoryOptions:
    """The options, checked.

    Raises:
        UserError: one sentence for the first that is wrong.
    """
    try:
        return InventoryOptions.model_validate(dict(options))
    except ValidationError as error:
        raise explain(error, where, InventoryOptions) from error


def need_hosts(options: InventoryOptions) -> None:
    """Raise a sentence unless the options say which machines there are."""
    if options.inventory is None and not options.hosts:
        raise UserError(
            "site inventory: it needs machines: give site.options.inventory, the path of an "
            "Ansible inventory, or site.options.hosts, a list of addresses."
        )
