"""Packing of the admin node's programs: ``python -m testbed.deploy.bundle OUT.tar``.

The same contents give the same bytes, so a deployment detects changes. The file ``BUNDLE`` in the
tar holds the hash of the contents. The tar unpacks into `AGENT_ROOT`.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "schemas/__init__.py",
    "schemas/closed_network.py",
    "schemas/durable.py",
    "schemas/errors.py",
    "schemas/extensions.py",
    "schemas/locks.py",
    "schemas/names.py",
    "schemas/numbers.py",
    "schemas/random_effects.py",
    "schemas/shown.py",
    "testbed/__init__.py",
    "testbed/closure.py",
    "testbed/ssh.py",
    "testbed/agent",
    "testbed/stores",
    "controllers",
)
HASH_FILE = "BUNDLE"
CODE = (
    *("testbed/agent/__main__.py", "controllers/unit", "playbooks/roles/agent"),
    *("playbooks/files", "playbooks/action_plugins"),
    "testbed/deploy/roles.py",
)
"""Entry points (`testbed.closure`) for the parts of every deployed testbed: its control plane, and
the variables of its roles."""


def files(root: Path = ROOT) -> dict[str, bytes]:
    """Return the contents by path of all files for the admin node, sorted by path."""
    found: dict[str, bytes] = {}
    for part in PARTS:
        path = root / part
        candidates = [path] if path.is_file() else path.rglob("*.py")
        for file in candidates:
            name = file.relative_to(root).as_posix()
            if "__pycache__" not in file.parts:
                found[name] = file.read_bytes()
    return dict(sorted(found.items()))


def digest(contents: dict[str, bytes]) -> str:
    """Return the SHA-256 (hex) over paths and contents."""
    total = hashlib.sha256()
    for name, data in contents.items():
        total.update(f"{name}\0{len(data)}\0".encode())
        total.update(data)
    return total.hexdigest()


def pack(contents: dict[str, bytes]) -> bytes:
    """Return a tar of `contents` and their hash, reproducible to the byte."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in (contents | {HASH_FILE: digest(contents).encode() + b"\n"}).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def write(out: Path, root: Path = ROOT) -> str:
    """Write the bundle to `out` (untouched if unchanged); return its hash."""
    contents = files(root)
    data = pack(contents)
    if not (out.exists() and out.read_bytes() == data):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(data)
    return digest(contents)


def main(arguments: list[str]) -> int:
    """Write the bundle; print {"bundle", "hash"}."""
    if len(arguments) != 1:
        print("usage: python -m testbed.deploy.bundle OUT.tar", file=sys.stderr)
        return 2
    out = Path(arguments[0])
    print(json.dumps({"bundle": str(out), "hash": write(out)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
