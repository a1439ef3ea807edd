"""Archive of Swift and its dependencies: made on this machine from the hash-locked requirements,
then copied to the nodes, which need no access to a package index.

The archive holds the content of a site-packages folder for the nodes' Python (Debian 12's). It has
byte code if this machine's Python is of the same version. It is made once for each lock file.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import UserError
from schemas.locks import held

LOCK = Path(__file__).resolve().parents[2] / "playbooks/roles/swift/files/requirements.lock"
PYTHON = "3.11"
"""Python version of the nodes (Debian 12's). The role refuses nodes with another version."""
_TIMEOUT_S = 600.0
_RECIPE = "1"  # of the archive: another recipe makes another archive


@dataclass(frozen=True)
class Packages:
    """An archive, the SHA-256 (hex, 16 digits) of its sources, and its platform, such as
    ``3.11-x86_64``."""

    archive: Path
    digest: str
    platform: str


def cache_folder() -> Path:
    """Return the folder of the archives: $HOTBED_CACHE, else the local site's cache."""
    return Path(os.environ.get("HOTBED_CACHE", "/var/cache/hotbed")) / "swift"


def ensure(lock: Path = LOCK, cache: Path | None = None) -> Packages:
    """Return the archive for `lock`, and make it first if it is not cached (half a minute).

    Raises:
        UserError: the packages cannot be downloaded; the message ends with the installer's output.
    """
    machine = platform.machine()
    recipe = f"{_RECIPE}\n{PYTHON}\n{machine}\n{lock.read_text()}"
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = cache or cache_folder()
    archive = folder / f"swift-{digest}.tar"
    if not archive.exists():
        with held(folder / ".lock"):
            if not archive.exists():
                _make(lock, folder, archive, machine)
    return Packages(archive, digest, f"{PYTHON}-{machine}")


def _make(lock: Path, folder: Path, archive: Path, machine: str) -> None:
    for leftover in folder.glob(".making-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = folder / f".making-{os.getpid()}"
    site = work / "site"
    try:
        site.mkdir(parents=True)
        _install(lock, site, machine)
        if sys.version.startswith(f"{PYTHON}."):
            # Otherwise every server of every node compiles all files at its first start.
            subprocess.run(
                [sys.executable, "-m", "compileall", "-q", str(site)],
                capture_output=True,
                check=False,
            )
        new = work / archive.name
        with tarfile.open(new, "w") as tar:
            tar.add(site, ".", filter=_anonymous)
        new.rename(archive)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _install(lock: Path, site: Path, machine: str) -> None:
    """Install wheels for the nodes' Python, by uv if `make setup` installed it, else by pip."""
    uv = Path(sys.executable).with_name("uv")
    common = ["--target", str(site), "--python-version", PYTHON, "--only-binary", ":all:"]
    common += ["--require-hashes", "--no-deps", "-r", str(lock)]
    if uv.is_file():
        command = [str(uv), "pip", "install", "--quiet", "--no-config", *common]
        command += ["--python-platform", f"{machine}-manylinux_2_36"]
    else:
        command = [sys.executable, "-m", "pip", "install", "--quiet", *common]
        for tag in ("manylinux_2_17", "manylinux_2_28", "manylinux_2_34", "manylinux2014"):
            command += ["--platform", f"{tag}_{machine}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"Swift's packages could not be downloaded within {_TIMEOUT_S:g} s: look whether this "
            "machine reaches its package index."
        ) from error
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise UserError(f"Swift's packages could not be downloaded: {words[-1].strip()[:300]}")


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
