"""Commands on nodes, over OpenSSH. Standard library only: engine and admin node both use it.

Host keys are always checked against a known_hosts file. One connection a node is kept open and
shared (ControlMaster), so that a command costs milliseconds.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schemas.durable import write_file
from schemas.errors import RemoteError

MISSING = "the program 'ssh' is missing on this machine; see `hotbed doctor`."
_REFUSALS = ("Permission denied (", "Host key verification failed", "Name or service not known")
"""Messages of ssh after which a retry does not help."""


def config_word(path: Path, ending: str = "") -> str:
    """Return a path in the syntax of ssh's configuration, which splits an unquoted path at spaces
    and expands percent signs.

    Args:
        ending: appended unchanged, such as ``/%C``.
    """
    word = str(path).replace("%", "%%") + ending
    if not any(character in word for character in " \t'\"\\"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


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
    """Runner of commands on one node."""

    node: str

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        """Run `argv` (no shell expansion). Raises RemoteError: unreachable, time-out, or a non-zero
        exit with `check`."""

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        """Write `data` to `path` on the node, atomically."""

    def popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start `argv` with pipes on stdin and stdout; the caller must end it."""


@dataclass(frozen=True)
class SshTarget:
    """Address and credentials of a node for ssh. `jump` is another target to go through
    (ProxyJump). Without `key` ssh tries an agent's and the user's default keys.
    """

    node: str
    address: str
    key: Path | None
    known_hosts: Path
    user: str = "root"
    port: int = 22
    control_dir: Path | None = None  # short path: a unix socket's name has at most 108 bytes
    jump: SshTarget | None = None

    def options(self, *, multiplex: bool = True) -> list[str]:
        """Return OpenSSH options: checked host key, no prompts, dead peers noticed within 15 s."""
        options = [
            *("-F", "none"),
            *([] if self.key is None else ["-o", f"IdentityFile={config_word(self.key)}"]),
            *([] if self.key is None else ["-o", "IdentitiesOnly=yes"]),
            *("-p", str(self.port)),
            *("-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=yes"),
            *("-o", f"UserKnownHostsFile={config_word(self.known_hosts)}"),
            *("-o", "GlobalKnownHostsFile=/dev/null"),
            *("-o", "ConnectTimeout=10"),
            *("-o", "ServerAliveInterval=5"),
            *("-o", "ServerAliveCountMax=3"),
            *("-o", "LogLevel=ERROR"),
        ]
        if multiplex and self.control_dir is not None:
            options += [
                *("-o", "ControlMaster=auto"),
                *("-o", f"ControlPath={config_word(self.control_dir, '/%C')}"),
                *("-o", "ControlPersist=60"),
            ]
        if self.jump is not None:
            options += ["-o", f"ProxyCommand={self.proxy_command}"]
        return options

    @property
    def proxy_command(self) -> str | None:
        """The ssh through `jump`, as the value of ssh_config's ProxyCommand; None without `jump`.

        ssh's own ProxyJump would check the jump host's key against the user's files.
        """
        if self.jump is None:
            return None
        host = f"[{self.address}]" if ":" in self.address else self.address
        inner = ["ssh", *self.jump.options(multiplex=False), "-W", f"{host}:{self.port}"]
        inner.append(f"{self.jump.user}@{self.jump.address}")
        return shlex.join(inner).replace("%", "%%")  # ssh expands %h and similar in it

    def command(self, argv: Sequence[str], *, multiplex: bool = True) -> list[str]:
        """Return the full local command line that runs `argv` on the node.

        A remote shell stays in between. If a signal ends a command, ssh itself exits with 255, as
        for an unreachable node. The shell exits with 128 plus the signal's number.
        """
        remote = f"{shlex.join(argv)}; exit $?"
        return [
            "ssh",
            *self.options(multiplex=multiplex),
            f"{self.user}@{self.address}",
            "--",
            remote,
        ]


# sshd does not end a command when its client is gone; it only closes the pipe's reading end.
_ATTEND = """
import os, select, subprocess, sys, threading, time
try:
    child = subprocess.Popen(sys.argv[1:], start_new_session=True)
except OSError as error:
    print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr)
    sys.exit(127)
def attend():
    pipe = select.poll()
    pipe.register(1, 0)
    pipe.poll()
    gone.set()
    try:
        for number in (15, 9):
            os.killpg(child.pid, number)
            time.sleep(2)
    except ProcessLookupError:
        pass
    os._exit(1)
gone = threading.Event()
watch = threading.Thread(target=attend, daemon=True)
watch.start()
code = child.wait()
if gone.is_set():
    watch.join()
sys.exit(code if code >= 0 else 128 - code)
"""


