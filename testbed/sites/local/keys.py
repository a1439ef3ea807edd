"""Keys of a testbed: one to log in with, one host key a node, made before the nodes start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.sites.local.tools import run, write

LOGIN = "id_ed25519"


def make(path: Path, comment: str) -> None:
    """An ed25519 key pair at `path`, unless it is there; the public half is written last."""
    if path.exists() and path.with_suffix(".pub").exists():
        return
    path.unlink(missing_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))


def public(path: Path) -> str:
    """The public half."""
    return path.with_suffix(".pub").read_text().strip()


def write_known_hosts(path: Path, nodes: Mapping[str, tuple[str, str]]) -> None:
    """A known_hosts file from node name -> (address, public host key)."""
    lines = [
        f"{address},{name} {' '.join(key.split()[:2])}" for name, (address, key) in nodes.items()
    ]
    write(path, "\n".join(lines) + "\n")
