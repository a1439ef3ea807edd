"""Which sources the simulator was built from, and which there are now.

A run's identity holds the sources of the model (campaigns/sim_ground.py); a program that was built
from others would be recorded as what it is not. `make setup` builds the digest of
``tools/simulator-sources`` into it, which is computed here the same way.
"""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path

from schemas.errors import StoreError

DATAPLANE = Path(__file__).resolve().parents[2] / "dataplane"
HOTBEDSIM = "hotbedsim"
_PARTS = {
    HOTBEDSIM: ("service", "sim/ceph", "internal/simbridge", "cmd/hotbedsim"),
    "pmsim": ("service", "enforcer", "estimator", "internal/traces", "nfssim", "cmd/pmsim"),
    "tcsim": ("service", "sim/burst", "cmd/tcsim", "twochoice/*.go"),
}
_SHARED = ("go.mod", "sim/*.go")


def digest(dataplane: Path = DATAPLANE, program: str = HOTBEDSIM) -> str:
    """SHA-256 (hex) over the lines that sha256sum prints for every source of a simulator, in the
    order of their paths in `dataplane`; tests left out."""
    found = _sources(dataplane, program)
    names = sorted((path.relative_to(dataplane).as_posix() for path in found), key=str.encode)
    lines = (
        f"{hashlib.sha256((dataplane / name).read_bytes()).hexdigest()}  {name}\n" for name in names
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check(built_from: str, program: Path) -> None:
    """See that the simulator was built from the sources that there are.

    Args:
        built_from: what it says of itself; empty if it was built without its digest.
        program: which one.

    Raises:
        StoreError: it was not.
    """
    if built_from != _digest(program.name if program.name in _PARTS else HOTBEDSIM):
        raise StoreError(
            f"the simulator {program} was built from other sources than {DATAPLANE} holds: run "
            "`make setup`."
        )


def built_from(program: Path) -> str:
    """What a simulator that is not running says it was built from.

    Raises:
        StoreError: it does not say.
    """
    try:
        said = subprocess.run(
            [program, "version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreError(
            f"the simulator {program} does not tell its version: run `make setup`."
        ) from error
    return said[1] if len(said) > 1 else ""


@cache
def _digest(program: str) -> str:
    return digest(program=program)


def _sources(dataplane: Path, program: str) -> list[Path]:
    found: list[Path] = []
    for part in (*_SHARED, *_PARTS[program]):
        for path in dataplane.glob(part):
            found += [path] if path.is_file() else path.rglob("*.go")
    return [path for path in found if not path.name.endswith("_test.go")]
