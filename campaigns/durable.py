"""Files that survive a crash: written whole or not at all, and on the disk before we go on."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.durable import sync_folder


def write_file(path: Path, text: str) -> None:
    """Write `text` to `path` whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def commit_folder(partial: Path, final: Path) -> None:
    """Rename a finished folder to its final name; refuses to overwrite.

    Every file in it is on the disk before the name is.
    """
    if final.exists():
        raise FileExistsError(f"{final} exists already: results are never overwritten")
    for path in [partial, *partial.rglob("*")]:
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    partial.rename(final)
    sync_folder(final.parent)