def attended(argv: Sequence[str]) -> list[str]:
    """Return a command that runs `argv` on the node, and ends it with its process group as soon as
    the ssh that started it is gone. On a node without Python, `argv` runs alone."""
    script = 'command -v python3 > /dev/null || exec "$@"; exec python3 -I -c "$0" "$@"'
    return ["sh", "-c", script, _ATTEND, *argv]


class LocalShell:
    """`Shell` on the machine that runs this program, which is called `node`."""

    def __init__(self, node: str) -> None:
        self.node = node

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
            done = completed(argv, self._command(argv), what, input, timeout_s)
        except OSError as error:
            raise self._unstarted(what, error) from error
        self._require_reached(done)
        if check:
            require_success(done, what)
        return done

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        """See `Shell.put`."""
        write_file(Path(path), data, mode, sync=False)

    def popen(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """See `Shell.popen`."""
        return subprocess.Popen(
            self._command(argv, multiplex=False),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _command(self, argv: Sequence[str], *, multiplex: bool = True) -> list[str]:
        return list(argv)

    def _unstarted(self, what: str, error: OSError) -> RemoteError:
        return RemoteError(f"{what} cannot be started: {error.strerror}.")

    def _require_reached(self, done: Completed) -> None:
        """Raise RemoteError if the node did not answer."""


class SshShell(LocalShell):
    """`Shell` over OpenSSH."""

    def __init__(self, target: SshTarget) -> None:
        super().__init__(target.node)
        self.target = target

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        """See `Shell.put`."""
        temporary = f"{path}.new"
        script = (
            f"umask 077 && cat > {shlex.quote(temporary)} && chmod {mode:o} "
            f"{shlex.quote(temporary)} && mv -f {shlex.quote(temporary)} {shlex.quote(path)}"
        )
        self.run(["sh", "-c", script], input=data)

    def _command(self, argv: Sequence[str], *, multiplex: bool = True) -> list[str]:
        return self.target.command(argv, multiplex=multiplex)

    def _unstarted(self, what: str, error: OSError) -> RemoteError:
        missing = isinstance(error, FileNotFoundError)
        return RemoteError(MISSING) if missing else super()._unstarted(what, error)

    def _require_reached(self, done: Completed) -> None:
        if done.returncode == 255:
            raise RemoteError(
                f"node {self.node} ({self.target.address}) cannot be reached by ssh: "
                f"{last_line(done.stderr)}",
                retry=not is_refusal(done.stderr),
            )


def completed(
    argv: Sequence[str],
    command: Sequence[str],
    what: str,
    input: bytes | None,
    timeout_s: float,
) -> Completed:
    """Run `command` here in order to run `argv`, and return the result.

    Args:
        what: the name of the command in errors.

    Raises:
        RemoteError: the command did not end in time.
        OSError: the command cannot be started.
    """
    try:
        process = subprocess.run(
            list(command),
            input=b"" if input is None else input,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RemoteError(f"{what} did not end within {timeout_s:g} s.", retry=True) from error
    return Completed(tuple(argv), process.returncode, process.stdout, process.stderr)


def end_process(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Close a process's pipes and end it, by force after `patience_s`."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def require_success(done: Completed, what: str) -> None:
    """Raise an error with the last line of a failed command.

    Raises:
        RemoteError: the command failed.
    """
    if done.returncode != 0:
        said = last_line(done.stderr)
        raise RemoteError(f"{what} failed with exit code {done.returncode}: {said}")


def end_connections(folder: Path) -> None:
    """End the shared connections of a folder."""
    for socket in folder.iterdir():
        # A connection that does not end now ends by itself after a minute (ControlPersist).
        with contextlib.suppress(subprocess.TimeoutExpired):
            path = f"ControlPath={config_word(socket)}"
            subprocess.run(
                ["ssh", "-F", "none", "-o", path, "-O", "exit", "none"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=10,
            )


def last_line(stderr: bytes) -> str:
    """Return the last message of a command; for an ssh through another machine, that machine's."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    useful = [line for line in lines if " by UNKNOWN port " not in line] or lines
    return useful[-1].strip()[:300] if useful else "no message"


def is_refusal(stderr: bytes) -> bool:
    """Return True if ssh was refused, so that a retry does not help."""
    text = stderr.decode(errors="replace")
    return any(words in text for words in _REFUSALS)
