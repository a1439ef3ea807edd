"""Machines that a spec's `site` block names, directly or in an inventory file.

Ansible reads every inventory file except Hotbed's short form: a YAML mapping with a list `hosts`
(and with `groups`, if wanted). docs/your-machines.md has the options.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from schemas.errors import UserError
from schemas.mistakes import checked, mistake
from schemas.yaml_file import ContentError, load
from testbed.spec.stores import DEVICE, Device, Devices, SpecModel, as_list

_JUMP = re.compile(r"(?:([^@]*)@)?(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d+))?")
_TIMEOUT_S = 60.0
_STRICT = {
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
    "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
}
_WAY = r"(?: -[qxT]| -p (\d+)| -W %h:%p)*"
_COMMAND = re.compile(rf"ssh{_WAY} ([^-\s]\S*){_WAY}")
_SECRET = re.compile(r"ansible_(\w+_)?(pass|password|private_key|passphrase)")
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "address": ("ansible_ssh_host", "ansible_host"),
    "private_address": ("hotbed_address",),
    "user": ("ansible_ssh_user", "ansible_user"),
    "port": ("ansible_ssh_port", "ansible_port"),
    "key": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "host_key": ("hotbed_host_key",),
}
"""Names of options in an Ansible inventory; as in Ansible's ssh, the older name wins."""
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


def _is(pattern: str, what: str) -> Callable[[str], str]:
    """Return a validator. It also refuses anything that ssh might take for an option."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} is no {what}")
        return text

    return check


def _address(text: str) -> str:
    name = r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?"
    return text if is_address(text) else _is(name, "IP address and no host's name")(text)


def check_consent(name: str) -> str:
    """Return `name` if it is ``DEVICE@NODE``; raise ValueError if not."""
    path, _, node = name.rpartition("@")
    if not node or not DEVICE.fullmatch(path):
        raise ValueError(f"{name!r}: write device@node, such as /dev/sdb@osd0")
    return name


User = Annotated[str, AfterValidator(_is(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?", "user's name"))]
Address = Annotated[str, AfterValidator(_address)]
Names = Annotated[tuple[str, ...], BeforeValidator(as_list), Field(min_length=1)]
Consents = Annotated[
    tuple[Annotated[str, AfterValidator(check_consent)], ...], BeforeValidator(as_list)
]


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
    `proxy_jump`: machine that ssh goes through, written [user@]host[:port].
    """

    user: User | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = None
    proxy_jump: JumpOption | None = None


class HostOptions(LoginOptions):
    """One machine. `private_address` is where the other machines reach it, if that differs;
    `host_key` is its public host key or that key's fingerprint (``SHA256:...``). `address`: address
    for ssh; `name`: name of the machine in this list; by default its address.
    """

    address: Address
    name: str
    private_address: str | None = None
    host_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if isinstance(value, str):
            return {"address": value, "name": value}
        if isinstance(value, Mapping) and not value.get("name"):
            return {**value, "name": value.get("address", "?")}
        return value

    @model_validator(mode="after")
    def _reached(self) -> HostOptions:
        if self.private_address is not None and not is_address(self.private_address):
            raise ValueError(f"private_address {self.private_address!r} is no IP address")
        return self

    def with_defaults(self, login: LoginOptions) -> HostOptions:
        """Return the machine with the parameters that `login` gives for all machines."""
        found = {name: getattr(self, name) or getattr(login, name) for name in _LOGIN}
        return self.model_copy(update={**found, "port": found["port"] or 22})

    @property
    def where(self) -> tuple[str, int | None, JumpOption | None]:
        """The machine's identity among those of the inventory."""
        return self.address, self.port, self.proxy_jump

    @property
    def key_file(self) -> Path | None:
        """The path of the key, if there is one."""
        return None if self.key is None else Path(self.key).expanduser()


_LOGIN = tuple(LoginOptions.model_fields)


class DevicesOfNode(SpecModel):
    """The devices of a node: the store's, in the order of the disks, and the device for files.
    `osd`: device of the store, or a list for several disks; `scratch`: device for files."""

    osd: Devices = ()
    scratch: Device | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"osd": value} if isinstance(value, str | list | tuple) else value

    @model_validator(mode="after")
    def _different(self) -> DevicesOfNode:
        paths = [*self.osd, self.scratch]
        if len(set(paths)) != len(paths):
            raise ValueError("a device is named twice; store and files need devices of their own")
        return self


