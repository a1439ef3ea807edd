"""Check that a simulator was built from the present sources.

A run's identity includes the model's sources; a program built from other sources would be recorded
wrongly. `make setup` builds the sources' digest into the program (`testbed.closure`).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from schemas.errors import BUILD, StoreError
from testbed.closure import ROOT, first

DATAPLANE = ROOT / "dataplane"
HOTBEDSIM = "hotbedsim"


def digest(program: str = HOTBEDSIM) -> str:
    """Return the SHA-256 (hex) of a simulator's sources as this process first read them."""
    return first((f"dataplane/cmd/{program}",)).digest


def require(program: str) -> None:
    """Raise an error unless a simulator exists and was built from the present sources. StoreError:
    it is missing or was built from others."""
    path = DATAPLANE / "bin" / program
    check(built_from(path), path)


def check(built_from: str, program: Path) -> None:
    """Raise an error unless the simulator was built from the present sources. `built_from`: the
    program's own digest; empty if it was built without one. `program`: path of the program.
    StoreError: it was built from other sources."""
    if built_from != digest(program.name):
        raise StoreError(
            f"the simulator {program} was built from other sources than {DATAPLANE} holds: {BUILD}."
        )


def built_from(program: Path) -> str:
    """Return the digest of its sources that a simulator's program prints. StoreError: it prints
    none."""
    try:
        said = subprocess.run(
            [program, "version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreError(f"the simulator {program} reports no version: {BUILD}.") from error
    return said[1] if len(said) > 1 else ""
