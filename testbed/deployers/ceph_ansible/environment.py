"""An Ansible of ceph-ansible's own: it wants ansible-core below 2.17, and Hotbed has a later one.

Made once in the cache, from PyPI; the collection that ceph-ansible takes from git comes from
$HOTBED_CONFIG_TEMPLATE, a folder with its sources, where this machine does not reach opendev.org.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import UserError
from schemas.locks import held
from testbed.deployers.ceph_ansible.sources import cache_folder
from testbed.sites.contract import Progress, silent

PACKAGES = ("ansible==9.13.0", "netaddr==1.3.0")
COLLECTION = "openstack.config_template"
COLLECTION_ADDRESS = "https://opendev.org/openstack/ansible-config_template"
COLLECTION_VERSION = "3.0.1"
VARIABLE = "HOTBED_CONFIG_TEMPLATE"
OLDEST, NEWEST = (3, 10), (3, 12)
"""Pythons that ansible-core 2.16 runs on."""
_TIMEOUT_S = 1200.0


@dataclass(frozen=True)
class Environment:
    """Where the programs are, and the collections beside those that Ansible brings."""

    folder: Path

    @property
    def playbook(self) -> Path:
        """ansible-playbook."""
        return self.folder / "bin" / "ansible-playbook"

    @property
    def collections(self) -> Path:
        """Folder with ``ansible_collections``."""
        return self.folder / "collections"

    @property
    def complete(self) -> bool:
        """Whether all of it is there."""
        return (self.folder / ".complete").exists()


def environment_folder() -> Path:
    """Where the environment of these packages is, or will be."""
    recipe = "\n".join([*PACKAGES, COLLECTION_VERSION, sys.version.split()[0]])
    return cache_folder() / f"ansible-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def python() -> Path | None:
    """A Python that the environment can be made with; None when there is none."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return Path(sys.executable)
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return Path(found)
    return None


def ensure(progress: Progress = silent) -> Environment:
    """The environment, made first where it is not there (a minute, 0.5 GB).

    Raises:
        UserError: no fitting Python, or the packages cannot be had; the message ends with the
            installer's words.
    """
    made = Environment(environment_folder())
    if made.complete:
        return made
    program = python()
    if program is None:
        raise UserError(
            f"ceph-ansible's Ansible runs on Python {_dotted(OLDEST)} to {_dotted(NEWEST)}, and "
            f"there is {_dotted(sys.version_info[:2])} alone: install one of those beside it."
        )
    with held(made.folder.parent / ".lock"):
        if not made.complete:
            _make(made, program, progress)
    return made


def _make(made: Environment, program: Path, progress: Progress) -> None:
    shutil.rmtree(made.folder, ignore_errors=True)
    progress("making ceph-ansible's Ansible environment", 0.0)
    _run([str(program), "-m", "venv", str(made.folder)], "an environment cannot be made")
    pip = [str(made.folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    progress("installing ceph-ansible's Ansible", 0.1)
    _run([*pip, "--disable-pip-version-check", *PACKAGES], "its packages cannot be installed")
    progress("installing ceph-ansible's collections", 0.8)
    given = os.environ.get(VARIABLE)
    source = given or f"git+{COLLECTION_ADDRESS},{COLLECTION_VERSION}"
    _run(
        [
            *(str(made.folder / "bin" / "ansible-galaxy"), "collection", "install", source),
            *("-p", str(made.collections)),
        ],
        f"the collection {COLLECTION} cannot be installed from {source} (a folder with its sources "
        f"can be named in {VARIABLE})",
        home=made.folder / "home",
    )
    (made.folder / ".complete").touch()


def _run(command: list[str], what: str, home: Path | None = None) -> None:
    environment = dict(os.environ)
    if home is not None:
        environment |= {"ANSIBLE_HOME": str(home), "ANSIBLE_NOCOLOR": "1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"ceph-ansible: {what} within {_TIMEOUT_S:g} s.") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise UserError(f"ceph-ansible: {what}: {lines[-1][:300] if lines else 'no message'}")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
