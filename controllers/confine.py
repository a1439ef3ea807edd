"""Confinement of a process that runs a foreign policy: another user, no network, no home.

A policy is pure and needs none of them. Standard library only: this runs on the admin node too.
``python3 -m controllers.confine`` prints, as JSON, how far this machine allows it.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import resource
import stat
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_NOBODY = 65534
_NEW_MOUNTS, _NEW_IPC, _NEW_USERS, _NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x40000000
_NO_SETUID, _NO_DEVICES, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 1 << 12, 1 << 14, 1 << 18
_MOUNT_SETATTR, _HERE, _ALL_BELOW, _READ_ONLY = 442, -100, 0x8000, 1  # since Linux 5.12
_NO_NEW_PRIVILEGES = 38
_CAPABILITIES = (0x20080522, 0)  # the version of capset's structures, and this process
_PROBE_LIMIT_S = 30


class Confinement(NamedTuple):
    """Confinement of a process. `hidden` is True if the home folder is out of its sight."""

    user: str
    network: bool
    hidden: bool

    def __str__(self) -> str:
        network = "with" if self.network else "without"
        home = "without" if self.hidden else "with"
        return f"as the user {self.user}, {network} network, {home} access to your home folder"


entered: list[Confinement] = []
"""Confinement of this process; empty if there is none."""


def environment() -> dict[str, str]:
    """Return the environment variables that a confined process gets: none holds a credential."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**kept, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", **one_thread}


@cache
def outlook() -> Confinement:
    """Return the confinement that `enter` would reach on this machine, found by trying."""
    done = subprocess.run(
        [sys.executable, "-m", "controllers.confine"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        timeout=_PROBE_LIMIT_S,
        check=True,
    )
    return Confinement(*json.loads(done.stdout))


def enter(folders: Iterable[Path]) -> Confinement:
    """Confine this single-threaded process for good, as far as the system allows.

    A root process becomes the user nobody. The process has no capability, gains none, and has an
    empty network of its own. In folders that are closed to other users (homes, temporary folders)
    it sees only `folders`, the interpreter's and Hotbed's, read-only.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)
    user, group, is_root = os.geteuid(), os.getegid(), os.geteuid() == 0
    needed = _needed(folders)
    new = _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK | (0 if is_root else _NEW_USERS)
    apart = libc.unshare(new) == 0
    hidden = False
    if apart:
        if not is_root:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        hidden = _hide(libc, needed, _home(user))
    way = {parent for path in needed for parent in path.parents} if not hidden else set()
    if (
        is_root
        and all(_mode(path) & 0o5 == 0o5 for path in needed)
        and all(_mode(path) & 0o1 for path in way)
    ):
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        user = _NOBODY
    libc.capset((ctypes.c_uint32 * 2)(*_CAPABILITIES), (ctypes.c_uint32 * 6)())
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))  # nothing is left behind by a policy
    entered.append(Confinement(_name(user), not apart, hidden))
    return entered[-1]


def _needed(folders: Iterable[Path]) -> list[Path]:
    """Return the outermost folders that the interpreter needs to run."""
    wanted = {Path(sys.prefix), Path(sys.base_prefix), ROOT, *folders, *map(Path, sys.path)}
    known = sorted({path.resolve() for path in wanted if path.is_absolute() and path.is_dir()})
    return [path for path in known if not set(path.parents) & set(known)]


def _hide(libc: ctypes.CDLL, needed: list[Path], home: Path) -> bool:
    """Cover closed folders except what is needed in them; False if the system refuses."""
    closed = {p for path in needed for p in path.parents if not _mode(p) & 0o1}
    closed |= {home.resolve()} if home.is_dir() else set()
    closed -= {Path("/")}
    covered = [path for path in closed if not set(path.parents) & closed]
    shown = [path for path in needed if {path, *path.parents} & set(covered)]
    try:
        _mount(libc, None, "/", None, _RECURSIVE | _PRIVATE)
        opened = [(path, os.open(path, os.O_PATH)) for path in shown]
        for folder in covered:
            _mount(libc, "tmpfs", folder, "tmpfs", _NO_SETUID | _NO_DEVICES)
        for path, descriptor in opened:
            path.mkdir(parents=True, exist_ok=True)
            _mount(libc, f"/proc/self/fd/{descriptor}", path, None, _BIND | _RECURSIVE)
            os.close(descriptor)
        os.chdir("/")  # the folder that the process was in is another one now
    except OSError:
        return False
    everything_read_only = (ctypes.c_uint64 * 4)(_READ_ONLY)
    libc.syscall(_MOUNT_SETATTR, _HERE, b"/", _ALL_BELOW, everything_read_only, 32)
    return True


def _mount(
    libc: ctypes.CDLL, source: str | None, target: object, kind: str | None, flags: int
) -> None:
    names = [None if name is None else str(name).encode() for name in (source, target, kind)]
    if libc.mount(*names, flags, b"mode=755,size=1m" if kind == "tmpfs" else None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _home(user: int) -> Path:
    try:
        return Path(pwd.getpwuid(user).pw_dir)
    except KeyError:
        return Path("/nonexistent")


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


if __name__ == "__main__":
    print(json.dumps(enter(())))
