"""Machines and their groups from a file: any inventory that Ansible reads, by Ansible itself, or a
short YAML of our own, a mapping with a list `hosts` (and with `groups`, if you like).
"""

from __future__ import annotations

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
from typing import Any

import yaml
from pydantic import Field, ValidationError

from schemas.errors import UserError
from schemas.mistakes import mistake
from schemas.yaml_file import ContentError, load
from testbed.sites.inventory.options import HostOptions, InventoryOptions
from testbed.spec import explain
from testbed.store_spec import Strict

_TIMEOUT_S = 60.0
_ALWAYS = {"all", "ungrouped", "_meta"}
_SECRETS = (
    *("ansible_password", "ansible_ssh_password", "ansible_ssh_pass"),
    *("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"),
    *("ansible_private_key_passphrase", "ansible_ssh_private_key_passphrase"),
    *("ansible_private_key", "ansible_ssh_private_key"),
)
_SECRET_LINE = re.compile(r"(pass|secret|token)\w*|_key\b", re.IGNORECASE)


@dataclass(frozen=True)
class Machines:
    """What a file tells: machines in its order, and names of machines by group.

    `unusable` are machines of an Ansible inventory that Hotbed cannot come to, and why: they are
    others' business until a testbed is to have them.
    """

    hosts: tuple[HostOptions, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)


class ShortFile(Strict):
    """Our own YAML file."""

    hosts: tuple[HostOptions, ...]
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def machines_of(options: InventoryOptions) -> Machines:
    """The machines that the options name.

    Raises:
        UserError: the file cannot be read or understood, or names a machine twice.
    """
    if options.inventory is None:
        found = Machines(options.hosts)
        _check(found, "site.options.hosts")
    else:
        found = read_file(Path(options.inventory).expanduser())
    if not (found.hosts or found.unusable):
        where = options.inventory or "site.options.hosts"
        raise UserError(f"{where} has no machines: name one at least.")
    return found


def read_file(path: Path) -> Machines:
    """The machines in an inventory file.

    Raises:
        UserError: see `machines_of`.
    """
    if not path.exists():
        raise UserError(
            f"the inventory {path} cannot be found (a relative path starts at the spec's folder)."
        )
    short = _short(path)
    return short if short is not None else _by_ansible(path)


def _short(path: Path) -> Machines | None:
    if path.suffix not in (".yml", ".yaml"):
        return None
    try:
        text = path.read_text()
        data = load(text, decimals=False)
        if not isinstance(data, Mapping) or not isinstance(data.get("hosts"), list):
            return None
        data = load(text)
    except ContentError as error:
        raise UserError(f"{path}: {error}.") from error
    except (OSError, ValueError, yaml.YAMLError):
        return None  # Ansible says what is wrong with it
    try:
        found = ShortFile.model_validate(data)
    except ValidationError as error:
        raise explain(error, str(path), ShortFile) from error
    machines = Machines(found.hosts, found.groups)
    _check(machines, str(path))
    return machines


def _check(found: Machines, where: str) -> None:
    """Nothing is there twice in a list of our own. In Ansible's a machine may have two names."""
    names, addresses = set[str](), set[tuple[str, int | None]]()
    for host in found.hosts:
        if host.name in names:
            raise UserError(f"{where}: the machine {host.name!r} is there twice.")
        if (host.address, host.port) in addresses:
            raise UserError(
                f"{where}: {host.address} is there twice, the second time as {host.name!r}."
            )
        names.add(host.name)
        addresses.add((host.address, host.port))
    for group, members in found.groups.items():
        for member in members:
            if member not in names:
                raise UserError(f"{where}: group {group!r} names {member!r}, which is no machine.")


def _by_ansible(path: Path) -> Machines:
    listing = ansible_listing(path)
    variables: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})
    groups = {
        group: tuple(_members(listing, group, frozenset()))
        for group in listing
        if group not in _ALWAYS
    }
    ordered = dict.fromkeys(_members(listing, "all", frozenset()))
    hosts, unusable = [], {}
    for name in ordered:
        try:
            hosts.append(host_of(name, variables.get(name, {}), path))
        except UserError as error:
            unusable[name] = str(error)
    return Machines(tuple(hosts), groups, unusable)


def _members(listing: Mapping[str, Any], group: str, passed: frozenset[str]) -> list[str]:
    """Machines of a group and of the groups in it."""
    if group in passed:
        return []
    body = listing.get(group, {})
    found = list(body.get("hosts", []))
    for child in body.get("children", []):
        found += _members(listing, child, passed | {group})
    return list(dict.fromkeys(found))


