"""Unpack the control plane's archive, unless this one is unpacked already.

Run on a node as ``python3 - ROOT MARK``: the folder for the files, and the name of a file there
that marks this archive. Standard input is the archive (tar) in base64. Prints {"changed": bool}.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Run the script; see the module."""
    root, mark = Path(sys.argv[1]), sys.argv[2]
    changed = not (root / mark).exists()
    if changed:
        new = root.with_name(f"{root.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        archive = base64.b64decode(sys.stdin.read())
        done = subprocess.run(
            ["tar", "-C", str(new), "-xf", "-"], input=archive, capture_output=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"the archive cannot be unpacked: {done.stderr.decode().strip()[-300:]}")
        (new / mark).touch()
        shutil.rmtree(root, ignore_errors=True)
        new.rename(root)
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
