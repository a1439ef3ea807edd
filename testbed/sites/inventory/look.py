"""The first look at machines: their host keys judged, their logins tried, what is on them told.

Changes nothing, neither there nor in the user's files.
"""

from __future__ import annotations

import getpass
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, RemoteError, UserError
from testbed.sites.contract import Gateway, Progress, silent
from testbed.sites.inventory import hostkeys
from testbed.sites.inventory.assign import Host, Jump, Member
from testbed.sites.inventory.contact import (
    Contact,
    Login,
    ask,
    everywhere,
    login_of,
    site_error,
)
from testbed.ssh import Shell, SshTarget

_SOCKETS = "ssh"
_LONGEST_FOLDER = 48  # a unix socket's name has 108 bytes, of which ssh needs 60


@dataclass(frozen=True)
class Trust:
    """Whose word makes a host key trusted: files of host keys, and whether first sight will do."""

    files: tuple[Path, ...]
    accept: bool = False


@dataclass
class Look:
    """What was found. `problems` are sentences by node; a node with one has no survey."""

    known_hosts: Path
    keys: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    logins: dict[str, Login] = field(default_factory=dict)
    surveys: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, HotbedError] = field(default_factory=dict)

    def require(self) -> None:
        """Raise the first problem, with how many more there are.

        Raises:
            UserError: a machine, or what was said of it, is no good.
            SiteError: one could not be reached; says whether to try again.
        """
        if not self.problems:
            return
        (_, first), *more = self.problems.items()
        told = str(first)
        if more:
            names = ", ".join(node for node, _ in more)
            told = f"{told} ({len(more)} more machines cannot be used either: {names})"
        if isinstance(first, UserError):
            raise UserError(told) from first
        raise site_error(told, first) from first


def gateways_of(members: Sequence[Member]) -> tuple[Gateway, ...]:
    """The machines that ssh goes through, each once."""
    found = {}
    for member in members:
        if member.host.jump is not None:
            gateway = _gateway(member.host.jump, member.host)
            found[gateway.name] = gateway
    return tuple(found.values())


def gateway_name(jump: Jump) -> str:
    """Its name among the testbed's gateways; no node has such a name."""
    return f"{jump.user or getpass.getuser()}@{hostkeys.field_of(jump.address, jump.port)}"


def _gateway(jump: Jump, host: Host) -> Gateway:
    return Gateway(
        name=gateway_name(jump),
        address=jump.address,
        ssh_user=jump.user or getpass.getuser(),
        ssh_port=jump.port,
        ssh_key=key_of(host),
    )


def key_of(host: Host) -> Path | None:
    """The user's key for a machine."""
    return None if host.key is None else Path(host.key).expanduser()


@contextmanager
def looking(contact: Contact) -> Iterator[Path]:
    """A folder for a `look` that is gone afterwards, with the connections kept open in it."""
    with tempfile.TemporaryDirectory(prefix="hotbed-look-") as folder:
        sockets = Path(folder, _SOCKETS)
        sockets.mkdir(mode=0o700)
        try:
            yield Path(folder)
        finally:
            contact.hang_up(sockets)


def first_target(host: Host, known_hosts: Path) -> SshTarget:
    """How a machine is reached with the user's own key. Within `looking` one connection is kept."""
    sockets = known_hosts.with_name(_SOCKETS)
    kept = sockets.is_dir() and len(str(sockets)) <= _LONGEST_FOLDER
    jump = None
    if host.jump is not None:
        gateway = _gateway(host.jump, host)
        jump = SshTarget(
            gateway.name,
            gateway.address,
            gateway.ssh_key,
            known_hosts,
            user=gateway.ssh_user,
            port=gateway.ssh_port,
        )
    return SshTarget(
        node=host.name,
        address=host.address,
        key=key_of(host),
        known_hosts=known_hosts,
        user=host.user or getpass.getuser(),
        port=host.port,
        control_dir=sockets if kept else None,
        jump=jump,
    )


def check_keys(members: Sequence[Member]) -> None:
    """Raise a sentence when a key that a machine is to be logged in with cannot be read.

    Raises:
        UserError: see above.
    """
    for member in members:
        key = key_of(member.host)
        if key is not None and not key.is_file():
            raise UserError(
                f"the ssh key {key} of machine {member.host.name} is no file (a relative path "
                "starts at the spec's folder)."
            )


