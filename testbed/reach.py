"""The engine's access to a testbed's nodes: one persistent, checked ssh connection a node."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO

from schemas.errors import UserError
from schemas.locks import own_folder, run_folder
from testbed.sites.contract import Gateway, Node, Testbed
from testbed.ssh import SshShell, SshTarget, attended, config_word


def control_dir(name: str, directory: Path) -> Path:
    """Return the folder of a testbed's shared ssh connections. It is short: a unix socket's name
    has at most 108 bytes. Testbeds of one name in different state folders do not share it.
    """
    tag = hashlib.sha256(str(directory).encode()).hexdigest()
    if os.geteuid() == 0:
        return run_folder() / f"{name}-{tag[:4]}" / "ssh"
    return run_folder() / tag[:8]


def make_control_dir(testbed: Testbed) -> Path:
    """Make the testbed's `control_dir` and its parents, owned by us and closed to others: who can
    replace the folder can impersonate the machines. UserError: the folder is another user's, or
    cannot be made."""
    folder = control_dir(testbed.name, testbed.directory)
    try:
        for each in (run_folder(), folder.parent, folder):
            own_folder(each)
    except OSError as error:
        raise UserError(
            f"the folder {folder} for ssh's connections cannot be made ({error.strerror})",
            do="set XDG_RUNTIME_DIR to a folder of yours",
        ) from error
    return folder


def target_of(testbed: Testbed, node: Node) -> SshTarget:
    """Return the ssh target of a node, including the machines on the way to it. UserError: the key
    or the folder for connections is another user's, or the spec names a machine on the way that the
    testbed does not have."""
    if testbed.ssh_key.exists() and not os.access(testbed.ssh_key, os.R_OK):
        raise UserError(
            f"testbed {testbed.name!r} belongs to another user", do="run this as that user (sudo)"
        )
    _close_to_others(testbed.ssh_key)
    return replace(_target(testbed, node, ()), control_dir=make_control_dir(testbed))


def _close_to_others(key: Path) -> None:
    """Make the key private again: hosted hubs give the group read access to a whole volume at each
    mount, and ssh refuses a key that others can read."""
    with contextlib.suppress(OSError):
        found = key.stat()
        if found.st_mode & 0o077 and found.st_uid == os.geteuid():
            key.chmod(0o600)


def proxy_command_of(testbed: Testbed, node: Node) -> str | None:
    """Return ssh's ProxyCommand for the way to `node`; None if ssh connects directly. UserError:
    the testbed has no such machine, or the way leads back to itself."""
    return _target(testbed, node, ()).proxy_command


def _target(testbed: Testbed, node: Node, passed: tuple[str, ...]) -> SshTarget:
    return SshTarget(
        node=node.name,
        address=node.reached_at,
        key=testbed.ssh_key,
        known_hosts=testbed.known_hosts,
        user=node.ssh_user,
        port=node.ssh_port,
        jump=_jump(testbed, node, passed),
    )


def _jump(testbed: Testbed, node: Node, passed: tuple[str, ...]) -> SshTarget | None:
    if node.via is None:
        return None
    if node.via in (*passed, node.name):
        raise UserError(
            f"the way to node {node.name} leads through {node.via} twice",
            where=f"testbed {testbed.name}",
        )
    for gateway in testbed.gateways:
        if gateway.name == node.via:
            return gateway_target(gateway, testbed.known_hosts)
    for other in testbed.nodes:
        if other.name == node.via:
            return _target(testbed, other, (*passed, node.name))
    raise UserError(
        f"node {node.name} is reached through {node.via!r}, which is neither a node nor a "
        "gateway of it",
        where=f"testbed {testbed.name}",
    )


def gateway_target(gateway: Gateway, known_hosts: Path) -> SshTarget:
    """Return the ssh target of a gateway."""
    return SshTarget(
        node=gateway.name,
        address=gateway.address,
        key=gateway.ssh_key,
        known_hosts=known_hosts,
        user=gateway.ssh_user,
        port=gateway.ssh_port,
    )


def shell_to(testbed: Testbed, node: Node) -> SshShell:
    """Return a shell on `node`; its first command opens the connection that later ones share."""
    return SshShell(target_of(testbed, node))


def hang_up(name: str, directory: Path, known_hosts: Path) -> None:
    """End every ssh process that talks to the testbed, even if its starter was killed."""
    # A command line has the path in ssh's configuration syntax, a process title the plain path.
    marks = tuple(
        os.fsencode(text)
        for path, ending in ((control_dir(name, directory), "/"), (known_hosts, ""))
        for text in (f"{path}{ending}", config_word(path, ending).strip('"'))
    )
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(25):
            pids = _ssh_processes(marks)
            if not pids:
                break
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            time.sleep(0.04)
    folder = control_dir(name, directory)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # other testbeds' connections
        folder.parent.rmdir()


def _ssh_processes(marks: tuple[bytes, ...]) -> list[int]:
    """Return the ids of ssh processes with a mark in their command line (or title, if shared)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        program = line.split(b"\0", 1)[0].split(b" ", 1)[0].rpartition(b"/")[2]
        if program in (b"ssh", b"ssh:", b"scp", b"sftp") and any(mark in line for mark in marks):
            found.append(int(entry.name))
    return found


OnLine = Callable[[str, str, bool], None]
"""Called with a node's name, a line without its newline, and True if it came on standard error."""


def run_on(
    testbed: Testbed, nodes: Sequence[Node], argv: Sequence[str], on_line: OnLine
) -> dict[str, int]:
    """Run `argv` (a single word is a shell command line) on every node in parallel.

    If interrupted, end the command on every node.

    Returns:
        node -> exit code; 255 if the node could not be reached.
    """
    line = threading.Lock()
    processes = {
        node.name: subprocess.Popen(
            _command(testbed, node, argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for node in nodes
    }

    def pump(name: str, stream: IO[bytes] | None, is_error: bool) -> None:
        assert stream is not None
        for raw in stream:
            with line:
                on_line(name, raw.decode(errors="replace").rstrip("\r\n"), is_error)

    try:
        with ThreadPoolExecutor(2 * len(processes)) as pool:
            for name, process in processes.items():
                pool.submit(pump, name, process.stdout, False)
                pool.submit(pump, name, process.stderr, True)
        return {name: process.wait() for name, process in processes.items()}
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()


def _command(testbed: Testbed, node: Node, argv: Sequence[str]) -> list[str]:
    words = ["sh", "-c", argv[0]] if len(argv) == 1 else list(argv)
    return target_of(testbed, node).command(attended(words))
