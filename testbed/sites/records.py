"""On-disk record of testbeds on other people's machines, consistent at any moment.

A testbed's folder is ``<root>/sites/<kind>/<name>/``, private to its owner, with

- ``record.json``: the request and all that is known of the testbed, replaced atomically;
- ``journal.jsonl``: a line before each outside call and one after it, on the disk before the call
(a write-ahead log): after a crash it shows which things may have been made;
- ``id_ed25519``, ``known_hosts`` and other files that the packages above keep for the testbed.

No secret of the user's is written. `root` is `default_root`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.durable import append_line, json_lines, make_folder, sync_folder, write_file
from schemas.errors import UserError
from schemas.locks import take
from testbed.sites.contract import SiteError

# ----------------------------------------------------------------------------------------------
# Locks of testbeds, with error messages for commands that must wait.


@contextmanager
def locked(path: Path, *, timeout_s: float, busy: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; it ends with the process, however the process ends.
    UserError: the folder or the file cannot be made. SiteError: with the text `busy`, if another
    process holds it for longer than `timeout_s`."""
    try:
        handle = take(path, timeout_s)
    except BlockingIOError as error:
        raise SiteError(busy, retry_after_s=30.0) from error
    except OSError as error:
        raise UserError(
            f"{path.parent}, where testbeds are remembered, cannot be written ({error.strerror})",
            do="run this as its owner, or set HOTBED_STATE to a folder of yours",
        ) from error
    try:
        yield
    finally:
        os.close(handle)


VERSION = 1
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")  # names that testbed.spec allows for a testbed
_RECORD, _JOURNAL = "record.json", "journal.jsonl"


def default_root() -> Path:
    """Return the folder of all that Hotbed records for this user on this machine: $HOTBED_STATE,
    else a hosted hub's volume, else /var/lib/hotbed for root, else ``~/.local/state/hotbed``."""
    chosen = os.environ.get("HOTBED_STATE")
    if chosen:
        return Path(chosen).resolve()
    kept = _kept_by_a_hub()
    if kept is not None:
        return kept
    if os.geteuid() == 0:
        return Path("/var/lib/hotbed")
    return Path.home() / ".local" / "state" / "hotbed"


def _kept_by_a_hub() -> Path | None:
    """Return the folder in Chameleon's JupyterHub that outlives the server, unlike the home folder.
    It is on the volume with the user's key pair (OS_KEYPAIR_PRIVATE_KEY is ``/work/.ssh/id_rsa``
    there). Without its record a lease would continue with nobody to end it."""
    key = Path(os.environ.get("OS_KEYPAIR_PRIVATE_KEY", ""))
    if "JUPYTERHUB_API_TOKEN" not in os.environ or key.parent.name != ".ssh":
        return None
    volume = key.parent.parent
    if not volume.is_absolute() or not os.access(volume, os.W_OK) or volume == Path.home():
        return None
    return volume / ".hotbed"


@dataclass
class Record:
    """One testbed's record, while it is held open (see `Records.open`).

    `save` writes `data`: JSON values only; empty for an unknown testbed.
    """

    folder: Path
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The testbed's name."""
        return self.folder.name

    def save(self) -> None:
        """Write `data`; a crash leaves either the old or the new content."""
        self._make_folder()
        text = json.dumps({"version": VERSION, **self.data}, indent=1)
        write_file(self.folder / _RECORD, text + "\n", 0o600)

    def journal(self, kind: str, **fields: Any) -> None:
        """Append ``{"entry": kind, **fields}`` and sync it to the disk. `kind`: such as ``ask``
        before a call that makes something and ``made`` after it; written as the field ``entry``.
        `fields`: JSON values."""
        self._make_folder()
        line = json.dumps({"entry": kind, **fields}, sort_keys=False).encode() + b"\n"
        append_line(self.folder / _JOURNAL, line, 0o600)

    def entries(self) -> list[dict[str, Any]]:
        """Return the journal's lines, oldest first, without a line that a crash cut off."""
        return _entries(self.folder / _JOURNAL)

    def _make_folder(self) -> None:
        make_folder(self.folder, 0o700)
        self.folder.chmod(0o700)


@dataclass(frozen=True)
class Records:
    """Records of a `kind` of site. `kind`: the site's kind. `root`: replaces `default_root`."""

    kind: str
    root: Path | None = None

    @property
    def top(self) -> Path:
        """Folder that holds a folder for each testbed."""
        return (self.root or default_root()) / "sites" / self.kind

    def folder(self, name: str) -> Path:
        """Return the folder of one testbed."""
        return self.top / name

    def names(self) -> tuple[str, ...]:
        """Return the name of every testbed that has a record or a journal."""
        try:
            folders = sorted(path.name for path in self.top.iterdir() if path.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except PermissionError:
            return ()  # another user's
        return tuple(name for name in folders if _NAME.fullmatch(name))

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the current record without holding it; None if there is none. UserError: the
        record is of another version, or was changed by hand."""
        if not _NAME.fullmatch(name):
            return None
        return _read(self.folder(name) / _RECORD)

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return the current journal without holding the record."""
        return _entries(self.folder(name) / _JOURNAL) if _NAME.fullmatch(name) else []

    @contextmanager
    def open(self, name: str, *, timeout_s: float = 15.0) -> Iterator[Record]:
        """Hold the testbed's record: no other process works on the testbed meanwhile. No file or
        folder is made before `Record.save` or `Record.journal`. SiteError: another process holds
        it. UserError: `name` is not a valid name, the record is of another version, or nothing can
        be written there."""
        if not _NAME.fullmatch(name):
            raise UserError(
                f"{name!r} is no name of a testbed: 1 to 20 lower-case letters, digits or -, "
                "a letter first"
            )
        busy = f"another hotbed command is working on testbed {name!r}; try again when it ended"
        with locked(self.top / ".locks" / name, timeout_s=timeout_s, busy=busy):
            folder = self.folder(name)
            yield Record(folder, _read(folder / _RECORD) or {})

    def remove(self, name: str) -> None:
        """Forget the testbed; call this while it is held open. The record is removed last, so that
        what a crash leaves is still known.
        """
        folder = self.folder(name)
        if not folder.exists():
            return
        for path in sorted(
            folder.iterdir(), key=lambda each: (each.name == _JOURNAL) + 2 * (each.name == _RECORD)
        ):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        folder.rmdir()
        sync_folder(folder.parent)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise UserError(
            f"testbed {path.parent.name!r} belongs to another user",
            do="run this as that user (sudo)",
        ) from error
    except ValueError:
        data = None
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        raise UserError(
            "is of another version of hotbed or was changed by hand",
            where=path,
            do=f"take the testbed {path.parent.name!r} down with the version that made it",
        )
    return {key: value for key, value in data.items() if key != "version"}


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        return [entry for entry in json_lines(path.read_bytes()) if isinstance(entry, dict)]
    except FileNotFoundError:
        return []
