"""Errors shared by all packages. Standard library only: the agent side imports this file."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_SHOWN = 120
"""Number of characters of a wrong value to repeat."""
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

_HERE = Path(__file__).parents[1]
BUILD = (
    "run `make setup`"
    if (_HERE / "Makefile").exists() or (_HERE / "dataplane" / "bin").exists()
    else "clone Hotbed (this wheel holds no Go programs), run `make setup` there, and use the "
    "clone's .venv/bin/hotbed, or `pip install` the clone"
)
"""Remedy for a program of Hotbed that is missing or old."""


class HotbedError(Exception):
    """Failure while Hotbed worked; the message is one sentence for a person."""


class UserError(HotbedError):
    """Mistake in the user's input; `str` makes its one sentence (see `sentence`).

    The command line prints the sentence without a traceback and exits with 2.

    Attributes:
        what: the mistake.
        where: the file, line, key, option or node with the mistake.
        allowed: the allowed values.
        do: the next step, such as a command or a change.
    """

    def __init__(
        self, what: object, *, where: object = "", allowed: object = "", do: object = ""
    ) -> None:
        self.what, self.where = _clause(what), _place(where)
        self.allowed, self.do = _clause(allowed), _clause(do)
        super().__init__(self.what)

    def __reduce__(self) -> tuple[object, ...]:
        # A subclass has arguments of its own, which unpickling would not know.
        return _unpickled, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        return sentence(self.what, self.where, self.allowed, self.do)

    def at(self, where: object) -> UserError:
        """Return this mistake with `where` in front of its place, such as the file of a key."""
        place = ": ".join(part for part in (_place(where), self.where) if part)
        return UserError(self.what, where=place, allowed=self.allowed, do=self.do)


def _unpickled(
    kind: type[UserError], arguments: tuple[object, ...], fields: dict[str, object]
) -> UserError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


def not_allowed(where: object, value: object, allowed: object) -> UserError:
    """Return the mistake of a `value` at `where` that is not one of the `allowed` values."""
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    near = nearest(value, str(allowed).split(", ")) if isinstance(value, str) else ""
    return UserError(f"{shown} is not allowed", where=where, allowed=allowed, do=near)


def unknown(
    what: str, name: str, known: Iterable[str], *, where: object = "", more: str = "", do: str = ""
) -> UserError:
    """Return the mistake of a `name` that no `what` (such as ``campaign``) has. The sentence lists
    the `known` names, followed by `more`, and asks for the nearest of them before `do`."""
    names = list(known)
    near = nearest(name, names)
    return UserError(
        f"there is no {what} {name!r}",
        where=where,
        allowed=f"{', '.join(names) or 'none'}{more}",
        do=f"{near} {do[:1].upper()}{do[1:]}" if near and do else near or do,
    )


def nearest(name: str, known: Iterable[str] | Mapping[str, str]) -> str:
    """Return ``did you mean KNOWN?`` with the nearest of the `known` names, or with its text if
    they have texts; empty if none is near."""
    import difflib  # here, because no command needs it to start

    texts = known if isinstance(known, Mapping) else {each: each for each in known}
    by_lower = {each.lower(): text for each, text in texts.items()}
    alike = {3: 0.66, 4: 0.75}.get(len(name), 0.8)  # two swapped letters are much of a short name
    near = difflib.get_close_matches(name.lower(), by_lower, 1, alike)
    return f"did you mean {by_lower[near[0]]}?" if near else ""


def sentence(what: str, where: str = "", allowed: str = "", do: str = "") -> str:
    """Return "WHERE: WHAT; allowed: ALLOWED; DO." in one line, without the empty parts."""
    where, (what, allowed, do) = _place(where), map(_clause, (what, allowed, do))
    if allowed:
        allowed = f"allowed: {allowed}"
    said = "; ".join(clause for clause in (what, allowed, do) if clause)
    said = ": ".join(part for part in (where, said) if part)
    return said if said.endswith((".", "?", "!")) else f"{said}."


_END = re.compile(r"[\s,;:]+$|(?<=[^\s./])\.{1,2}$")


def _place(part: object) -> str:
    """Return a place in one line; a path keeps its spaces and its last character."""
    return " ".join(str(part).splitlines()).replace("\t", " ").strip()


def _clause(part: object) -> str:
    """Return a part of a sentence in one line, without the sentence's end (but "..." remains)."""
    text = " ".join(str(part).split())
    while (shorter := _END.sub("", text)) != text:
        text = shorter
    return text


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
    where = "" if named is None else str(named if isinstance(named, int) else os.fsdecode(named))
    what = " ".join(str(error.strerror or error).split()) or type(error).__name__
    return sentence(what, where, do=_REMEDIES.get(error.errno or 0, ""))
