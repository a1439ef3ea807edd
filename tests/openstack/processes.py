"""Processes of the control plane: started with a log each, waited for, and all ended at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed.sites.local.process import tied

# Only this part of the caller's environment reaches a service: no proxies, no OS_*.
_KEPT = ("HOME", "LANG", "PATH", "TMPDIR")


class NotHealthy(RuntimeError):
    """Error of a process that ended or does not do its task."""


class Processes:
    """Group of processes with their logs in one folder.

    Each process is its own session, so that its children end with it. The kernel ends it when this
    process dies (`tied`), so that a killed test run leaves nothing.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        stdin: Path | None = None,
    ) -> None:
        """Start `command` as `name`; its output goes to ``<name>.log``."""
        with contextlib.ExitStack() as files:
            log = files.enter_context((self.logs / f"{name}.log").open("ab"))
            source = files.enter_context((stdin or Path(os.devnull)).open("rb"))
            self._running[name] = subprocess.Popen(
                tied(command),
                stdin=source,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**inherited(), **(environment or {})},
                pass_fds=pass_fds,
                start_new_session=True,
            )

    def pid(self, name: str) -> int:
        """Return the process id of `name`."""
        return self._running[name].pid

    def wait(self, name: str, healthy: Callable[[], bool], timeout_s: float = 180.0) -> None:
        """Wait until `healthy`. NotHealthy: the process ended, or `timeout_s` passed; with the end
        of its log."""
        end = time.monotonic() + timeout_s
        while not healthy():
            code = self._running[name].poll()
            if code is not None:
                raise NotHealthy(f"{name} ended with {code}:\n{self.tail(name)}")
            if time.monotonic() > end:
                raise NotHealthy(f"{name} is not up after {timeout_s:g} s:\n{self.tail(name)}")
            time.sleep(0.1)

    def check(self) -> None:
        """Raise NotHealthy if a process has ended."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                raise NotHealthy(f"{name} ended with {code}:\n{self.tail(name)}")

    def finish(self, name: str, timeout_s: float = 180.0) -> None:
        """Wait until `name` has ended successfully by itself; raise NotHealthy otherwise."""
        try:
            code = self._running[name].wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        self._running.pop(name)
        if code != 0:
            raise NotHealthy(f"{name} ended with {code}:\n{self.tail(name)}")

    def run(self, name: str, command: Sequence[str], **options: object) -> None:
        """Start `command` and wait until it ends successfully; `options` are those of `start`."""
        self.start(name, command, **options)  # type: ignore[arg-type]
        self.finish(name)

    def tail(self, name: str, characters: int = 4000) -> str:
        """Return the end of a log."""
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace")[-characters:] if path.exists() else "(no log)"

    def stop(self, *names: str, timeout_s: float = 20.0) -> None:
        """End these processes (all without names) and their children: ask first, then kill."""
        chosen = {name: self._running.pop(name) for name in names or tuple(self._running)}
        for process in chosen.values():
            _signal(process.pid, signal.SIGTERM)
        end = time.monotonic() + timeout_s
        for process in chosen.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        for process in chosen.values():
            _signal(process.pid, signal.SIGKILL)
            process.wait()


def inherited() -> dict[str, str]:
    """Return the part of this environment that processes inherit."""
    return {key: os.environ[key] for key in _KEPT if key in os.environ}


def listens(address: str, port: int) -> Callable[[], bool]:
    """Return a check for `Processes.wait`: True if the address accepts connections."""

    def check() -> bool:
        with contextlib.closing(socket.socket()) as probe:
            probe.settimeout(2.0)
            return probe.connect_ex((address, port)) == 0

    return check


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
