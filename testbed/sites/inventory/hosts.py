"""Machines that a spec's `site` block names, directly or in an inventory file.

```yaml
site:
  kind: inventory
  options:
    inventory: hosts.ini            # an Ansible inventory, or a YAML file with a list `hosts`
    nodes: {admin: machine-a, osd: [machine-b, machine-c]}
    devices: {osd: {osd: /dev/sdb1, scratch: /dev/sdb2}}
```

Ansible itself reads every inventory file except Hotbed's short form: a YAML mapping with a list
`hosts` (and with `groups`, if wanted).
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from schemas.errors import UserError
from schemas.mistakes import mistake
from schemas.yaml_file import ContentError, load
from testbed.spec import explain
from testbed.spec.stores import SpecModel

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
_DEVICE = re.compile(r"/dev/[A-Za-z0-9._/:+=@-]+")
_JUMP = re.compile(r"(?:([^@]*)@)?(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d+))?")
_TIMEOUT_S = 60.0
_ALWAYS = {"all", "ungrouped", "_meta"}
_SECRETS = (
    *("ansible_password", "ansible_ssh_password", "ansible_ssh_pass"),
    *("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"),
    *("ansible_private_key_passphrase", "ansible_ssh_private_key_passphrase"),
    *("ansible_private_key", "ansible_ssh_private_key"),
)
_SECRET_LINE = re.compile(r"(pass|secret|token)\w*|_key\b", re.IGNORECASE)
_CALLED: Mapping[int | str, str] = {
    "address": "ansible_host",
    "private_address": "hotbed_address",
    "user": "ansible_user",
    "port": "ansible_port",
    "key": "ansible_private_key_file",
    "host_key": "hotbed_host_key",
}
"""Names of options in an Ansible inventory."""
_OLDER = (
    *("ansible_ssh_host", "ansible_ssh_user", "ansible_ssh_port"),
    *("ansible_ssh_private_key_file", "ansible_connection"),
)
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")
NAME_NOBODY = frozenset(("signal",))
"""Options that name no machine and no person: they may leave with results."""


# -- options ---------------------------------------------------------------------------------------


def is_address(text: str) -> bool:
    """Return True if `text` is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address(text: str) -> str:
    """Refuse anything that ssh might take for an option."""
    if not is_address(text) and not _HOST_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is neither an IP address nor a host's name")
    return text


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError(f"{text!r} is no user's name")
    return text


def _device(path: str) -> str:
    if not _DEVICE.fullmatch(path) or ".." in path:
        raise ValueError(
            f"{path!r} is no device: write a path such as /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 "
            "or /dev/sdb"
        )
    return path


def check_consent(name: str) -> str:
    """Return `name` if it is ``DEVICE@NODE``; raise ValueError if not."""
    path, at, node = name.rpartition("@")
    if not at or not node or not _DEVICE.fullmatch(path):
        raise ValueError(f"{name!r}: write device@node, such as /dev/sdb@osd0")
    return name


def _list(value: object) -> object:
    return [value] if isinstance(value, str) else value


User = Annotated[str, AfterValidator(_user)]
Address = Annotated[str, AfterValidator(_address)]
Device = Annotated[str, AfterValidator(_device)]
Names = Annotated[tuple[str, ...], BeforeValidator(_list), Field(min_length=1)]
Consent = Annotated[str, AfterValidator(check_consent)]


class JumpOption(SpecModel):
    """A machine that ssh goes through (ProxyJump), written ``[user@]host[:port]``."""

    address: Address
    user: User | None = None
    port: int = Field(default=22, ge=1, le=65535)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = _JUMP.fullmatch(value)
        if found is None or "," in value:
            raise ValueError(f"{value!r}: write it as [user@]host[:port], one machine only")
        user, bracketed, plain, port = found.groups()
        return {"address": bracketed or plain, "user": user or None, "port": int(port or 22)}


class LoginOptions(SpecModel):
    """Parameters of the first login; None: as given for all machines, else ssh's default.

    `key` is a private key's file, or a public key's with the private half in an agent.
    """

    user: User | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = None
    proxy_jump: JumpOption | None = None


