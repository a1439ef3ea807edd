"""Keys of a testbed: its login key, its host keys, and the known_hosts file that ssh trusts."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.durable import write_file
from testbed.sites.contract import SiteError

LOGIN = "id_ed25519"
Place = tuple[str, int | None]
"""A machine's address, or its names joined by commas, and its port."""


def make(path: Path, comment: str) -> None:
    """Make an ed25519 key pair at `path`, unless it exists; the public half is written last.
    SiteError: ssh-keygen is missing or failed."""
    if path.exists() and path.with_suffix(".pub").exists():
        return
    path.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    try:
        done = subprocess.run(command, input=b"", capture_output=True, timeout=30, check=False)
    except FileNotFoundError as error:
        raise SiteError("the program 'ssh-keygen' is missing; see `hotbed doctor`") from error
    except subprocess.TimeoutExpired as error:
        raise SiteError("ssh-keygen did not end within 30 s", retry_after_s=1.0) from error
    if done.returncode != 0:
        words = " ".join(done.stderr.decode(errors="replace").split())[-300:] or "no message"
        raise SiteError(f"ssh-keygen could not make {path}: {words}")


def public(path: Path) -> str:
    """Return the public half of the key pair at `path`."""
    return path.with_suffix(".pub").read_text().strip()


def field_of(address: str, port: int | None) -> str:
    """Return a machine's name in a known_hosts file."""
    return address if port in (22, None) else f"[{address}]:{port}"


def pin(path: Path, keys: Mapping[Place, Sequence[str]]) -> None:
    """Write a known_hosts file from (address, port) -> its public keys. Several addresses and names
    of a machine at port 22 are joined by commas."""
    lines = [
        f"{field_of(*place)} {' '.join(key.split()[:2])}"
        for place, listed in keys.items()
        for key in listed
    ]
    write_file(path, "\n".join(lines) + "\n", 0o644)
