"""The archive folder of a real COSBench, here or on a node, and a copy of one workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from schemas.errors import UserError
from schemas.names import safe_path
from testbed.ssh import Shell
from workloads.cosbench import xml_text
from workloads.cosbench.archive import CONFIG, LOG
from workloads.errors import WorkloadError

ROOT_FILES = ("run-history.csv", "workloads.csv")
LARGEST = 512 * 2**20
_LIST = 'cd -- "$1" && find . -mindepth 1 -maxdepth 2 -type f -printf "%s %P\\0"'


class ArchiveSource(Protocol):
    """Where a controller leaves its results."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file, two folders deep, by its path from the archive.

        Raises:
            HotbedError: the folder is not there.
        """

    def read(self, name: str) -> bytes:
        """A file's content."""


class LocalSource:
    """An archive folder on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def sizes(self) -> Mapping[str, int]:
        """See `ArchiveSource.sizes`."""
        if not self.root.is_dir():
            raise UserError(
                f"{self.root} is no folder: name the archive folder of the controller's release."
            )
        return {
            str(path.relative_to(self.root)): path.stat().st_size
            for pattern in ("*", "*/*")
            for path in self.root.glob(pattern)
            if path.is_file()
        }

    def read(self, name: str) -> bytes:
        """See `ArchiveSource.read`."""
        return (self.root / name).read_bytes()


class NodeSource:
    """An archive folder on a node."""

    def __init__(self, shell: Shell, root: str) -> None:
        self.shell = shell
        self.root = root

    def sizes(self) -> Mapping[str, int]:
        """See `ArchiveSource.sizes`."""
        done = self.shell.run(["sh", "-c", _LIST, "sh", self.root])
        found = (line.partition(" ") for line in done.text.split("\0"))
        return {name: int(size) for size, _, name in found if size.isdecimal()}

    def read(self, name: str) -> bytes:
        """See `ArchiveSource.read`."""
        return self.shell.run(["cat", "--", f"{self.root}/{name}"], timeout_s=300.0).stdout


def collect(
    source: ArchiveSource,
    identity: str,
    out: Path,
    *,
    hidden: frozenset[str] = frozenset(),
    patience_s: float = 60.0,
    sleep: Callable[[float], None] = time.sleep,
    settle_s: float = 1.0,
) -> Path:
    """Copy a workload's folder, and its lines of the archive's own files, to `out`; the folder.

    A controller says that a workload has ended before it writes: so the files are waited for until
    the last of them names the workload, or nothing has changed for a while. Secrets are masked on
    the way.

    Args:
        source: the controller's archive.
        identity: the workload's id, such as ``w1``.
        out: a folder, which becomes an archive of this workload alone.
        hidden: secrets to mask in the log.
        patience_s: how long the files are waited for.

    Raises:
        WorkloadError: the controller wrote nothing, or too much.
        UnsafeNameError: a file's name leads out of the archive.
    """
    files = _settled(source, identity, patience_s, settle_s, sleep)
    for name in files:
        safe_path(name, f"the archive of {identity}")
    total = 0
    for name in files:
        data = source.read(name)
        total += len(data)
        if total > LARGEST:
            raise WorkloadError(f"the archive of {identity} is larger than {LARGEST >> 20} MiB.")
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(_without_secrets(Path(name).name, data, hidden))
    there = source.sizes()
    for name in ROOT_FILES:
        if name in there:
            text = source.read(name).decode(errors="replace")
            (out / name).write_text(_lines_of(text, identity))
    return out / files[0].partition("/")[0]


def _settled(
    source: ArchiveSource,
    identity: str,
    patience_s: float,
    settle_s: float,
    sleep: Callable[[float], None],
) -> list[str]:
    before: Mapping[str, int] = {}
    unchanged = waited = 0.0
    while True:
        there = source.sizes()
        files = {
            name: size
            for name, size in there.items()
            if name.startswith(f"{identity}-") and "/" in name
        }
        unchanged = unchanged + settle_s if files and files == before else 0.0
        # What is written last names the workload, if it ever came to work.
        named = "workloads.csv" in there and _named(source.read("workloads.csv"), identity)
        if unchanged >= (settle_s if named else 5 * settle_s):
            return sorted(files)
        if waited >= patience_s:
            raise WorkloadError(
                f"the controller left no archive of {identity} within {patience_s:g} s: is this "
                "the archive folder of that controller?"
            )
        before = files
        sleep(settle_s)
        waited += settle_s


def _named(matrix: bytes, identity: str) -> bool:
    return any(line.startswith(f"{identity}-".encode()) for line in matrix.splitlines())


def _lines_of(text: str, identity: str) -> str:
    heading, *rows = text.splitlines() or [""]
    mine = [row for row in rows if row.startswith((f"{identity},", f"{identity}-"))]
    return "\n".join([heading, *mine]) + "\n"


def _without_secrets(name: str, data: bytes, hidden: frozenset[str]) -> bytes:
    if name == CONFIG:
        return xml_text.masked(data.decode(errors="replace")).encode()
    if name == LOG or name.endswith(".log"):
        return xml_text.scrubbed(data.decode(errors="replace"), hidden).encode()
    return data