def look(
    members: Sequence[Member],
    contact: Contact,
    trust: Trust,
    folder: Path,
    progress: Progress = silent,
) -> Look:
    """Look at the machines of `members`, all at once.

    Args:
        folder: gets the file of host keys.

    Raises:
        UserError: a gateway's host key, or a login key, is no good.
        SiteError: a gateway cannot be reached; says whether to try again.
    """
    check_keys(members)
    found = Look(folder / "known_hosts")
    hostkeys.pin(found.known_hosts, {})
    for gateway in gateways_of(members):
        target = SshTarget(
            gateway.name,
            gateway.address,
            gateway.ssh_key,
            found.known_hosts,
            user=gateway.ssh_user,
            port=gateway.ssh_port,
        )
        try:
            keys = _judged(contact, target, gateway.name, trust, None)
        except RemoteError as error:
            raise site_error(f"ssh cannot go through a machine: {error}", error) from error
        found.keys[gateway.address, gateway.ssh_port] = keys
    hostkeys.pin(found.known_hosts, found.keys)
    by_node = {member.node: member for member in members}

    def learn(node: str) -> list[str]:
        host = by_node[node].host
        target = first_target(host, found.known_hosts)
        return _judged(contact, target, host.name, trust, host.host_key)

    learnt = everywhere(by_node, learn, progress, "host keys", (0.0, 0.3))
    found.problems |= learnt.lost
    for node, keys in learnt.found.items():
        host = by_node[node].host
        found.keys[host.address, host.port] = keys
    hostkeys.pin(found.known_hosts, found.keys)

    def see(node: str) -> tuple[Login, dict[str, Any]]:
        return _see(
            by_node[node], contact.shell(first_target(by_node[node].host, found.known_hosts))
        )

    seen = everywhere(learnt.found, see, progress, "looking at machines", (0.3, 1.0))
    found.problems |= seen.lost
    for node, (login, survey) in seen.found.items():
        found.logins[node], found.surveys[node] = login, survey
    return found


def _judged(
    contact: Contact, target: SshTarget, name: str, trust: Trust, expected: str | None
) -> list[str]:
    shown = contact.host_keys(target)
    hostkeys.require_unrevoked(name, shown, trust.files, target.address, target.port)
    return hostkeys.judge(
        name,
        shown,
        vouched=hostkeys.known(trust.files, target.address, target.port),
        expected=expected,
        accept=trust.accept,
    )


def _see(member: Member, shell: Shell) -> tuple[Login, dict[str, Any]]:
    login = login_of(shell)
    if login.problem is not None:
        raise UserError(f"machine {member.host.name} (node {member.node}) {login.problem}.")
    if login.port not in (None, member.host.port):
        raise UserError(
            f"machine {member.host.name} (node {member.node}): its port {member.host.port} is "
            f"forwarded to port {login.port}, which is not supported: the other nodes come to it "
            f"at the same port as we do; let its sshd listen on {member.host.port} too and forward "
            "to that, or reach it through a machine beside it (proxy_jump)."
        )
    devices = sorted(member.devices.values())
    return login, ask(shell, "survey", root=login.root, devices=devices, client=login.client)


def address_of(member: Member, login: Login) -> str:
    """Where the other machines reach a machine.

    Raises:
        UserError: nothing tells.
    """
    if member.host.private_address is not None:
        return member.host.private_address
    if login.address is not None:
        return login.address
    if hostkeys.is_address(member.host.address):
        return member.host.address
    raise UserError(
        f"machine {member.host.name}: nothing tells which IP address the other machines reach it "
        "at: give its private_address (hotbed_address in an Ansible inventory)."
    )


def addresses_of(members: Sequence[Member], logins: Mapping[str, Login]) -> dict[str, str]:
    """Where the nodes reach one another, by node.

    Raises:
        UserError: two would have the same address, or one is not for others.
    """
    found: dict[str, str] = {}
    for member in members:
        address = address_of(member, logins[member.node])
        for node, other in found.items():
            if other == address:
                raise UserError(
                    f"nodes {node} and {member.node} would both be {address} to the others: give "
                    "each machine the private_address that the others reach it at."
                )
        if len(members) > 1 and address.startswith(("127.", "::1")):
            raise UserError(
                f"node {member.node} would be {address} to the others, which is each machine's "
                "own: give its private_address."
            )
        found[member.node] = address
    return found
