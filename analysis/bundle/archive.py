"""The archive: equal contents give equal bytes, and a foreign archive does no harm.

The format is ZIP: every Python opens it and can read a single file from it. Entries are sorted,
carry one date and one mode, and are compressed at one level. `unpack` works within limits, and
`look` reads each file at a moderate cost, or refuses it. `hotbed.contained` limits the process.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import UserError
from schemas.names import UnsafeNameError, safe_path
from schemas.yaml_file import ContentError, survey

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest date in a ZIP archive, and the date of every entry."""
LEVEL = 5
MIB, GIB = 2**20, 2**30
LEAST_UNPACKED, MOST_RATIO = 64 * MIB, 200
"""Bytes that any archive may unpack to, and the maximum ratio to its size for a larger archive."""
MOST_YAML = 2 * MIB
MOST_PIXELS = 8_000_000
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOMEM)
"""Errors of this machine, not of a bundle."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(NotImplementedError, RuntimeError, ValueError),
)
"""Errors that the library raises for damaged, truncated and foreign archives."""
_DISTRUST = "do not trust it"

Progress = Callable[[str, float], None]


def quiet(_phase: str, _share: float) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Digest:
    """A file's SHA-256 (hex) and size."""

    sha256: str
    bytes: int


def digest(file: Path) -> Digest:
    """Return the digest of a file."""
    with file.open("rb") as source:
        sha = hashlib.file_digest(source, "sha256")
        return Digest(sha.hexdigest(), source.tell())


def files_in(folder: Path) -> dict[str, Path]:
    """Return every file below a folder by its name in an archive of the folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return dict(sorted((path.relative_to(folder).as_posix(), path) for path in files))


def write(target: Path, files: Mapping[str, Path], progress: Progress) -> str:
    """Write `files` (name in the archive -> file) to `target` and return the archive's SHA-256. The
    archive gets its final name when it is complete. UserError: it cannot be written."""
    refuse_folder(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w") as archive:
            for index, name in enumerate(sorted(files)):
                progress("packing", index / len(files))
                _add(archive, name, files[name])
        whole = digest(partial).sha256
        partial.replace(target)
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", where=target) from error
    finally:
        partial.unlink(missing_ok=True)
    return whole


def refuse_folder(target: Path) -> None:
    """Raise a UserError if `target` is a folder, before hours of work go into an archive."""
    if target.is_dir() or not target.name:
        raise UserError("is a folder", where=target, do="give --out the name of a file in it")


def _add(archive: zipfile.ZipFile, name: str, file: Path) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system = 3  # Unix: the system that defines the mode below
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED, LEVEL)


def unpack(
    archive: Path, folder: Path, *, most_bytes: int, progress: Progress
) -> dict[str, Digest]:
    """Unpack into the (empty) `folder` and return the digest of every unpacked file. Nothing is
    written outside `folder`. Only plain files are created. At most `most_bytes` are written,
    whatever sizes the archive states. UserError: it cannot be read, is no ZIP archive, or is unsafe
    to open."""
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            _refuse_unsafe(archive, entries, most_bytes)
            found = {}
            for index, entry in enumerate(entries):
                if index % 100 == 0:
                    progress("unpacking", index / len(entries))
                found[entry.filename] = digest(Path(opened.extract(entry, folder)))
            return found
    except _DAMAGED as error:
        raise UserError(
            f"is no bundle, or a damaged one ({error})", where=archive, do="fetch it again"
        ) from error
    except OSError as error:
        room = f"set TMPDIR to a folder with more room than {folder}"
        raise UserError(
            f"cannot be unpacked ({error.strerror or error})",
            where=archive,
            do=room if error.errno in NO_ROOM else _DISTRUST,
        ) from error


def _refuse_unsafe(archive: Path, entries: list[zipfile.ZipInfo], most_bytes: int) -> None:
    names: set[str] = set()
    for entry in entries:
        why = refused_name(entry.filename, names)
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            why = "is no plain file"
        elif entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            why = "is compressed in a way that a bundle is not"
        if why is not None:
            raise UserError(f"the entry {entry.filename!r} {why}", where=archive, do=_DISTRUST)
    total = sum(entry.file_size for entry in entries)
    size = f"unpacks to {total / GIB:.1f} GiB"
    if total > max(LEAST_UNPACKED, MOST_RATIO * archive.stat().st_size):
        raise UserError(f"{size}, over {MOST_RATIO} times its size", where=archive, do=_DISTRUST)
    if total > most_bytes:
        raise UserError(
            size,
            where=archive,
            allowed=f"{most_bytes / GIB:g} GiB",
            do="raise --most-gib if you trust it",
        )


def refused_name(name: str, names: set[str]) -> str | None:
    """Return why an entry cannot have the name, or None. It must not lead out of a folder, on any
    system. Another entry may have the same name, be in it or be one of its folders, also where
    case makes no difference. `names` grows."""
    try:
        safe_path(name, "bundle")
    except UnsafeNameError as error:
        return error.why
    if set(name) & {"\\", ":"}:
        return "has a name that means something else elsewhere"
    folded = unicodedata.normalize("NFC", name).casefold()
    parts = folded.split("/")
    folders = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    if folded in names or f"{folded}/" in names or not names.isdisjoint(folders):
        return "has the name of another entry, or of the folder of one"
    names.update((folded, *(f"{folder}/" for folder in folders)))
    return None


# ---- a look at every file ------------------------------------------------------------------------


def look(files: Mapping[str, Path], source: Path) -> None:
    """Raise unless files (by their names in the bundle `source`) can be read at a moderate cost. In
    a process with limits, a file that needs more memory is refused. UserError: names the first file
    that cannot."""
    for name, file in sorted(files.items()):
        check = _LOOKS.get(Path(name).suffix)
        try:
            why = None if check is None else check(file)
        except MemoryError:
            why = "takes more memory than a file of a bundle should"
        if why is not None:
            raise UserError(f"{name} {why}", where=source, do=_DISTRUST)


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
    import pyarrow.parquet as pq

    try:
        pq.ParquetFile(file).read(use_threads=False)
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError):  # the reader of the file reports it
        pass
    return None


_LOOKS: Mapping[str, Callable[[Path], str | None]] = {
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".cff": _yaml,
    ".png": _picture,
    ".parquet": _table,
}
