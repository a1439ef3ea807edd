"""Errors shared by all packages. Standard library only: the agent side imports this file."""

from __future__ import annotations

import errno
import os

_NO_RIGHT = "name a place that you may write to, or run this as its owner"
_NO_ROOM = "free some space, or name another place, and give the same command again"
_WRONG_KIND = "name another path"
_REMEDIES = {
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: _NO_RIGHT,
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EEXIST: _WRONG_KIND,
    errno.EISDIR: _WRONG_KIND,
    errno.ENOENT: _WRONG_KIND,
    errno.ENOTDIR: _WRONG_KIND,
    errno.EIO: "the disk may be failing: look at the kernel's log (dmesg)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (sysctl fs.file-max)",
}


class HotbedError(Exception):
    """Failure while Hotbed worked; the message is one sentence for a person."""


class UserError(HotbedError):
    """Mistake in the user's input.

    The message is one sentence: what is wrong, where, what is allowed and what to do. The command
    line prints it without a traceback and exits with 2.
    """


class StoreError(HotbedError):
    """Error of a store that refused or could not carry out a command."""


class RemoteError(HotbedError):
    """Error of a command on a node that failed or could not be reached.

    `retry` is True if another try later may help (a lost node, a time-out), False after a refusal.
    """

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


def sentence_of(error: OSError) -> str:
    """Return one sentence: the path, what the system refused and, where known, what to do."""
    named = error.filename if error.filename2 is None else error.filename2
    where = "" if named is None else f"{named if isinstance(named, int) else os.fsdecode(named)}: "
    what = " ".join(str(error.strerror or error).split()) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{where}{what}{'' if remedy is None else f': {remedy}'}."
