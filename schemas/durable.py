"""Durable files: on the disk, with their names, before the call returns.

Every function raises OSError with the path in it, and leaves nothing half-made: a file holds
either all of its old content or all of the new. Standard library only: the agent side imports this
file. Writes go through `os`, so that a test can fail any of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.errors import UserError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def read_json(path: Path, name: str = "") -> Any:
    """Return the content of the JSON file at `path`; sentences call it `name`, or else `path`.
    UserError: it cannot be read, or is not JSON."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=name or path) from error
    except (ValueError, RecursionError) as error:  # also for a binary file
        raise UserError(f"is not JSON ({error})", where=name or path) from error


def json_lines(data: str | bytes) -> Iterator[Any]:
    """Yield what the complete lines hold; torn ones are left out."""
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def read_deployed(path: Path) -> Any:
    """Return the content of a JSON file that a deployment leaves at `path`. UserError: nothing is
    deployed, or the file cannot be read."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError(
            "is missing", where=path, do="deploy the testbed first (hotbed deploy)"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", where=path, do="read it as its owner or root"
        ) from error
    except ValueError as error:
        raise UserError(
            f"is not JSON ({error})", where=path, do="deploy the testbed again"
        ) from error


def write_file(
    path: Path,
    data: str | bytes,
    mode: int | None = None,
    *,
    group: int | None = None,
    exclusive: bool = False,
    sync: bool = True,
) -> None:
    """Replace `path`, in an existing folder, with `data` (text as UTF-8), whole or not at all.
    Permissions are `mode`, or those left by the umask; `group` is the file's group, with root as
    its owner. `exclusive` writes a new file only. Without `sync`, the file may be lost in a power
    cut. UserError: `exclusive`, and the file exists."""
    raw = data.encode() if isinstance(data, str) else data
    new = path if exclusive else path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    with _named(path):
        try:
            handle = os.open(new, _NEW, 0o666 if mode is None else mode)
        except FileExistsError:
            what, do = "is there already, and is not overwritten", "name another file"
            raise UserError(what, where=path, do=do) from None
        try:
            try:
                if mode is not None:
                    os.fchmod(handle, mode)
                if group is not None:
                    os.fchown(handle, 0, group)
                _write(handle, raw)
                if sync:
                    os.fsync(handle)
            finally:
                os.close(handle)
            if new != path:
                new.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
    if sync:
        sync_folder(path.parent)


def open_log(path: Path, mode: int = 0o666, *, exclusive: bool = False) -> int:
    """Open `path` for `append`, made if it is missing; return the descriptor. FileExistsError:
    `exclusive`, and the file exists."""
    with _named(path):
        handle = os.open(path, _APPEND | (os.O_EXCL if exclusive else 0), mode)
    try:
        if os.fstat(handle).st_size == 0:  # perhaps new
            sync_folder(path.parent)
    except BaseException:
        os.close(handle)
        if exclusive:  # or the next try would find it
            with contextlib.suppress(OSError):
                path.unlink()
        raise
    return handle


def append(handle: int, line: bytes, path: Path, *, sync: bool = True) -> None:
    """Append `line` (which ends with a newline) to the log `path` that is open as `handle`, whole
    or not at all. One writer at a time. A line that a crash cut off is closed first, so that it
    does not spoil this one. Without `sync`, the line may be lost in a power cut."""
    with _named(path):
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line
        try:
            _write(handle, line)
            if sync:
                os.fsync(handle)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
            raise


def append_line(path: Path, line: bytes, mode: int = 0o666) -> None:
    """Append one line to a log that is opened for it alone; see `append`."""
    handle = open_log(path, mode)
    try:
        append(handle, line, path)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make `folder` and its missing parents; `mode` applies to `folder` only."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(mode)
    except FileExistsError:
        if folder.is_dir():  # another process was faster
            return
        message = os.strerror(errno.ENOTDIR)
        raise NotADirectoryError(errno.ENOTDIR, message, str(folder)) from None
    try:
        sync_folder(folder.parent)
    except OSError:
        with contextlib.suppress(OSError):  # or the next try would take it for durable
            folder.rmdir()
        raise


def commit_folder(partial: Path, final: Path) -> None:
    """Rename a finished folder to its final name, after its content is on the disk.
    FileExistsError: a folder of this name exists: results are never overwritten."""
    if final.exists():
        message = "exists already: results are never overwritten"
        raise FileExistsError(errno.EEXIST, message, str(final))
    for path in [partial, *partial.rglob("*")]:
        if path.is_dir() or path.is_file():
            _sync(path, os.O_RDONLY)
    partial.rename(final)
    try:
        sync_folder(final.parent)
    except OSError:
        with contextlib.suppress(OSError):
            final.rename(partial)
        raise


def sync_folder(folder: Path) -> None:
    """Put renames and new names in `folder` on the disk."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    with _named(path):
        handle = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        except OSError as error:
            # Some network file systems cannot sync a folder, and report EINVAL.
            if error.errno != errno.EINVAL or not flags & os.O_DIRECTORY:
                raise
        finally:
            os.close(handle)


def _write(handle: int, data: bytes) -> None:
    """Write all of `data`: a nearly full disk takes a part and reports no error."""
    left = memoryview(data)
    while left:
        count = os.write(handle, left)
        if count <= 0:
            raise OSError(errno.EIO, "nothing was written")
        left = left[count:]


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add `path` to errors of calls that know only a descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
