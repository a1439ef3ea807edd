"""ceph-ansible's sources at the pinned commit, in a folder of the testbed's own.

They come out of a clone of its repository: the user's ($HOTBED_CEPH_ANSIBLE), or one that is made
where this machine reaches the network. What is exported is what was committed there; a clone's
branch and changes do not matter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import yaml

from schemas.errors import UserError

BRANCH = "stable-9.0"
COMMIT = "aeec95c82b01cbab93c6f2140bb47fe24df6e21a"
ADDRESS = "https://github.com/ceph/ceph-ansible"
VARIABLE = "HOTBED_CEPH_ANSIBLE"
_TIMEOUT_S = 600.0
_MARK = ".commit"


def cache_folder() -> Path:
    """Where clones and Ansible environments are kept: $HOTBED_CACHE, else the usual place."""
    usual = Path("/var/cache/hotbed")
    if os.geteuid() != 0:
        usual = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hotbed"
    return Path(os.environ.get("HOTBED_CACHE", usual)) / "ceph-ansible"


def clone() -> Path:
    """A repository that has the pinned commit, cloned first where need be.

    Raises:
        UserError: the user's folder has it not, or it cannot be cloned.
    """
    given = os.environ.get(VARIABLE)
    if given:
        folder = Path(given)
        if not _has_commit(folder):
            raise UserError(
                f"{VARIABLE} is {given}, which is no git clone with ceph-ansible's commit "
                f"{COMMIT[:12]} ({BRANCH}): run `git clone -b {BRANCH} {ADDRESS}` and name that "
                "folder."
            )
        return folder
    folder = cache_folder() / "clone.git"
    if _has_commit(folder):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--bare")
    done = _git(folder, "fetch", "--quiet", "--depth", "1", ADDRESS, COMMIT)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise UserError(
            f"ceph-ansible cannot be cloned from {ADDRESS} ({words[-1][:200]}): clone it on a "
            f"machine that reaches it, copy the folder here and name it in {VARIABLE}."
        )
    return folder


def export(target: Path) -> Path:
    """The pinned sources in `target`, with site.yml in their root as ceph-ansible wants it.

    Raises:
        UserError: see `clone`.
    """
    mark = target / _MARK
    if mark.exists() and mark.read_text() == COMMIT:
        return target
    repository = clone()
    done = _git(repository, "archive", "--format=tar", COMMIT)
    if done.returncode != 0:
        raise UserError(
            f"the clone {repository} is damaged: git archive said "
            f"{done.stderr.decode(errors='replace').strip()[:200]}; clone it anew."
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700, parents=True)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")
    shutil.copyfile(target / "site.yml.sample", target / "site.yml")
    mark.write_text(COMMIT)
    return target


def variables_known(root: Path) -> frozenset[str]:
    """Names of all variables that the roles have defaults for."""
    known: set[str] = set()
    for file in sorted(root.glob("roles/*/defaults/main.yml")):
        known |= set(yaml.safe_load(file.read_text()) or {})
    return frozenset(known)


def _has_commit(folder: Path) -> bool:
    return folder.is_dir() and _git(folder, "cat-file", "-e", COMMIT).returncode == 0


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # A clone of another user's is read all the same: nothing of it is run by git.
    safe = ["-c", "safe.directory=*", "-c", "gc.auto=0"]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        return subprocess.run(
            ["git", *safe, "-C", str(folder), *arguments],
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=environment,
        )
    except FileNotFoundError as error:
        raise UserError("git is missing, and ceph-ansible needs it: install git.") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git {arguments[0]} did not end within {_TIMEOUT_S:g} s.") from error