class HostOptions(LoginOptions):
    """One machine. `private_address` is where the other machines reach it, if that differs;
    `host_key` is its public host key or that key's fingerprint (``SHA256:...``).
    """

    address: Address
    name: str = ""
    private_address: str | None = None
    host_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"address": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _named(self) -> HostOptions:
        if self.private_address is not None and not is_address(self.private_address):
            raise ValueError(f"private_address {self.private_address!r} is no IP address")
        if not self.name:
            self.__dict__["name"] = self.address
        return self


class DevicesOfNode(SpecModel):
    """The devices of a node: the store's, in the order of the disks, and the device for files."""

    osd: tuple[Device, ...] = ()
    scratch: Device | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if isinstance(value, str | list | tuple):
            value = {"osd": value}
        if isinstance(value, Mapping) and "osd" in value:
            return {**value, "osd": _list(value["osd"])}
        return value

    @model_validator(mode="after")
    def _different(self) -> DevicesOfNode:
        paths = [*self.osd, *filter(None, [self.scratch])]
        if len(set(paths)) != len(paths):
            raise ValueError("a device is named twice; store and files need devices of their own")
        return self


class InventoryOptions(LoginOptions):
    """Options of the site `inventory`; see docs/sites.md."""

    inventory: str | None = None
    hosts: tuple[HostOptions, ...] = ()
    nodes: dict[str, Names] = Field(default_factory=dict)
    devices: dict[str, DevicesOfNode] = Field(default_factory=dict)
    signal: Literal["iowait", "io_pressure"] | None = None
    known_hosts: str | None = None
    accept_host_keys: bool = False
    wipe: Annotated[tuple[Consent, ...], BeforeValidator(_list)] = ()

    @model_validator(mode="after")
    def _one_source(self) -> InventoryOptions:
        if self.inventory is not None and self.hosts:
            raise ValueError("give either inventory (a file) or hosts (a list), not both")
        return self


def read_options(options: Mapping[str, object], where: str = "site.options") -> InventoryOptions:
    """Return the options, checked. UserError: one sentence for the first that is wrong."""
    try:
        return InventoryOptions.model_validate(dict(options))
    except ValidationError as error:
        raise explain(error, where, InventoryOptions) from error


# -- inventory files -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListedMachines:
    """Machines in a file's order, and names of machines by group.

    `unusable` are machines of an Ansible inventory that Hotbed cannot reach, with the reason: they
    are refused only if a testbed needs one of them.
    """

    hosts: tuple[HostOptions, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)


class ShortFile(SpecModel):
    """Hotbed's own YAML file."""

    hosts: tuple[HostOptions, ...]
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def machines_of(options: InventoryOptions) -> ListedMachines:
    """Return the machines that the options name.

    Raises:
        UserError: the options name no machine, the file cannot be read or understood, or it names
            a machine twice.
    """
    if options.inventory is not None:
        found = read_file(Path(options.inventory).expanduser())
    elif options.hosts:
        found = _checked(ListedMachines(options.hosts), "site.options.hosts")
    else:
        raise UserError(
            "site inventory: it needs machines",
            do=(
                "give site.options.inventory, the path of an Ansible inventory, or "
                "site.options.hosts, a list of addresses"
            ),
        )
    if not (found.hosts or found.unusable):
        raise UserError(f"{options.inventory} has no machines", do="name one at least")
    return found


def names_told(options: Mapping[str, object], folder: Path) -> Iterator[str]:
    """Yield machines and users in the inventory that the options of a spec in `folder` name, also
    machines that cannot be used. UserError: the file cannot be read.
    """
    place = options.get("inventory")
    if not isinstance(place, str):
        return
    machines = read_file(folder / Path(place).expanduser())
    yield from machines.unusable
    for host in machines.hosts:
        jump = host.proxy_jump
        yield from filter(None, (host.address, host.name, host.user))
        yield from filter(None, (jump.address, jump.user) if jump is not None else ())


def read_file(path: Path) -> ListedMachines:
    """Return the machines in an inventory file. UserError: see `machines_of`."""
    if not path.exists():
        raise UserError(
            f"the inventory {path} cannot be found (a relative path starts at the spec's folder)"
        )
    return _short(path) or _by_ansible(path)


