"""The machine, its commands, and small files on it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MARK = "etc/hotbed-site.json"  # who holds the machine; outside of what a deployment removes

Run = Callable[[Sequence[str]], str]


class Refused(Exception):
    """One sentence on what cannot be done."""


def output(argv: Sequence[str]) -> str:
    """What a command prints, empty when it fails or is missing."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    environment = dict(os.environ, LC_ALL="C", PATH=path)
    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            env=environment,
            timeout=60,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


class Machine:
    """The machine under `root`, which is / but for tests, and its commands."""

    def __init__(self, root: Path = Path("/"), run: Run = output) -> None:
        self.root, self.run = root, run

    def path(self, name: str) -> Path:
        """Where `name` is."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """A file's text, empty when it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return ""


def read_mark(machine: Machine, name: str = MARK) -> dict[str, Any] | None:
    """Who holds the machine; None when nobody does."""
    text = machine.text(name)
    if not text.strip():
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"testbed": "?", "id": "?"}


def read_whole(path: Path) -> str:
    """A file's text, empty when there is none, so that `replace` writes every byte of it again.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def real(path: Path) -> Path:
    """The file itself, where `path` is a link to it."""
    return Path(os.path.realpath(path))


def beside(path: Path) -> Path:
    """Where `replace` writes first; a crash may leave it."""
    return path.with_name(path.name + ".hotbed-new")


def replace(path: Path, text: str, mode: int) -> None:
    """Write `path`, whole or not at all; with `mode` if it is new, else with owner and mode as they
    were. A link stays one.
    """
    path = real(path)
    new, data = beside(path), text.encode("utf-8", "surrogateescape")
    handle = os.open(str(new), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(mode)
    if path.exists():
        shutil.copystat(str(path), str(new))
        status = path.stat()
        os.chown(str(new), status.st_uid, status.st_gid)
    try:
        new.replace(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # A mount of its own, as /etc/hosts is in some containers: it can only be written in place.
        path.write_bytes(data)
        new.unlink()
