"""Write text files and make folders on a node: one task in place of several.

Run by the action `node_script`. Standard input is a JSON list of objects: `path`, `content` (none
for a folder), `mode` (0644, or 0755 for a folder) and `owner` (root), a user who gives the group
too. Files are replaced atomically. Prints {"changed": [path]}. Standard library only.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import sys
from pathlib import Path


def put(wanted: dict) -> bool:
    """Bring one file or folder into the wanted state; return True if anything changed."""
    path, content = Path(wanted["path"]), wanted.get("content")
    user = pwd.getpwnam(wanted.get("owner", "root"))
    mode = int(wanted.get("mode", "0755" if content is None else "0644"), 8)
    if content is None:
        made = not path.is_dir()
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    else:
        made = not path.is_file() or path.read_bytes() != content.encode()
        if made:
            replace(path, content)
    found = path.stat()
    if (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (
        mode,
        user.pw_uid,
        user.pw_gid,
    ):
        return made
    os.chown(path, user.pw_uid, user.pw_gid)
    path.chmod(mode)
    return True


def replace(path: Path, content: str) -> None:
    """Write a file that only root can read until its owner and mode are set."""
    new = path.with_name(f".{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def main() -> None:
    """Run the script; see the module."""
    changed = [wanted["path"] for wanted in json.load(sys.stdin) if put(wanted)]
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