def _short(path: Path) -> ListedMachines | None:
    if path.suffix not in (".yml", ".yaml"):
        return None
    try:
        text = path.read_text()
        data = load(text, decimals=False)
        if not isinstance(data, Mapping) or not isinstance(data.get("hosts"), list):
            return None
        found = ShortFile.model_validate(load(text))
    except ContentError as error:
        raise UserError(error, where=path) from error
    except ValidationError as error:
        raise explain(error, str(path), ShortFile) from error
    except (OSError, ValueError, yaml.YAMLError):
        return None  # Ansible reports the reason
    return _checked(ListedMachines(found.hosts, found.groups), str(path))


def _checked(found: ListedMachines, where: str) -> ListedMachines:
    """Refuse repeated machines in Hotbed's own list; in Ansible's a machine may have two names."""
    names, addresses = set[str](), set[tuple[str, int | None]]()
    for host in found.hosts:
        if host.name in names:
            raise UserError(f"the machine {host.name!r} is there twice", where=where)
        if (host.address, host.port) in addresses:
            raise UserError(
                f"{host.address} is there twice, the second time as {host.name!r}", where=where
            )
        names.add(host.name)
        addresses.add((host.address, host.port))
    for group, members in found.groups.items():
        for member in members:
            if member not in names:
                raise UserError(
                    f"group {group!r} names {member!r}, which is no machine", where=where
                )
    return found


def _by_ansible(path: Path) -> ListedMachines:
    listing = ansible_listing(path)
    variables: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})
    groups = {
        group: tuple(_members(listing, group, frozenset()))
        for group in listing
        if group not in _ALWAYS
    }
    hosts, unusable = [], {}
    for name in _members(listing, "all", frozenset()):
        try:
            hosts.append(host_of(name, variables.get(name, {}), path))
        except UserError as error:
            unusable[name] = str(error)
    return ListedMachines(tuple(hosts), groups, unusable)


def _members(listing: Mapping[str, Any], group: str, passed: frozenset[str]) -> list[str]:
    """Return the machines of a group and of the groups in it, each once."""
    if group in passed:
        return []
    body = listing.get(group, {})
    found = list(body.get("hosts", []))
    for child in body.get("children", []):
        found += _members(listing, child, passed | {group})
    return list(dict.fromkeys(found))


