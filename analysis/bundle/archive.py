"""The archive: written so that equal contents give equal bytes, and opened as a stranger's.

ZIP, because every Python opens it and a single file can be read from it; entries are sorted, carry
one date and one mode, and are compressed at one level.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
import threading
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from analysis.bundle.folders import Folders, workers
from schemas.errors import UserError
from schemas.names import UnsafeNameError, safe_path

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest date that a ZIP can hold; that of every entry."""
LEVEL = 5
CHUNK = 2**20
MOST_ENTRIES = 2_000_000
GIB = 2**30
LEAST_UNPACKED, MOST_RATIO = 2**26, 200
"""Bytes that any archive may unpack to, and times its size that a larger one may."""
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""What the library raises of an archive that is none, is cut off, or was changed on its way."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Digest:
    """A file's SHA-256 (hex) and size."""

    sha256: str
    bytes: int


def write(target: Path, files: Mapping[str, Path], progress: Progress) -> str:
    """Write `files` (name in the archive -> file) to `target`; returns the archive's SHA-256.

    It is made beside `target` and renamed when it is whole.

    Raises:
        UserError: it cannot be written.
    """
    refuse_target(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", allowZip64=True) as archive:
            for index, name in enumerate(sorted(files)):
                progress("packing", index / len(files))
                _add(archive, name, files[name])
        whole = digest(partial).sha256
        partial.replace(target)
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror}).") from error
    finally:
        partial.unlink(missing_ok=True)
    return whole


def refuse_target(target: Path) -> None:
    """Refuse what cannot be the name of an archive, before hours of work go into one.

    Raises:
        UserError: it is a folder.
    """
    if target.is_dir() or not target.name:
        raise UserError(f"{target}: is a folder: give --out the name of a file in it.")


def _add(archive: zipfile.ZipFile, name: str, file: Path) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system = 3  # Unix: what the mode below is read by
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    info._compresslevel = LEVEL  # type: ignore[attr-defined]  # public from Python 3.13 on
    info.file_size = file.stat().st_size
    with file.open("rb") as source, archive.open(info, "w") as sink:
        shutil.copyfileobj(source, sink, CHUNK)


def digest(file: Path) -> Digest:
    """Of a file on disk."""
    with file.open("rb") as source:
        sha = hashlib.file_digest(source, "sha256")
        return Digest(sha.hexdigest(), source.tell())


def unpacked_bytes(archive: Path) -> int | None:
    """How much comes out of it, at most; None where it does not say."""
    try:
        with zipfile.ZipFile(archive) as opened:
            return sum(entry.file_size for entry in opened.infolist())
    except (OSError, *_DAMAGED):
        return None