class InventoryOptions(LoginOptions):
    """Options of the site `inventory`; see docs/your-machines.md. `inventory`: path of an
    inventory, relative to the spec; `hosts`: machines, as addresses or with address, name, user and
    more; `nodes`: machines by node, group or role; `devices`: devices by node, group or role;
    `signal`: measure of a disk's load, the same on all machines; `known_hosts`: file with the
    machines' host keys; `accept_host_keys`: true accepts unknown host keys; `wipe`: devices that
    may be wiped, such as /dev/sdb@osd0."""

    inventory: str | None = None
    hosts: tuple[HostOptions, ...] = ()
    nodes: dict[str, Names] = Field(default_factory=dict)
    devices: dict[str, DevicesOfNode] = Field(default_factory=dict)
    signal: Literal["iowait", "io_pressure"] | None = None
    known_hosts: str | None = None
    accept_host_keys: bool = False
    wipe: Consents = ()

    @model_validator(mode="after")
    def _one_source(self) -> InventoryOptions:
        if self.inventory is not None and self.hosts:
            raise ValueError("give either inventory (a file) or hosts (a list), not both")
        return self


def read_options(options: Mapping[str, object], where: str = "site.options") -> InventoryOptions:
    """Return the options, checked. UserError: one sentence for the first mistake."""
    return checked(InventoryOptions, dict(options), where)


# -- inventory files -------------------------------------------------------------------------------


class ShortFile(SpecModel):
    """Hotbed's own YAML file: machines in order, and names of machines by group. `hosts`: machines,
    as addresses or with address, name, user and more; `groups`: names of machines by group."""

    hosts: tuple[HostOptions, ...]
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _once(self) -> ShortFile:
        names, places = set[str](), set[object]()
        for host in self.hosts:
            if host.name in names or (host.address, host.port) in places:
                raise ValueError(f"the machine {host.name!r} ({host.address}) is there twice")
            names.add(host.name)
            places.add((host.address, host.port))
        for group, members in self.groups.items():
            for name in set(members) - names:
                raise ValueError(f"group {group!r} names {name!r}, which is no machine")
        return self


@dataclass(frozen=True)
class ListedMachines:
    """Machines of any file; in Ansible's a machine may have two names. `unusable` are machines of
    an Ansible inventory that Hotbed cannot reach, with the reason: an error only if a testbed needs
    one of them.
    """

    hosts: tuple[HostOptions, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)


def machines_of(options: InventoryOptions) -> ListedMachines:
    """Return the machines that the options name. UserError: the options name no machine, the file
    cannot be read or understood, or it names a machine twice."""
    if options.inventory is not None:
        found = read_file(Path(options.inventory).expanduser())
        if not (found.hosts or found.unusable):
            raise UserError("it has no machines", where=options.inventory, do="name one at least")
        return found
    if options.hosts:
        return _listed({"hosts": options.hosts}, "site.options.hosts")
    raise UserError(
        "site inventory: it needs machines",
        do=(
            "give site.options.inventory, the path of an Ansible inventory, or "
            "site.options.hosts, a list of addresses"
        ),
    )


def names_in_files(options: Mapping[str, object], folder: Path) -> Iterator[str]:
    """Yield machines and users in the inventory that the options of a spec in `folder` name, also
    machines that cannot be used. UserError: the file cannot be read.
    """
    place = options.get("inventory")
    if not isinstance(place, str):
        return
    found = read_file(folder / Path(place).expanduser())
    yield from found.unusable
    for host in found.hosts:
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
        data = load(text, decimals=False)  # Ansible's files may have other numbers
        if not isinstance(data, Mapping) or not isinstance(data.get("hosts"), list):
            return None
        return _listed(load(text), path)
    except ContentError as error:
        raise UserError(error, where=path) from error
    except (OSError, ValueError, yaml.YAMLError):
        return None  # Ansible reports the reason


def _listed(data: object, where: object) -> ListedMachines:
    found = checked(ShortFile, data, where)
    return ListedMachines(found.hosts, found.groups)