def ansible_listing(path: Path) -> Mapping[str, Any]:
    """Return the output of ``ansible-inventory --list`` for a file.

    Raises:
        UserError: Ansible is missing or does not understand the file.
    """
    sibling = Path(sys.executable).with_name("ansible-inventory")
    program = str(sibling) if sibling.exists() else shutil.which("ansible-inventory")
    if program is None:
        raise UserError(
            "ansible-inventory is missing, which reads the inventory", do="run make setup"
        )
    environment = {
        **os.environ,
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
        "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_LOCALHOST_WARNING": "False",
    }
    try:
        done = subprocess.run(
            [program, "-i", str(path.resolve()), "--list"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"Ansible did not read this inventory within {_TIMEOUT_S:g} s", where=path
        ) from error
    try:
        data = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        data = None
    if not isinstance(data, dict):
        words = " ".join(_without_secrets(done.stderr, path).split())
        reasons = re.findall(r"(?:ERROR|Failed to parse)[^\n]*", words) or [words]
        raise UserError(f"Ansible cannot read this inventory: {reasons[0][:300]}", where=path)
    return data


def _without_secrets(message: str, path: Path) -> str:
    """Hide words of lines that may hold a secret: Ansible's messages quote lines of the files."""
    found = set[str]()
    for top in (path, path.parent / "group_vars", path.parent / "host_vars"):
        for file in (top, *top.rglob("*")):
            if not file.is_file() or not os.access(file, os.R_OK):
                continue
            for line in file.read_text(errors="replace").splitlines():
                named = _SECRET_LINE.search(line)
                found |= set(re.split(r"[\s=:'\"]+", line[named.end() :])) if named else set()
    for word in sorted(found - {""}, key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "***", message)
    return message


def host_of(name: str, variables: Mapping[str, Any], path: Path) -> HostOptions:
    """Return a machine from its variables in an Ansible inventory.

    Raises:
        UserError: a variable makes no sense, or is not supported.
    """
    where = f"{path}: machine {name}"
    for variable in (*_CALLED.values(), *_OLDER, *_ARGUMENTS):
        if "__ansible_vault" in str(variables.get(variable)):
            raise UserError(
                f"{variable} is vaulted: Hotbed decrypts no variables",
                where=where,
                do="write the value itself, unencrypted",
            )
    connection = variables.get("ansible_connection", "ssh")
    if str(connection).removeprefix("ansible.builtin.") not in ("ssh", "smart"):
        raise UserError(f"ansible_connection is {connection!r}; only ssh will do", where=where)
    for secret in _SECRETS:
        if variables.get(secret):
            raise UserError(
                f"{secret} is not used",
                where=where,
                do=(
                    "log in with a key, as root or as a user who may become root without a password"
                ),
            )
    jump = None
    for key in _ARGUMENTS:
        jump = proxy_jump(str(variables.get(key, "")), f"{where}: {key}") or jump

    def first(*names: str) -> Any:
        """Return the first that is given: as with Ansible's ssh, the older name wins."""
        return next((variables[name] for name in names if variables.get(name) is not None), None)

    body = {
        "address": first("ansible_ssh_host", "ansible_host") or name,
        "private_address": first("hotbed_address"),
        "user": first("ansible_ssh_user", "ansible_user"),
        "key": first("ansible_ssh_private_key_file", "ansible_private_key_file"),
        "host_key": first("hotbed_host_key"),
    }
    texts = {option: None if value is None else str(value) for option, value in body.items()}
    port = first("ansible_ssh_port", "ansible_port")
    for option, value in {"name": name, **texts, "port": port, "proxy_jump": jump}.items():
        if isinstance(value, str) and "{{" in value:
            raise UserError(
                f"{_CALLED.get(option, option)} is a template, which is not filled in",
                where=where,
                do="write the value itself",
            )
    if texts["key"] is not None:
        texts["key"] = str(path.parent / Path(texts["key"]).expanduser())
    try:
        return HostOptions.model_validate({"name": name, **texts, "port": port, "proxy_jump": jump})
    except ValidationError as error:
        found = mistake(error, HostOptions)
        raise found.error(where, lambda step: _CALLED.get(step, str(step))) from error


def proxy_jump(arguments: str, where: str) -> str | None:
    """Return the machine that ssh arguments go through; None if they name no machine.

    Raises:
        UserError: they go through something by another way than one ProxyJump.
    """
    words = _words(arguments, where)
    found = None
    for place, word in enumerate(words):
        after = words[place + 1] if place + 1 < len(words) else ""
        option = word[2:] if word.startswith("-o") and len(word) > 2 else ""
        option = after if word == "-o" else option
        # ssh takes both `Name=value` and `Name value`.
        name, value = (*re.split(r"\s*=\s*|\s+", option.strip(), maxsplit=1), "")[:2]
        if word == "-J":
            found = after
        elif word.startswith("-J"):
            found = word[2:]
        elif name.lower() == "proxyjump":
            found = value
        elif name.lower() == "proxycommand" and value.lower() != "none":
            found = _of_command(value, where)
    return None if found is None or found.lower() == "none" else found


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"the arguments cannot be read: {error}", where=where) from None


def _of_command(command: str, where: str) -> str:
    """Return ``ssh -W %h:%p [-q] [-p port] [user@]host`` as a ProxyJump. Errors do not quote the
    command: it may hold a password.
    """
    words = [word for word in _words(command, where) if word not in ("-q", "-x", "-T")]
    port = ""
    if "-p" in words[:-1]:
        place = words.index("-p")
        port = f":{words[place + 1]}"
        del words[place : place + 2]
    if len(words) == 4 and words[0] == "ssh" and words[1:3] == ["-W", "%h:%p"]:
        return words[3] + port
    if len(words) == 4 and words[0] == "ssh" and words[2:] == ["-W", "%h:%p"]:
        return words[1] + port
    raise UserError(
        "its ProxyCommand is not understood",
        where=where,
        do="write ProxyJump=[user@]host, or give site.options.proxy_jump",
    )
