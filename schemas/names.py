"""Names of files from outside: a node, an archive, a bundle.

Standard library only: the agent side imports this file.
"""

from __future__ import annotations

import io
import re
import shutil
import tarfile
import unicodedata
import zlib
from pathlib import Path

from schemas.errors import UserError

MOST_BYTES = 2**30
"""Default limit of a tar archive's unpacked size."""
LONGEST = 1024
LONGEST_PART = 255
_PLAIN = re.compile(r"(?:(?!\.\.?/)[\w.,+=@~ -]{1,99}/){0,9}(?!\.\.?$)[\w.,+=@~ -]{1,99}", re.ASCII)
"""Pattern of ordinary names, accepted without a closer look."""
_INVISIBLE = ("C", "Zl", "Zp")  # Unicode categories of control characters and line separators


class UnsafeNameError(UserError, ValueError):
    """Error for a name that must not become a path on this machine.

    Attributes:
        name: the name as received.
        source: the node, archive or bundle that sent it.
        why: a clause such as "leaves the folder that it belongs to".
    """

    def __init__(self, name: str, source: str, why: str) -> None:
        super().__init__(
            f"the file name {name[:200]!r} {why}",
            where=source,
            allowed=(
                "a relative path without '..' and control characters, of at most "
                f"{LONGEST_PART} bytes a part and {LONGEST} in all"
            ),
            do="do not trust this source",
        )
        self.name = name
        self.source = source
        self.why = why


def safe_path(name: str, source: str) -> str:
    """Return `name`, a relative path with slashes from `source` (node, archive or bundle), if it
    may be joined to a folder of this machine. UnsafeNameError: it leads out of the folder, or is no
    suitable file name."""
    if not _PLAIN.fullmatch(name):
        why = _unsafe(name)
        if why is not None:
            raise UnsafeNameError(name, source, why)
    return name


def _unsafe(name: str) -> str | None:
    if not name:
        return "is empty"
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        return "leaves the folder that it belongs to"
    if any(unicodedata.category(character).startswith(_INVISIBLE) for character in name):
        return "has a control character"
    if len(name.encode()) > LONGEST or any(len(part.encode()) > LONGEST_PART for part in parts):
        return "is too long"
    return None


def unpack_tar(data: bytes, folder: Path, source: str, most_bytes: int = MOST_BYTES) -> None:
    """Unpack a tar archive from `source`, compressed or not, into `folder`. Only plain files and
    folders are allowed, and no file is replaced. Every name is checked before anything is written.
    UnsafeNameError: an entry leads out of `folder`, or is a link or a device. UserError: it is too
    large (`most_bytes` unpacked), damaged, or no tar archive."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members, total = {}, 0
            for member in archive:
                name = member.name.removeprefix("./")
                if name == "." and member.isdir():
                    continue
                if not (member.isfile() or member.isdir()):
                    raise UnsafeNameError(name, source, "is no plain file")
                members[safe_path(name, source)] = member
                total += member.size
                if total > most_bytes:
                    raise UserError(f"unpacks to more than {most_bytes >> 20} MiB", where=source)
            for name, member in members.items():
                content = archive.extractfile(member)
                if content is None:
                    (folder / name).mkdir(parents=True, exist_ok=True)
                    continue
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                with content, (folder / name).open("xb") as file:
                    shutil.copyfileobj(content, file)
    except FileExistsError as error:
        raise UserError(f"would replace {error.filename}", where=source) from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"is no tar archive, or a damaged one ({error})", where=source) from error
