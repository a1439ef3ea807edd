"""Commands on nodes, over OpenSSH. Standard library only: engine and admin node both use it.

Host keys are always checked against a known_hosts file; one connection a node is kept open and
shared (ControlMaster), so that a command costs milliseconds.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schemas.errors import RemoteError

MISSING = "the program 'ssh' is missing on this machine; see `hotbed doctor`."
_REFUSALS = ("Permission denied (", "Host key verification failed", "Name or service not known")
"""What ssh prints where trying again will not help."""


@dataclass(frozen=True)
class Completed:
    """A finished command."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode(errors="replace")


class Shell(Protocol):
    """Runs commands on one node."""

    node: str

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        """Run `argv` (no shell expansion). Raises RemoteError: unreachable, time-out, or a
        non-zero exit when `check`."""

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        """Write `data` to `path` on the node, whole or not at all."""

    def popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start `argv` with pipes on stdin and stdout; the caller ends it."""


@dataclass(frozen=True)
class SshTarget:
    """How to reach a node. `jump` names another target to go through (ProxyJump). Without `key`
    ssh tries an agent's and the user's default keys.
    """

    node: str
    address: str
    key: Path | None
    known_hosts: Path
    user: str = "root"
    port: int = 22
    control_dir: Path | None = None  # short path: a unix socket's name has 108 bytes at most
    jump: SshTarget | None = None

    def options(self, *, multiplex: bool = True) -> list[str]:
        """OpenSSH options: checked host key, no prompts, dead peers noticed within 15 s."""
        options = [
            *("-F", "none"),
            *([] if self.key is None else ["-i", str(self.key), "-o", "IdentitiesOnly=yes"]),
            *("-p", str(self.port)),
            *("-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=yes"),
            *("-o", f"UserKnownHostsFile={self.known_hosts}"),
            *("-o", "GlobalKnownHostsFile=/dev/null"),
            *("-o", "ConnectTimeout=10"),
            *("-o", "ServerAliveInterval=5"),
            *("-o", "ServerAliveCountMax=3"),
            *("-o", "LogLevel=ERROR"),
        ]
        if multiplex and self.control_dir is not None:
            options += [
                *("-o", "ControlMaster=auto"),
                *("-o", f"ControlPath={self.control_dir}/%C"),
                *("-o", "ControlPersist=60"),
            ]
        if self.jump is not None:
            options += ["-o", f"ProxyCommand={self.proxy_command}"]
        return options

    @property
    def proxy_command(self) -> str | None:
        """The ssh that goes through `jump`, as ssh_config's ProxyCommand takes it; None without.

        ssh's own ProxyJump would check the other's host key against the user's files.
        """
        if self.jump is None:
            return None
        host = f"[{self.address}]" if ":" in self.address else self.address
        inner = ["ssh", *self.jump.options(multiplex=False), "-W", f"{host}:{self.port}"]
        inner.append(f"{self.jump.user}@{self.jump.address}")
        return shlex.join(inner).replace("%", "%%")  # ssh expands %h and the like in it

    def command(self, argv: Sequence[str], *, multiplex: bool = True) -> list[str]:
        """The full local command line that runs `argv` on the node.

        A shell stays in between: of a command that a signal ends ssh itself says 255, which is
        also its word for a node that does not answer; the shell says 128 and the signal.
        """
        remote = f"{shlex.join(argv)}; exit $?"
        return [
            "ssh",
            *self.options(multiplex=multiplex),
            f"{self.user}@{self.address}",
            "--",
            remote,
        ]


class SshShell:
    """A `Shell` over OpenSSH."""

    def __init__(self, target: SshTarget) -> None:
        self.target = target
        self.node = target.node

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        """See `Shell.run`."""
        what = f"{shlex.join(argv)[:200]!r} on node {self.node}"
        try:
            process = subprocess.run(
                self.target.command(argv),
                input=b"" if input is None else input,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError:
            raise RemoteError(MISSING) from None
        except subprocess.TimeoutExpired as error:
            raise RemoteError(f"{what} did not end within {timeout_s:g} s.", retry=True) from error
        done = Completed(tuple(argv), process.returncode, process.stdout, process.stderr)
        if process.returncode == 255:
            raise RemoteError(
                f"node {self.node} ({self.target.address}) cannot be reached by ssh: "
                f"{last_line(process.stderr)}",
                retry=not is_refusal(process.stderr),
            )
        if check and process.returncode != 0:
            raise RemoteError(
                f"{what} failed with exit code {process.returncode}: {last_line(process.stderr)}"
            )
        return done

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        """See `Shell.put`."""
        temporary = f"{path}.new"
        script = (
            f"umask 077 && cat > {shlex.quote(temporary)} && chmod {mode:o} "
            f"{shlex.quote(temporary)} && mv -f {shlex.quote(temporary)} {shlex.quote(path)}"
        )
        self.run(["sh", "-c", script], input=data)

    def popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """See `Shell.popen`."""
        return subprocess.Popen(
            self.target.command(argv, multiplex=False),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def last_line(stderr: bytes) -> str:
    """What a command said last; of an ssh through another machine, what that one said."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if " by UNKNOWN port " not in line] or lines
    return telling[-1].strip()[:300] if telling else "no message"


def is_refusal(stderr: bytes) -> bool:
    """Whether ssh was refused, so that trying again will not help."""
    text = stderr.decode(errors="replace")
    return any(words in text for words in _REFUSALS)
