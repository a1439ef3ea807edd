"""The archive: equal contents give equal bytes, and a foreign archive does no harm.

The format is ZIP, because every Python opens it and can read a single file from it. Entries are
sorted, carry one date and one mode, and are compressed at one level. An archive is unpacked within
limits (`unpack`), and each file is checked before it is parsed (`require_moderate`).
`hotbed.contained` limits the process as a whole; errors from this module name the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from schemas.errors import UserError
from schemas.names import UnsafeNameError, safe_path
from schemas.yaml_file import ContentError, survey

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest date in a ZIP archive, and the date of every entry."""
LEVEL = 5
CHUNK = 2**20
MOST_ENTRIES = 2_000_000
MIB, GIB = 2**20, 2**30
THREADS = 4
LEAST_UNPACKED, MOST_RATIO = 2**26, 200
"""Bytes that any archive may unpack to, and the maximum ratio to its size for a larger archive."""
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""Errors that the library raises for damaged, truncated and foreign archives."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Digest:
    """A file's SHA-256 (hex) and size."""

    sha256: str
    bytes: int


def write(target: Path, files: Mapping[str, Path], progress: Progress) -> str:
    """Write `files` (name in the archive -> file) to `target` and return the archive's SHA-256.

    The archive gets its final name when it is complete.

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
    """Raise if `target` cannot be the name of an archive, before hours of work go into one.

    Raises:
        UserError: `target` is a folder.
    """
    if target.is_dir() or not target.name:
        raise UserError(f"{target}: is a folder: give --out the name of a file in it.")


def _add(archive: zipfile.ZipFile, name: str, file: Path) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system = 3  # Unix: the system that defines the mode below
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    info._compresslevel = LEVEL  # type: ignore[attr-defined]  # public from Python 3.13 on
    info.file_size = file.stat().st_size
    with file.open("rb") as source, archive.open(info, "w") as sink:
        shutil.copyfileobj(source, sink, CHUNK)


def digest(file: Path) -> Digest:
    """Return the digest of a file."""
    with file.open("rb") as source:
        sha = hashlib.file_digest(source, "sha256")
        return Digest(sha.hexdigest(), source.tell())


def unpack(
    archive: Path, folder: Path, *, most_bytes: int = 16 * GIB, progress: Progress
) -> dict[str, Digest]:
    """Unpack into the (empty) `folder` and return the digest of every unpacked file.

    Nothing is written outside `folder`. Only plain files are created. At most `most_bytes` are
    written, whatever sizes the archive states.

    Raises:
        UserError: it cannot be read, is no ZIP archive, or is unsafe to open. The message names the
            entry and the reason.
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
    """Return why an entry must not be unpacked, or None."""
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
    """Return why no entry may have the name, or None."""
    try:
        safe_path(name.removesuffix("/"), "bundle")
    except UnsafeNameError as error:
        return error.why
    if name.endswith("/"):
        return "is a folder of its own, which no bundle has: it was packed again"
    return "has a name that means something else elsewhere" if set(name) & {"\\", ":"} else None


def taken(name: str, names: set[str]) -> str | None:
    """Return why an entry cannot have the name, or None. Another entry may have the same name, be
    in it or be one of its folders, also where case makes no difference.

    Args:
        name: name of the entry.
        names: names of earlier entries, and their folders with a slash at the end; grows.
    """
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
    """Extract with several threads: decompression and file system run in parallel."""
    for place in {(folder / entry.filename).parent for entry in entries}:
        place.mkdir(parents=True, exist_ok=True)
    found: dict[str, Digest] = {}
    with zipfile.ZipFile(archive) as opened, ThreadPoolExecutor(THREADS) as pool:
        made = pool.map(lambda entry: _extract(archive, opened, entry, folder), entries)
        try:
            for index, (entry, digest) in enumerate(zip(entries, made, strict=True)):
                found[entry.filename] = digest
                if index % 100 == 0:
                    progress("unpacking", index / len(entries))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return found


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
    """Copy, but stop as soon as there are more than `most` bytes."""
    sha, total = hashlib.sha256(), 0
    while chunk := source.read(CHUNK):
        total += len(chunk)
        if total > most:
            break
        sha.update(chunk)
        sink.write(chunk)
    return Digest(sha.hexdigest(), total)