def ansible_listing(path: Path) -> Mapping[str, Any]:
    """What ``ansible-inventory --list`` says of a file.

    Raises:
        UserError: Ansible is missing or does not understand the file.
    """
    beside = Path(sys.executable).with_name("ansible-inventory")
    program = str(beside) if beside.exists() else shutil.which("ansible-inventory")
    if program is None:
        raise UserError("ansible-inventory is missing, which reads the inventory: run make setup.")
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
            f"{path}: Ansible did not read this inventory within {_TIMEOUT_S:g} s."
        ) from error
    try:
        data = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        data = None
    if not isinstance(data, dict):
        words = " ".join(_without_secrets(done.stderr, path).split())
        telling = re.findall(r"(?:ERROR|Failed to parse)[^\n]*", words) or [words]
        raise UserError(f"{path}: Ansible cannot read this inventory: {telling[0][:300]}")
    return data


def _without_secrets(message: str, path: Path) -> str:
    """What Ansible says, which quotes lines, without the words of lines that may hold a secret."""
    found = set[str]()
    for file in _files_of(path):
        for line in file.read_text(errors="replace").splitlines():
            named = _SECRET_LINE.search(line)
            found |= set(re.split(r"[\s=:'\"]+", line[named.end() :])) if named else set()
    for word in sorted(found - {""}, key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "***", message)
    return message


def _files_of(path: Path) -> Iterator[Path]:
    """The files that Ansible reads for an inventory."""
    beside = [path.parent / "group_vars", path.parent / "host_vars"]
    for top in (path, *beside):
        for file in (top, *top.rglob("*")):
            if file.is_file() and os.access(file, os.R_OK):
                yield file


_CALLED: Mapping[int | str, str] = {
    "address": "ansible_host",
    "private_address": "hotbed_address",
    "user": "ansible_user",
    "port": "ansible_port",
    "key": "ansible_private_key_file",
    "host_key": "hotbed_host_key",
}
"""What an inventory of Ansible's calls our options."""
_OLDER = (
    *("ansible_ssh_host", "ansible_ssh_user", "ansible_ssh_port"),
    *("ansible_ssh_private_key_file", "ansible_connection"),
)
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")


def host_of(name: str, variables: Mapping[str, Any], path: Path) -> HostOptions:
    """A machine from its variables in an Ansible inventory.

    Raises:
        UserError: a variable makes no sense, or says something that is not supported.
    """
    where = f"{path}: machine {name}"
    for variable in (*_CALLED.values(), *_OLDER, *_ARGUMENTS):
        if "__ansible_vault" in str(variables.get(variable)):
            raise UserError(
                f"{where}: {variable} is vaulted: Hotbed decrypts no variables; write the value "
                "itself, unencrypted."
            )
    connection = variables.get("ansible_connection", "ssh")
    if str(connection).removeprefix("ansible.builtin.") not in ("ssh", "smart"):
        raise UserError(f"{where}: ansible_connection is {connection!r}; only ssh will do.")
    for secret in _SECRETS:
        if variables.get(secret):
            raise UserError(
                f"{where}: {secret} is not used: log in with a key, as root or as a user who may "
                "become root without a password."
            )
    jump = None
    for key in _ARGUMENTS:
        jump = proxy_jump(str(variables.get(key, "")), f"{where}: {key}") or jump
    body = {
        "name": name,
        "address": _text(variables, "ansible_ssh_host", "ansible_host") or name,
        "private_address": _text(variables, "hotbed_address"),
        "user": _text(variables, "ansible_ssh_user", "ansible_user"),
        "port": _first(variables, "ansible_ssh_port", "ansible_port"),
        "key": _text(variables, "ansible_ssh_private_key_file", "ansible_private_key_file"),
        "proxy_jump": jump,
        "host_key": _text(variables, "hotbed_host_key"),
    }
    for option, value in body.items():
        if isinstance(value, str) and "{{" in value:
            raise UserError(
                f"{where}: {_CALLED.get(option, option)} is a template, which is not filled in: "
                "write the value itself."
            )
    if body["key"] is not None:
        body["key"] = str(path.parent / Path(str(body["key"])).expanduser())
    try:
        return HostOptions.model_validate(body)
    except ValidationError as error:
        found = mistake(error, HostOptions)
        raise UserError(found.sentence(where, lambda step: _CALLED.get(step, str(step)))) from error


def _first(variables: Mapping[str, Any], *names: str) -> object:
    """The variable of these that counts; the first does, as with Ansible's own ssh."""
    return next((variables[name] for name in names if variables.get(name) is not None), None)


def _text(variables: Mapping[str, Any], *names: str) -> str | None:
    value = _first(variables, *names)
    return None if value is None else str(value)


def proxy_jump(arguments: str, where: str) -> str | None:
    """Whom ssh arguments go through; None when they say nothing of it.

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
        raise UserError(f"{where}: the arguments cannot be read: {error}.") from None


def _of_command(command: str, where: str) -> str:
    """``ssh -W %h:%p [-q] [-p port] [user@]host`` as a ProxyJump. Errors do not quote it: there may
    be a password in it.
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
        f"{where}: its ProxyCommand is not understood: write ProxyJump=[user@]host, or give "
        "site.options.proxy_jump."
    )
