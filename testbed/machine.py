"""Questions about the machine that Hotbed runs on. Doctor's checks ask only through this interface,
so that a test can replace the machine.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


class Machine(Protocol):
    """Read-only questions; no method raises."""

    def system(self) -> str:
        """Return the kernel's name, such as ``Linux`` or ``Darwin``."""

    def is_root(self) -> bool:
        """Return True if we run as root."""

    def which(self, program: str) -> str | None:
        """Return the path of a program, with the system folders searched too; None if not found."""

    def has_module(self, name: str) -> bool:
        """Return True if this Python can import the module."""

    def is_there(self, path: str) -> bool:
        """Return True if `path` exists."""

    def is_executable(self, path: str) -> bool:
        """Return True if `path` is an executable file."""

    def read(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""

    def free_bytes(self, path: str) -> int:
        """Return the bytes that a user may still write on the (future) file system of `path`."""

    def cores(self) -> int:
        """Return the number of processors that we may use."""

    def succeeds(self, *command: str) -> bool:
        """Return True if a harmless command without lasting effects exits with 0."""


class ThisMachine:
    """The real machine."""

    def system(self) -> str:
        return platform.system()

    def is_root(self) -> bool:
        return os.geteuid() == 0

    def which(self, program: str) -> str | None:
        # A user's PATH often lacks sbin, where debootstrap and losetup live.
        return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}")

    def has_module(self, name: str) -> bool:
        """See `Machine.has_module`."""
        return find_spec(name) is not None

    def is_there(self, path: str) -> bool:
        return Path(path).exists()

    def is_executable(self, path: str) -> bool:
        return os.access(path, os.X_OK) and Path(path).is_file()

    def read(self, path: str) -> str:
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return ""

    def free_bytes(self, path: str) -> int:
        folder = Path(path)
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def cores(self) -> int:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

    def succeeds(self, *command: str) -> bool:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0