def _by_ansible(path: Path) -> ListedMachines:
    listing = ansible_listing(path)
    variables: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})

    def members(group: str) -> dict[str, None]:
        body = listing.get(group, {})
        found = dict.fromkeys(body.get("hosts", ()))
        for child in body.get("children", ()):
            found |= members(child)
        return found

    hosts, unusable = [], {}
    for name in members("all"):
        try:
            hosts.append(host_of(name, variables.get(name, {}), path))
        except UserError as error:
            unusable[name] = str(error)
    no_groups = ("all", "ungrouped", "_meta")
    groups = {group: tuple(members(group)) for group in listing if group not in no_groups}
    return ListedMachines(tuple(hosts), groups, unusable)


def ansible_listing(path: Path) -> Mapping[str, Any]:
    """Return the output of ``ansible-inventory --list`` for a file. UserError: Ansible does not
    understand the file. The error quotes nothing of the file, which may hold passwords."""
    program = Path(sys.executable).with_name("ansible-inventory")
    try:
        done = subprocess.run(
            [program, "-i", str(path.resolve()), "--list"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
            env={**os.environ, **_STRICT},
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except FileNotFoundError:
        raise UserError(
            f"{program} is missing; it reads inventories", do="run make setup"
        ) from None
    except (subprocess.SubprocessError, ValueError) as error:
        settings = " ".join(f"{name}={value}" for name, value in _STRICT.items())
        raise UserError(
            "Ansible cannot read this inventory",
            where=path,
            do=f"see the reason with `{settings} {program} -i {shlex.quote(str(path))} --list`",
        ) from error
    return found


def host_of(name: str, variables: Mapping[str, Any], path: Path) -> HostOptions:
    """Return a machine from its variables in an Ansible inventory. UserError: a variable makes no
    sense, or is not supported."""
    where = f"{path}: machine {name}"
    used = [variable for names in _VARIABLES.values() for variable in names]
    for variable in (*used, "ansible_connection", *_ARGUMENTS):
        text = str(variables.get(variable))
        if "__ansible_vault" in text or ("{{" in text and variable in used):
            raise UserError(
                f"{variable} is vaulted or a template, which is not filled in",
                where=where,
                do="write the value itself",
            )
    connection = variables.get("ansible_connection", "ssh")
    if str(connection).removeprefix("ansible.builtin.") not in ("ssh", "smart"):
        raise UserError(f"ansible_connection is {connection!r}; only ssh will do", where=where)
    for secret in filter(_SECRET.fullmatch, variables):
        if variables[secret]:
            raise UserError(
                f"{secret} is not used",
                where=where,
                do="log in with a key, as root or as a user with sudo without a password",
            )
    body: dict[str, Any] = {"address": name}
    for option, names in _VARIABLES.items():
        given = [variables[each] for each in names if variables.get(each) is not None]
        if given:
            body[option] = given[0] if option == "port" else str(given[0])
    body["address"] = body["address"] or name
    if "key" in body:
        body["key"] = str(path.parent / Path(body["key"]).expanduser())
    arguments = " ".join(str(variables.get(variable, "")) for variable in _ARGUMENTS)
    body["proxy_jump"] = proxy_jump(arguments, f"{where}: {' or '.join(_ARGUMENTS)}")
    try:
        return HostOptions.model_validate({**body, "name": name})
    except ValidationError as error:
        found = mistake(error, HostOptions)
        raise found.error(
            where, lambda step: _VARIABLES.get(str(step), (str(step),))[-1]
        ) from error


def proxy_jump(arguments: str, where: str) -> str | None:
    """Return the machine that ssh arguments go through; None if they name no machine. UserError:
    they go through something by another way than one ProxyJump. The error does not quote them: they
    may hold a password."""
    if not arguments.strip():
        return None
    try:
        # -G prints what ssh makes of the arguments, and connects to nothing.
        argv = ["ssh", "-F", "none", *shlex.split(arguments), "-G", "machine"]
        printed = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (ValueError, OSError, subprocess.SubprocessError):
        raise UserError("ssh cannot read the arguments", where=where) from None
    said = dict(line.partition(" ")[::2] for line in printed.splitlines())
    command = said.get("proxycommand", "none")
    if command == "none":
        return said.get("proxyjump")
    found = _COMMAND.fullmatch(command)
    if found is None or "-W %h:%p" not in command:
        raise UserError(
            "its ProxyCommand is not understood",
            where=where,
            do="write ProxyJump=[user@]host, or give site.options.proxy_jump",
        )
    port = found[1] or found[3]
    return found[2] if port is None else f"{found[2]}:{port}"
