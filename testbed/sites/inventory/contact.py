"""Reaching machines over ssh: trust their host keys, log in, ask them, take a first look.

Every request to a machine goes through `Contact`, so that tests can replace machines. The first
login uses the user's own key, every later one the testbed's.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import inspect
import ipaddress
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from schemas.errors import HotbedError, RemoteError, UserError
from testbed.reach import gateway_target
from testbed.sites.contract import Gateway, Progress, SiteError, silent
from testbed.sites.inventory import hostside
from testbed.sites.inventory.assign import Member
from testbed.sites.inventory.hosts import HostOptions, is_address
from testbed.sites.keys import field_of, pin
from testbed.ssh import (
    MISSING,
    Shell,
    SshShell,
    SshTarget,
    completed,
    end_connections,
    is_refusal,
    last_line,
)

PARALLEL = 32
ASK_S = 60.0
RETRY_S = 30.0
OLDEST_PYTHON = (3, 10)
_LOGIN = (
    'echo "uid=$(id -u)"; sudo -n true 2>/dev/null && echo sudo=yes; '
    "python3 -c 'import sys; print(\"python=%d.%d\" % sys.version_info[:2])' 2>/dev/null; "
    'echo "connection=$SSH_CONNECTION"'
)
_SOCKETS = "ssh"
R = TypeVar("R")


class Contact:
    """Access to machines by the ssh client."""

    def host_keys(self, target: SshTarget) -> Sequence[str]:
        """Return the host keys (``ssh-ed25519 AAAA...``) that a machine shows, without trust in
        them and without a login, also through jumps. RemoteError if it cannot be reached."""
        where = f"{target.node} ({target.address})"
        with tempfile.TemporaryDirectory(prefix="hotbed-keys-") as folder:
            seen = Path(folder, "known_hosts")
            options = replace(target, known_hosts=seen, control_dir=None).options()
            options[options.index("StrictHostKeyChecking=yes")] = "StrictHostKeyChecking=accept-new"
            # No proof of identity is offered: the machine is not trusted yet.
            options += ["-o", "PreferredAuthentications=none", "-o", "HashKnownHosts=no"]
            command = ["ssh", *options, f"{target.user}@{target.address}", "true"]
            try:
                done = completed(command, command, f"asking {where} for its key", None, ASK_S)
            except FileNotFoundError:
                raise RemoteError(MISSING) from None
            lines = seen.read_text().splitlines() if seen.exists() else []
        keys = [" ".join(line.split()[1:3]) for line in lines if line and line[0] not in "#@"]
        if not keys:
            raise RemoteError(
                f"{where} shows no host key: {last_line(done.stderr)}",
                retry=not is_refusal(done.stderr),
            )
        return keys

    def shell(self, target: SshTarget) -> Shell:
        return SshShell(target)

    def hang_up(self, control_dir: Path) -> None:
        """End the connections that are kept open in a folder."""
        end_connections(control_dir)


# -- asking ----------------------------------------------------------------------------------------


def ask(
    shell: Shell,
    do: str,
    *,
    root: bool = True,
    program: ModuleType = hostside,
    timeout_s: float = ASK_S,
    **request: Any,
) -> Any:
    """Do something on a machine (a key of `hostside.ACTIONS`, or what another `program` does) as
    root. `root`: True if the shell is root's already; else sudo is used. RemoteError: the machine
    cannot be reached, or the action failed there."""
    argv = ["python3", "-", json.dumps({"do": do, **request})]
    if not root:
        argv = ["sudo", "-n", *argv]
    source = inspect.getsource(program).encode()
    done = shell.run(argv, input=source, timeout_s=timeout_s, check=False)
    try:
        found = json.loads(done.stdout)
        if found["ok"]:
            return found["result"]
        problem = str(found["error"])
    except (ValueError, KeyError, TypeError):
        reason = last_line(done.stderr) if done.stderr.strip() else f"exit code {done.returncode}"
        raise RemoteError(f"machine {shell.node} could not be asked: {reason}") from None
    raise RemoteError(f"machine {shell.node} {problem}.")


@dataclass(frozen=True)
class Login:
    """A login on a machine: as root, or else as a user with sudo. `address` is the machine's own at
    its end of the connection, `client` the address at the other end: the engine's, or the
    gateway's.
    """

    root: bool
    client: str | None = None
    address: str | None = None


def login_on(shell: Shell, machine: str) -> Login:
    """Return the login of a shell; needs only a POSIX shell there. RemoteError if unreachable;
    UserError if it cannot become root, or has no Python that can run `hostside`."""
    lines = shell.run(["sh", "-c", _LOGIN], timeout_s=30.0).text.splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line)
    if said.get("uid") != "0" and said.get("sudo") != "yes":
        raise UserError(
            "may not become root",
            where=f"machine {machine}",
            do="log in as root, or let the user use sudo without a password",
        )
    python = said.get("python", "")
    if not python or tuple(map(int, python.split("."))) < OLDEST_PYTHON:
        raise UserError(
            f"has Python {python}" if python else "has no python3",
            where=f"machine {machine}",
            allowed=f"{'.'.join(map(str, OLDEST_PYTHON))} or newer",
            do="install it (apt-get install python3)",
        )
    connection = said.get("connection", "").split()
    client, _, address, _ = connection if len(connection) == 4 else [None] * 4
    return Login(said.get("uid") == "0", client, address)


Answers = tuple[dict[str, R], dict[str, HotbedError]]
"""Answers of machines, and the errors of machines without an answer."""


def everywhere(
    names: Iterable[str],
    function: Callable[[str], R],
    progress: Progress = silent,
    phase: str = "machines",
    span: tuple[float, float] = (0.0, 1.0),
) -> Answers[R]:
    """Call `function` for all names in parallel; a failure does not stop the others. `span`: share
    of the whole work at the beginning and at the end."""
    found: dict[str, R] = {}
    lost: dict[str, HotbedError] = {}
    start, end = span
    progress(phase, start)
    with ThreadPoolExecutor(PARALLEL) as pool:
        futures = {name: pool.submit(function, name) for name in names}
        try:
            for done, (name, future) in enumerate(futures.items(), 1):
                try:
                    found[name] = future.result()
                except HotbedError as error:
                    lost[name] = error
                progress(phase, start + (end - start) * done / len(futures))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found, lost


def all_or_error(answers: Answers[R], action: str) -> Mapping[str, R]:
    """Return all answers. SiteError: some machines did not answer; the error names them, and says
    to try again if that may help."""
    found, lost = answers
    if not lost:
        return found
    (name, first), *more = lost.items()
    others = f"; the same goes for {', '.join(each for each, _ in more)}" if more else ""
    raise site_error(f"{action} {name}: {str(first).rstrip('.')}{others}.", *lost.values())


def site_error(message: str, *causes: HotbedError) -> SiteError:
    """Return `message` as a site's error: retrying helps if it may help for one of the causes."""
    again = any(isinstance(cause, RemoteError) and cause.retry for cause in causes)
    return SiteError(message, retry_after_s=RETRY_S if again else None)


