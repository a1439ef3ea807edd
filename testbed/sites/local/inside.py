"""Access from the host to files in a node's root, without leaving this root.

Root on the node made the tree, possibly with links that lead elsewhere. openat2 resolves every link
as the node would, with the node's root as the top (RESOLVE_IN_ROOT).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.sites.contract import SiteError

_OPENAT2 = 437  # the same on every architecture; Linux 5.6 and newer
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_MOST_BYTES = 2**20
_ATTEMPTS = 100  # a rename elsewhere on the machine interrupts the resolution of ".."
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Inside:
    """The root of `node`, at `root` on the host; the node must not run. Names are relative.

    Every method raises SiteError if the node's own files prevent the access.
    """

    root: Path
    node: str

    def read(self, name: str) -> str:
        """Return the text of a plain file, empty if missing; invalid bytes are kept."""
        with self._failing(name):
            try:
                found = self._open(name, os.O_PATH)
            except FileNotFoundError:
                return ""
            with _closing(found):
                # Open only now: opening a pipe waits, and opening a device can have effects.
                if not stat.S_ISREG(os.fstat(found).st_mode):
                    raise OSError(errno.EINVAL, "no plain file")
                with Path(f"/proc/self/fd/{found}").open("rb") as file:
                    data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise OSError(errno.EFBIG, f"larger than {_MOST_BYTES >> 20} MiB")
            return data.decode(errors="surrogateescape")

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Replace a file atomically; a link of this name is replaced, not followed."""
        folder, _, last = name.rpartition("/")
        new = f".{last}.hotbed"
        with self._failing(name), _closing(self._open(folder, os.O_RDONLY | os.O_DIRECTORY)) as at:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=at)
            made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=at)
            with os.fdopen(made, "wb") as file:
                file.write(text.encode(errors="surrogateescape"))
                file.flush()
                os.fchmod(made, mode)
                os.fsync(made)
            os.replace(new, last, src_dir_fd=at, dst_dir_fd=at)

    def folder(self, name: str, mode: int) -> None:
        """Make a folder unless it exists, and set its mode."""
        above, _, last = name.rpartition("/")
        with self._failing(name):
            at = self._open(above, os.O_RDONLY | os.O_DIRECTORY)
            with _closing(at), contextlib.suppress(FileExistsError):
                os.mkdir(last, dir_fd=at)
            with _closing(self._open(name, os.O_RDONLY | os.O_DIRECTORY)) as found:
                os.fchmod(found, mode)

    def _open(self, name: str, flags: int) -> int:
        how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE_NO_MAGICLINKS | _RESOLVE_IN_ROOT)
        with _closing(os.open(self.root, os.O_PATH | os.O_DIRECTORY)) as top:
            for _ in range(_ATTEMPTS):
                path = ctypes.c_char_p((name or ".").encode())
                found = _LIBC.syscall(_OPENAT2, top, path, how, ctypes.c_size_t(len(how)))
                if found >= 0:
                    return int(found)
                if ctypes.get_errno() != errno.EAGAIN:
                    break
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    @contextlib.contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SiteError(
                f"node {self.node}: /{name} in its file system cannot be used ({error.strerror}): "
                "the node has changed its own files; restore a snapshot, or take the testbed down."
            ) from error


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