# ---- bounds on foreign files ---------------------------------------------------------------------

MOST_YAML = 2 * MIB
MOST_PIXELS = 8_000_000
LEAST_TABLE, TABLE_RATIO = 64 * MIB, 64
"""Bytes that any Parquet file may decode to, and maximum ratio to its size for a larger file."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_SIMPLE = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings that store every value in the file: a delta encoding can stand for any length."""


def require_moderate(files: Mapping[str, Path], source: Path) -> None:
    """Raise unless files (by their names in the bundle `source`) can be read at a moderate cost.

    Raises:
        UserError: names the first file that cannot.
    """
    for name, file in files.items():
        look = _LOOKS.get(Path(name).suffix)
        why = None if look is None else look(file)
        if why is not None:
            raise UserError(f"{source}: {name} {why}; do not trust it.")


def _json(file: Path) -> str | None:
    try:
        json.loads(file.read_bytes())
    except RecursionError:
        return "is nested too deep"
    except ValueError:  # the reader of the file reports it
        pass
    return None


def _yaml(file: Path) -> str | None:
    if file.stat().st_size > MOST_YAML:
        return f"is YAML of more than {MOST_YAML // MIB} MiB"
    try:
        survey(file.read_text(errors="replace"), allowed=False)
    except ContentError as error:
        return f"cannot be: {error}"
    return None


def _picture(file: Path) -> str | None:
    from PIL.PngImagePlugin import PngImageFile

    try:
        with PngImageFile(file) as picture:
            width, height = picture.size
    except Exception:  # no reader can open the picture
        return None
    if width * height > MOST_PIXELS:
        return f"is a picture of {width} x {height} points, more than {MOST_PIXELS:,}"
    return None


def _table(file: Path) -> str | None:
    import pyarrow as pa

    most = max(LEAST_TABLE, TABLE_RATIO * file.stat().st_size)
    try:
        size = _decoded_bytes(file, most)
    except (pa.ArrowException, OSError, ValueError):  # the reader of the file reports it
        return None
    if size is None:
        return "is a table in an encoding that a bundle does not use"
    if size > most:
        return f"is a table of {size / MIB:,.0f} MiB or more in {file.stat().st_size} bytes"
    return None


def _decoded_bytes(file: Path, most: int) -> int | None:
    """Return the maximum bytes that a Parquet file decodes to, or a number above `most`; None if
    unknown. Texts are read only if their count and the file's size do not decide."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        about = opened.metadata
        parts = [
            about.row_group(group).column(column)
            for group in range(about.num_row_groups)
            for column in range(about.num_columns)
        ]
    if any(not _SIMPLE.issuperset(part.encodings) for part in parts):
        return None
    packed: int = sum(part.total_uncompressed_size for part in parts)
    numbers: int = sum(
        part.num_values * _WIDTHS[part.physical_type]
        for part in parts
        if part.physical_type in _WIDTHS
    )
    texts = [part for part in parts if part.physical_type not in _WIDTHS]
    longest: int = sum(part.num_values * part.total_uncompressed_size for part in texts)
    names = sorted({part.path_in_schema for part in texts})
    nested = any("." in name for name in names)
    if packed + numbers > most or packed + numbers + longest <= most or nested:
        return packed + numbers + longest
    return packed + numbers + _texts(file, names, most)


def _texts(file: Path, texts: list[str], most: int) -> int:
    """Return the bytes of a Parquet file's texts, up to about `most`, without decoding them."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    total = 0
    with pq.ParquetFile(file, read_dictionary=texts) as opened:
        for group in range(opened.num_row_groups):
            for column in opened.read_row_group(group, columns=texts).columns:
                for chunk in column.chunks:
                    longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
                    total += len(chunk) * (longest + 8)
            if total > most:
                break
    return total


_LOOKS: Mapping[str, Callable[[Path], str | None]] = {
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".cff": _yaml,
    ".png": _picture,
    ".parquet": _table,
}