# -- host keys -------------------------------------------------------------------------------------


def fingerprint(key: str) -> str:
    """Return ``SHA256:...`` of a public key, as ssh-keygen -l prints it."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def known(files: Iterable[Path], address: str, port: int | None) -> tuple[list[str], list[str]]:
    """Return the keys that known_hosts files (hashed or not) have for a machine, and the keys that
    they revoke (@revoked)."""
    keys, revoked = dict[str, None](), dict[str, None]()
    for file in filter(Path.exists, files):
        done = subprocess.run(
            ["ssh-keygen", "-F", field_of(address, port), "-f", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        for words in map(str.split, done.stdout.splitlines()):
            if words and words[0] == "@revoked":
                revoked[" ".join(words[2:4])] = None
            elif len(words) >= 3 and words[0][0] not in "#@":
                keys[" ".join(words[1:3])] = None
    return list(keys), list(revoked)


def judge(
    name: str,
    shown: Sequence[str],
    *,
    vouched: Sequence[str],
    revoked: Sequence[str] = (),
    expected: str | None = None,
    accept: bool = False,
) -> list[str]:
    """Return the keys to pin for the machine `name`, which shows the keys `shown`.

    Files vouch for the keys `vouched` and revoke `revoked`; the user gave the public key or
    fingerprint `expected`; with `accept` a key that nobody vouches for is taken at first sight.
    UserError: the machine shows a revoked key or another key than it should, or nobody vouches for
    it.
    """

    def refused(keys: Sequence[str], why: str, do: str) -> UserError:
        listed = ", ".join(f"{fingerprint(key)} ({key.split()[0]})" for key in keys)
        return UserError(f"machine {name} shows the host key {listed}{why}", do=do)

    find_out = "find out if it was installed anew or if somebody listens in between"
    bad = [key for key in shown if key in revoked]
    if bad:
        raise refused(bad, ", which known_hosts has as revoked (@revoked)", "make a new host key")
    if expected is not None:
        same = [
            key
            for key in shown
            if fingerprint(key) == expected.rstrip("=") or key.split()[:2] == expected.split()[:2]
        ]
        if not same:
            why = f", and host_key is {expected}"
            raise refused(shown, why, f"{find_out}, or give host_key for this kind of key")
        return same
    types = {key.split()[0] for key in vouched}
    for key in shown:
        # As with ssh one of several of a kind will do, such as an old key and a new key.
        if key.split()[0] in types and key not in vouched:
            raise refused(
                [key], ", and known_hosts has another", f"{find_out}, then mend known_hosts"
            )
    if vouched:
        return list(vouched)
    if accept:
        return list(shown)
    raise refused(
        shown,
        ", for which nobody vouches",
        "compare it with what `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints there, "
        "then give a known_hosts file or this host_key in site.options, or take the key as shown "
        "(--accept-host-keys)",
    )


# -- the first look: changes nothing, neither there nor in the user's files ------------------------


@dataclass
class FirstLook:
    """Findings of a first look. `problems` are errors by node; such a node has no survey."""

    known_hosts: Path
    keys: dict[tuple[str, int | None], list[str]] = field(default_factory=dict)
    logins: dict[str, Login] = field(default_factory=dict)
    surveys: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, HotbedError] = field(default_factory=dict)

    def require(self) -> None:
        """Raise the first problem, with the names of the other machines that have one. UserError: a
        machine, or an option about it, is wrong. SiteError: a machine could not be reached; says if
        trying again may help."""
        if not self.problems:
            return
        (_, first), *more = self.problems.items()
        names = ", ".join(node for node, _ in more)
        message = f"{first} ({len(more)} more machines cannot be used: {names})" if more else first
        if isinstance(first, UserError):
            raise UserError(message) from first
        raise site_error(str(message), first) from first


def gateway_of(host: HostOptions) -> Gateway | None:
    """Return the machine that ssh goes through, by a name in the testbed that no node has."""
    jump = host.proxy_jump
    if jump is None:
        return None
    user = jump.user or getpass.getuser()
    name = f"{user}@{field_of(jump.address, jump.port)}"
    return Gateway(name, jump.address, user, jump.port, host.key_file)


def gateways_of(members: Sequence[Member]) -> tuple[Gateway, ...]:
    """Return the machines that ssh goes through, each once."""
    found = (gateway_of(member.host) for member in members)
    return tuple({gateway.name: gateway for gateway in found if gateway is not None}.values())


def first_target(host: HostOptions, known_hosts: Path) -> SshTarget:
    """Return the target of a first login by the user's own key. Within `looking` one connection is
    kept."""
    sockets = known_hosts.with_name(_SOCKETS)
    gateway = gateway_of(host)
    return SshTarget(
        node=host.name,
        address=host.address,
        key=host.key_file,
        known_hosts=known_hosts,
        user=host.user or getpass.getuser(),
        port=host.port or 22,
        control_dir=sockets if sockets.is_dir() else None,
        jump=gateway_target(gateway, known_hosts) if gateway else None,
    )


@contextmanager
def looking(
    members: Sequence[Member],
    contact: Contact,
    files: Sequence[Path],
    accept: bool,
    progress: Progress = silent,
) -> Iterator[FirstLook]:
    """Look at the machines of `members` in parallel; connections stay open inside the context.

    Known-hosts `files` vouch for host keys; with `accept` an unknown key is taken at first sight.
    UserError: a gateway's host key, or a login key, is wrong. SiteError: a gateway cannot be
    reached; says if trying again may help.
    """

    def learn(target: SshTarget, name: str, expected: str | None = None) -> list[str]:
        shown = contact.host_keys(target)
        vouched, revoked = known(files, target.address, target.port)
        return judge(
            name, shown, vouched=vouched, revoked=revoked, expected=expected, accept=accept
        )

    # In /tmp, because a unix socket's name has 108 bytes, and ssh needs 60 of them.
    with tempfile.TemporaryDirectory(prefix="hotbed-look-", dir="/tmp") as folder:
        sockets = Path(folder, _SOCKETS)
        sockets.mkdir(mode=0o700)
        try:
            yield _look(members, contact, Path(folder, "known_hosts"), learn, progress)
        finally:
            contact.hang_up(sockets)


def _look(
    members: Sequence[Member],
    contact: Contact,
    known_hosts: Path,
    learn: Callable[..., list[str]],
    progress: Progress,
) -> FirstLook:
    for member in members:
        key = member.host.key_file
        if key is not None and not key.is_file():
            raise UserError(
                f"the ssh key {key} is no file",
                where=f"machine {member.host.name}",
                do="name a file; a relative path starts at the spec's folder",
            )
    found = FirstLook(known_hosts)
    pin(known_hosts, {})
    for gateway in gateways_of(members):
        try:
            keys = learn(gateway_target(gateway, known_hosts), gateway.name)
        except RemoteError as error:
            raise site_error(f"ssh cannot go through a machine: {error}", error) from error
        found.keys[gateway.address, gateway.ssh_port] = keys
    pin(known_hosts, found.keys)
    by_node = {member.node: member for member in members}
    hosts = {node: member.host for node, member in by_node.items()}
    targets = {node: first_target(host, known_hosts) for node, host in hosts.items()}
    learnt, lost = everywhere(
        hosts,
        lambda node: learn(targets[node], hosts[node].name, hosts[node].host_key),
        progress,
        "host keys",
        (0.0, 0.3),
    )
    found.problems |= lost
    found.keys |= {(hosts[node].address, hosts[node].port): keys for node, keys in learnt.items()}
    pin(known_hosts, found.keys)
    seen, lost = everywhere(
        learnt,
        lambda node: _see(by_node[node], contact.shell(targets[node])),
        progress,
        "looking at machines",
        (0.3, 1.0),
    )
    found.problems |= lost
    for node, (login, survey) in seen.items():
        found.logins[node], found.surveys[node] = login, survey
    return found


def _see(member: Member, shell: Shell) -> tuple[Login, dict[str, Any]]:
    login = login_on(shell, f"{member.host.name} (node {member.node})")
    devices = sorted(member.devices.values())
    return login, ask(shell, "survey", root=login.root, devices=devices, client=login.client)


# -- addresses among the nodes ---------------------------------------------------------------------


def addresses_of(
    members: Sequence[Member], logins: Mapping[str, Login]
) -> tuple[dict[str, str], dict[str, UserError]]:
    """Return where the nodes reach one another, and the error of each node for which that is
    unknown or no address of its own. Nodes without a login are left out."""
    found: dict[str, str] = {}
    problems: dict[str, str] = {}
    for member in members:
        if member.node in logins:
            host = member.host
            direct = host.address if is_address(host.address) else None
            address = host.private_address or logins[member.node].address or direct
            if address is None:
                problems[member.node] = "it is unknown where the other machines reach it"
            else:
                found[member.node] = address
    for node, address in found.items():
        same = [other for other in found if other != node and found[other] == address]
        if same:
            problems[node] = f"the others would reach it at {address}, like {same[0]}"
        elif len(members) > 1 and ipaddress.ip_address(address).is_loopback:
            problems[node] = f"the others would reach it at {address}, their own loopback"
    do = "give its private_address (hotbed_address in an Ansible inventory)"
    return found, {
        node: UserError(what, where=f"node {node}", do=do) for node, what in problems.items()
    }
