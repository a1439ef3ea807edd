"""Parts of the control plane: the locked packages of OpenStack in their own environment, and
MariaDB and RabbitMQ from Debian's packages, unpacked but never installed.

`python -m tests.openstack.parts` fetches them, once per lock file, into `.cache/openstack`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache" / "openstack"
LOCK = Path(__file__).with_name("requirements.lock")
DEBIAN = ("mariadb-server-core", "rabbitmq-server")


@dataclass(frozen=True)
class Parts:
    """Places of the parts.

    `debian` is the tree with Debian's unpacked packages. Programs already installed on the machine
    are not in the tree but in Debian's usual places.
    """

    venv: Path
    debian: Path

    def program(self, name: str) -> str:
        """Return the path of a program in the environment."""
        return str(self.venv / "bin" / name)

    def find(self, path: str) -> Path:
        """Return a file of Debian's packages by its Debian path, such as ``usr/sbin/mariadbd``.

        Patterns are allowed: the last match counts. Raise FileNotFoundError without a match.
        """
        for root in (self.debian, Path("/")):
            if found := sorted(root.glob(path)):
                return found[-1]
        raise FileNotFoundError(f"/{path}: neither unpacked in {self.debian} nor installed")

    def libraries(self) -> str:
        """Return the value of LD_LIBRARY_PATH for the unpacked packages."""
        return ":".join(str(path) for path in (self.debian / "usr/lib").glob("*-linux-gnu"))


def parts() -> Parts:
    """Return the parts; fetch missing parts first."""
    venv = CACHE / f"venv-{_digest(LOCK.read_text(), sys.version)}"
    debian = CACHE / f"debian-{_digest(*DEBIAN)}"
    with locked(CACHE / ".lock"):
        _once(debian, _unpack)
        _once(venv, _install)
    return Parts(venv, debian)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; wait for its current holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _once(folder: Path, make: object) -> None:
    """Call `make` on `folder` unless an earlier call completed; remove older folders."""
    assert callable(make)
    stamp = folder / ".complete"
    if stamp.exists():
        return
    for other in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        shutil.rmtree(other)
    began = time.monotonic()
    folder.mkdir(parents=True)
    make(folder)
    stamp.touch()
    print(f"openstack: {folder.name} made in {time.monotonic() - began:.0f} s", flush=True)


def _install(venv: Path) -> None:
    uv = str(REPOSITORY / ".venv" / "bin" / "uv")
    _run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(venv)])
    install = ["pip", "install", "--quiet", "--require-hashes", "--python", f"{venv}/bin/python"]
    _run([uv, *install, "--compile-bytecode", "-r", str(LOCK)])


def _unpack(tree: Path) -> None:
    archives, lists = tree / "archives", tree / "lists"
    for folder in (archives, lists):
        (folder / "partial").mkdir(parents=True)
    # Nothing is installed, so neither locks nor root are needed.
    apt = ["apt-get", "-qq", "-o", "Debug::NoLocking=1", "-o", "Acquire::Retries=3"]
    apt += ["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
    download = ["-o", f"Dir::Cache::archives={archives}", "--no-install-recommends", "-y"]
    download += ["--download-only", "install", *DEBIAN]
    try:
        _run([*apt, *download])
    except RuntimeError:  # the machine's package lists are missing or old: use our own
        apt += ["-o", f"Dir::State::lists={lists}"]
        _run([*apt, "update"])
        _run([*apt, *download])
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(tree)])
    shutil.rmtree(archives)
    shutil.rmtree(lists)


def _run(command: Sequence[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise RuntimeError(f"{command[0]} {command[-1]} failed ({done.returncode}): {said}")


if __name__ == "__main__":
    parts()
