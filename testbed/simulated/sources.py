"""The sources that a simulator was built from, and those that there are now.

A run's identity holds the sources of the model; a program that was built from others would be
recorded as what it is not. `make setup` builds their digest into it (`testbed.closure`).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from schemas.errors import StoreError
from testbed.closure import ROOT, first

DATAPLANE = ROOT / "dataplane"
HOTBEDSIM = "hotbedsim"


def digest(program: str = HOTBEDSIM) -> str:
    """SHA-256 (hex) of a simulator's sources as this process read them first."""
    return first((f"dataplane/cmd/{program}",)).digest


def require(program: str) -> None:
    """Check that a simulator is there and was built from the sources that there are.

    Raises:
        StoreError: it is not.
    """
    path = DATAPLANE / "bin" / program
    check(built_from(path), path)


def check(built_from: str, program: Path) -> None:
    """See that the simulator was built from the sources that there are.

    Args:
        built_from: what it says of itself; empty if it was built without its digest.
        program: which one.

    Raises:
        StoreError: it was not.
    """
    if built_from != digest(program.name):
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
