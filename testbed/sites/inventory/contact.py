"""Reaching machines over ssh: the first time by the user's own key, then by the testbed's.

Everything that a machine is asked goes through `Contact`, so that tests can stand in machines.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from schemas.errors import HotbedError, RemoteError
from testbed.sites.contract import Progress, SiteError, silent
from testbed.sites.inventory import hostside
from testbed.ssh import (
    MISSING,
    Shell,
    SshShell,
    SshTarget,
    end_connections,
    is_refusal,
    last_line,
)

PARALLEL = 32
ASK_S = 60.0
RETRY_S = 30.0
OLDEST_PYTHON = (3, 10)
LOGIN = (
    'echo "uid=$(id -u)"; sudo -n true 2>/dev/null && echo sudo=yes; '
    "python3 -c 'import sys; print(\"python=%d.%d\" % sys.version_info[:2])' 2>/dev/null; "
    'echo "connection=$SSH_CONNECTION"'
)
R = TypeVar("R")
T = TypeVar("T")


class Contact(Protocol):
    """How machines are reached."""

    def host_keys(self, target: SshTarget) -> Sequence[str]:
        """The host keys (``ssh-ed25519 AAAA...``) that a machine shows; nothing is trusted yet, and
        nobody logs in. RemoteError when it cannot be reached."""

    def shell(self, target: SshTarget) -> Shell:
        """A shell there."""

    def hang_up(self, control_dir: Path) -> None:
        """End the connections that are kept open in a folder."""


class OpenSsh:
    """The real one."""

    def host_keys(self, target: SshTarget) -> Sequence[str]:
        """See `Contact.host_keys`. It goes through jumps, which ssh-keyscan cannot."""
        with tempfile.TemporaryDirectory(prefix="hotbed-keys-") as folder:
            seen = Path(folder, "known_hosts")
            looking = replace(target, known_hosts=seen, control_dir=None)
            options = [
                "StrictHostKeyChecking=accept-new" if word == "StrictHostKeyChecking=yes" else word
                for word in looking.options()
            ]
            login = f"{target.user}@{target.address}"
            # No way to prove who we are is offered: the machine is not to be told anything yet.
            nobody = ["-o", "PreferredAuthentications=none", "-o", "HashKnownHosts=no"]
            where = f"{target.node} ({target.address})"
            try:
                done = subprocess.run(
                    ["ssh", *options, *nobody, login, "true"],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                    timeout=ASK_S,
                )
            except FileNotFoundError:
                raise RemoteError(MISSING) from None
            except subprocess.TimeoutExpired as error:
                raise RemoteError(
                    f"{where} showed no host key within {ASK_S:g} s.", retry=True
                ) from error
            lines = seen.read_text().splitlines() if seen.exists() else []
        keys = [" ".join(line.split()[1:3]) for line in lines if line and line[0] not in "#@"]
        if not keys:
            raise RemoteError(
                f"{where} shows no host key: {last_line(done.stderr)}",
                retry=not is_refusal(done.stderr),
            )
        return keys

    def shell(self, target: SshTarget) -> Shell:
        """See `Contact.shell`."""
        return SshShell(target)

    def hang_up(self, control_dir: Path) -> None:
        """See `Contact.hang_up`."""
        end_connections(control_dir)


def ask(shell: Shell, do: str, *, root: bool = True, **request: Any) -> Any:
    """Do something on a machine (a key of `hostside.ACTIONS`), as root.

    Args:
        root: whether the shell is root's already; else sudo is used.

    Raises:
        RemoteError: it cannot be reached, or something there went wrong.
    """
    argv = ["python3", "-", json.dumps({"do": do, **request})]
    if not root:
        argv = ["sudo", "-n", *argv]
    done = shell.run(argv, input=hostside.program(), timeout_s=ASK_S, check=False)
    try:
        found = json.loads(done.stdout)
        if found["ok"]:
            return found["result"]
        problem = str(found["error"])
    except (ValueError, KeyError, TypeError):
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        reason = lines[-1].strip()[:300] if lines else f"exit code {done.returncode}"
        raise RemoteError(f"machine {shell.node} could not be asked: {reason}") from None
    raise RemoteError(f"machine {shell.node} {problem}.")


@dataclass(frozen=True)
class Login:
    """What a shell may do. `address` is the machine's own at its end of the connection, `client`
    the one at the other end: ours, or that of whom ssh goes through; `port` is the one that the
    machine's sshd was reached at.
    """

    root: bool
    sudo: bool
    python: tuple[int, int] | None
    address: str | None
    client: str | None = None
    port: int | None = None

    @property
    def problem(self) -> str | None:
        """What keeps us from asking the machine more; None when nothing does."""
        if not (self.root or self.sudo):
            return (
                "may not become root: log in as root, or let the user use sudo without a password"
            )
        if self.python is None:
            return "has no python3: install it (apt-get install python3)"
        if self.python < OLDEST_PYTHON:
            found, oldest = (".".join(map(str, pair)) for pair in (self.python, OLDEST_PYTHON))
            return f"has Python {found}, and {oldest} or newer is needed"
        return None


def login_of(shell: Shell) -> Login:
    """What the shell may do; needs nothing but a POSIX shell there.

    Raises:
        RemoteError: the machine cannot be reached.
    """
    lines = shell.run(["sh", "-c", LOGIN], timeout_s=30.0).text.splitlines()
    told = dict(line.split("=", 1) for line in lines if "=" in line)
    version = told.get("python", "").split(".")
    numbers = (int(version[0]), int(version[1])) if len(version) >= 2 else None
    connection = told.get("connection", "").split()
    return Login(
        root=told.get("uid") == "0",
        sudo=told.get("sudo") == "yes",
        python=numbers,
        address=connection[2] if len(connection) == 4 else None,
        client=connection[0] if len(connection) == 4 else None,
        port=int(connection[3]) if len(connection) == 4 and connection[3].isdigit() else None,
    )


@dataclass(frozen=True)
class Answers(Generic[R]):
    """What machines answered, and why the others did not."""

    found: Mapping[str, R]
    lost: Mapping[str, HotbedError]


def everywhere(
    names: Iterable[str],
    function: Callable[[str], R],
    progress: Progress = silent,
    phase: str = "machines",
    span: tuple[float, float] = (0.0, 1.0),
) -> Answers[R]:
    """Call `function` for all names at once; one that fails does not keep the others from ending.

    Args:
        span: the share of the whole at the beginning and at the end.
    """
    wanted = list(names)
    found: dict[str, R] = {}
    lost: dict[str, HotbedError] = {}
    start, end = span
    progress(phase, start)
    if not wanted:
        return Answers(found, lost)
    with ThreadPoolExecutor(min(PARALLEL, len(wanted))) as pool:
        futures = {name: pool.submit(function, name) for name in wanted}
        try:
            for done, (name, future) in enumerate(futures.items(), 1):
                try:
                    found[name] = future.result()
                except HotbedError as error:
                    lost[name] = error
                progress(phase, start + (end - start) * done / len(wanted))
        except BaseException:
            for future in futures.values():
                future.cancel()
            raise
    return Answers(found, lost)


def all_or_error(answers: Answers[R], what: str) -> Mapping[str, R]:
    """What they found.

    Raises:
        SiteError: some did not answer; it names them, and says to try again when that may help.
    """
    if not answers.lost:
        return answers.found
    (name, first), *more = answers.lost.items()
    others = f"; the same goes for {', '.join(each for each, _ in more)}" if more else ""
    told = f"{what} {name}: {str(first).rstrip('.')}{others}."
    raise site_error(told, *answers.lost.values())


def site_error(message: str, *causes: HotbedError) -> SiteError:
    """`message` as a site says it: trying again helps where it may for one of the causes."""
    again = any(isinstance(cause, RemoteError) and cause.retry for cause in causes)
    return SiteError(message, retry_after_s=RETRY_S if again else None)
