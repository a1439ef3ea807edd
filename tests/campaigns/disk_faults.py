"""Disk that fails at the n-th call of a kind and records which data is not yet durable."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CALLS = {
    "open": ((os, "open"), (io, "open")),
    "write": ((os, "write"),),
    "fsync": ((os, "fsync"),),
    "rename": ((os, "rename"), (os, "replace")),
    "mkdir": ((os, "mkdir"),),
    "truncate": ((os, "ftruncate"),),
}
SHORT, FULL = "short", "full"
FAULTS = (SHORT, FULL, "ENOSPC", "EIO", "EROFS", "EMFILE")
"""`SHORT`: one write stores half of its data. `FULL`: the same, and later writes store nothing."""


CASES = [
    (call, fault)
    for call in ("open", "write", "fsync", "rename", "mkdir")
    for fault in FAULTS
    if call == "write" or fault not in (SHORT, FULL)
]


class Disk:
    """Disk calls on paths below `folder`. Nothing is really synced, because syncing takes time."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder = str(folder)
        self._faults: dict[str, tuple[str, int]] = {}
        self._count = dict.fromkeys(CALLS, 0)
        self.fired = False
        self._unsynced: set[str] = set()
        for call, places in CALLS.items():
            for module, name in places:
                patch.setattr(module, name, self._wrapped(call, getattr(module, name)))

    def unsynced(self, below: str = "") -> list[str]:
        """Return the existing paths, in this folder or anywhere, that a power cut would undo."""
        return [p for p in self._unsynced if p.startswith(below) and os.path.lexists(p)]

    def fail(self, *faults: tuple[str, str], nth: int = 1) -> None:
        """Make the `nth` call of each kind from now on fail with its fault."""
        self._faults = {call: (fault, nth) for call, fault in faults}
        self._unsynced.clear()
        self._count = dict.fromkeys(CALLS, 0)
        self.fired = False

    def _wrapped(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **more: Any) -> Any:
            path = self._path(args[0])
            if path is None:
                return real(*args, **more)
            self._count[call] += 1
            fault, nth = self._faults.get(call, ("", 0))
            if fault and self._count[call] == nth:
                self.fired = True
                if fault in (SHORT, FULL):
                    return real(args[0], bytes(args[1])[: len(args[1]) // 2])
                self._raise(fault, args[0])
            if fault == FULL and self._count[call] > nth:
                self._raise("ENOSPC", args[0])
            if call == "rename":
                assert not self.unsynced(path), "it gets its name before its content is synced"
            new = call == "mkdir" or (call == "open" and not os.path.lexists(path))
            result = None if call == "fsync" else real(*args, **more)
            self._note(call, path, new, args)
            return result

        return called

    def _note(self, call: str, path: str, new: bool, args: Any) -> None:
        """Return the paths that a power cut would undo now; locks are not kept."""
        if call == "fsync":
            self._unsynced.discard(path)
        elif call == "write":
            self._unsynced.add(path)
        elif call == "rename":
            self._unsynced.add(str(Path(args[1]).absolute().parent))
        elif new and ".lock" not in path:
            self._unsynced.add(str(Path(path).parent))

    def _path(self, given: Any) -> str | None:
        try:
            file = Path(f"/proc/self/fd/{given}").readlink() if isinstance(given, int) else given
        except OSError:
            return None
        path = str(Path(os.fsdecode(file)).absolute())
        return path if path.startswith(self._folder) else None

    @staticmethod
    def _raise(name: str, given: Any) -> None:
        number = getattr(errno, name)
        where = () if isinstance(given, int) else (os.fspath(given),)
        raise OSError(number, os.strerror(number), *where)


def is_one_sentence(text: str) -> bool:
    """Return True if `text` is one line and ends as a sentence does."""
    return re.fullmatch(r"[^\n]+[.)]", text.strip()) is not None