def unpack(
    archive: Path, folder: Path, *, most_bytes: int = 16 * GIB, progress: Progress
) -> dict[str, Digest]:
    """Unpack into the (empty) `folder` and return every file's digest as it came out.

    Nothing is written outside `folder`, nothing but plain files is made, and no more than
    `most_bytes` are written, whatever the archive says of itself.

    Raises:
        UserError: it cannot be read, is no ZIP archive, or is one that should not be opened: says
            which entry and why.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            _refuse_unsafe(archive, entries, most_bytes)
            _refuse_without_room(archive, entries, folder)
        return _extract_all(archive, entries, folder, progress)
    except _DAMAGED as error:
        raise UserError(
            f"{archive}: is no bundle, or a damaged one ({error}); fetch it again."
        ) from error
    except OSError as error:
        raise UserError(f"{archive}: cannot be read ({error.strerror or error}).") from error


def _refuse_unsafe(archive: Path, entries: Iterable[zipfile.ZipInfo], most_bytes: int) -> None:
    names: set[str] = set()
    total = count = 0
    for entry in entries:
        count += 1
        total += entry.file_size
        why = _unsafe(entry) or taken(entry.filename, names)
        if why is not None:
            raise UserError(f"{archive}: the entry {entry.filename!r} {why}; do not trust it.")
    if count > MOST_ENTRIES:
        raise UserError(
            f"{archive}: holds {count:,} files, more than the {MOST_ENTRIES:,} allowed."
        )
    if total > max(LEAST_UNPACKED, MOST_RATIO * archive.stat().st_size):
        raise UserError(
            f"{archive}: unpacks to {total / GIB:.1f} GiB, more than {MOST_RATIO} times its size; "
            "do not trust it."
        )
    if total > most_bytes:
        raise UserError(
            f"{archive}: unpacks to {total / GIB:.1f} GiB, more than the {most_bytes / GIB:g} GiB "
            "that are allowed: raise --most-gib if you trust it."
        )


def _unsafe(entry: zipfile.ZipInfo) -> str | None:
    """Why an entry is not to be unpacked; None where nothing is wrong."""
    mode = entry.external_attr >> 16
    why = unsafe_name(entry.filename)
    if why is not None:
        return why
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "is no plain file"
    if entry.flag_bits & 0x1:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in a way that a bundle is not"
    return None


def unsafe_name(name: str) -> str | None:
    """Why no entry may have the name; None where nothing is wrong."""
    try:
        safe_path(name.removesuffix("/"), "bundle")
    except UnsafeNameError as error:
        return error.why
    if name.endswith("/"):
        return "is a folder of its own, which no bundle has: it was packed again"
    return "has a name that means something else elsewhere" if set(name) & {"\\", ":"} else None


def taken(name: str, names: set[str]) -> str | None:
    """Whether another entry has the name, or lies in it or is what it lies in, also where case
    makes no difference; `names` are those of before, and their folders with a slash at the end."""
    folded = unicodedata.normalize("NFC", name).casefold()
    if folded in names:
        return "is there twice"
    folders, head = [], folded
    while head := head.rpartition("/")[0]:
        folders.append(head)
    if f"{folded}/" in names:
        return "is a file, and another entry lies in it"
    if not names.isdisjoint(folders):
        return "lies in another entry, which is a file"
    names.update((folded, *(f"{folder}/" for folder in folders)))
    return None


def _refuse_without_room(archive: Path, entries: Iterable[zipfile.ZipInfo], folder: Path) -> None:
    need, free = sum(entry.file_size for entry in entries), shutil.disk_usage(folder).free
    if need > free:
        raise UserError(
            f"{archive}: unpacks to {need / GIB:.1f} GiB and {folder} has {free / GIB:.1f} GiB "
            "free: set TMPDIR to a folder with more room."
        )


def _extract_all(
    archive: Path, entries: Sequence[zipfile.ZipInfo], folder: Path, progress: Progress
) -> dict[str, Digest]:
    """Extract by several threads, each with the archive open for itself: most of the time goes
    into the file system and into decompression, which wait for no other thread."""
    folders = Folders()
    for entry in entries:
        folders.hold(f"{folder}/{entry.filename}")
    found: dict[str, Digest] = {}
    stop = threading.Event()

    def extract(mine: Sequence[zipfile.ZipInfo]) -> None:
        with zipfile.ZipFile(archive) as opened:
            for entry in mine:
                if stop.is_set():
                    return
                found[entry.filename] = _extract(archive, opened, entry, folder)

    count = workers(len(entries))
    with ThreadPoolExecutor(count) as pool:
        try:
            waited = {pool.submit(extract, entries[part::count]) for part in range(count)}
            while waited:
                progress("unpacking", len(found) / max(1, len(entries)))
                done, waited = wait(waited, timeout=0.2)
                for one in done:
                    one.result()
        finally:
            stop.set()
    return {entry.filename: found[entry.filename] for entry in entries}


def _extract(
    archive: Path, opened: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path
) -> Digest:
    with opened.open(entry) as source, (folder / entry.filename).open("xb") as sink:
        found = _copy(source, sink, entry.file_size)
    if found.bytes != entry.file_size:
        raise UserError(
            f"{archive}: the entry {entry.filename!r} is not as long as it says; do not trust it."
        )
    return found


def _copy(source: IO[bytes], sink: IO[bytes], most: int) -> Digest:
    """Copy, but stop as soon as there is more than `most`."""
    sha, total = hashlib.sha256(), 0
    while chunk := source.read(CHUNK):
        total += len(chunk)
        if total > most:
            break
        sha.update(chunk)
        sink.write(chunk)
    return Digest(sha.hexdigest(), total)
