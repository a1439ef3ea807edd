"""Name all machines in /etc/hosts and create the state directory.

Run on the node as ``python3 - WANTED`` with a JSON object: `names` (address by name), `directory`.
Prints {"changed": [what]}. Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

HOSTS = Path("/etc/hosts")
BEGIN, END = b"# BEGIN hotbed\n", b"# END hotbed\n"
BLOCK = re.compile(BEGIN + b".*?" + END, re.DOTALL)


def with_names(text: bytes, names: dict[str, str]) -> bytes:
    """Return /etc/hosts with a block of these names, in place of an earlier one."""
    lines = "".join(f"{address} {name}\n" for name, address in names.items())
    block = BEGIN + lines.encode() + END
    if BLOCK.search(text):
        return BLOCK.sub(lambda _: block, text, count=1)
    return text + (b"\n" if text and not text.endswith(b"\n") else b"") + block


def put(path: Path, content: bytes) -> None:
    """Replace a file's content, atomically if the file is no mount of its own."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(0o644)
    try:
        new.replace(path)
    except OSError as error:
        new.unlink()
        if error.errno != errno.EBUSY:
            raise
        path.write_bytes(content)  # in a container it may be a mount of its own


def main() -> None:
    """Run the script; see the module."""
    wanted = json.loads(sys.argv[1])
    changed = []
    before = HOSTS.read_bytes() if HOSTS.exists() else b""
    after = with_names(before, wanted["names"])
    if after != before:
        put(HOSTS, after)
        changed.append(str(HOSTS))
    directory = Path(wanted["directory"])
    if not directory.is_dir():
        directory.mkdir(mode=0o755, parents=True)
        changed.append(str(directory))
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
