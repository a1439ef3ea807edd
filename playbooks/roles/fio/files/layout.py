"""Lay out the files that fio reads in experiments, by a unit in the background.

Run on a node as ``python3 - start|wait WANTED`` with a JSON object: jobs, bytes (of each file),
name, directory, timeout_s. `start` returns at once; `wait` returns when the files are complete.
Both print {"changed": bool}. Files are written through to the disk (direct I/O), because reads of
blocks that were only reserved would never reach the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

UNIT = "hotbed-fio-layout"
MARK = ".whole"  # written when all files are complete, with the text of `order`


def files(wanted: dict) -> list[Path]:
    """Return the files' paths, with fio's names."""
    folder = Path(wanted["directory"])
    return [folder / f"{wanted['name']}.{job}.0" for job in range(wanted["jobs"])]


def order(wanted: dict) -> str:
    """Return the request in the mark's form."""
    return f"{wanted['jobs']} x {wanted['bytes']}"


def whole(wanted: dict) -> bool:
    """Return True if all files exist, complete and of the wanted size."""
    mark = Path(wanted["directory"]) / MARK
    if not mark.exists() or mark.read_text().strip() != order(wanted):
        return False
    return all(path.exists() and path.stat().st_size == wanted["bytes"] for path in files(wanted))


def command(wanted: dict) -> list[str]:
    """Return a fio command that writes all files; their content does not matter."""
    return [
        *("fio", f"--name={wanted['name']}", f"--directory={wanted['directory']}"),
        *(f"--numjobs={wanted['jobs']}", f"--size={wanted['bytes']}", "--rw=write", "--bs=1M"),
        *("--direct=1", "--ioengine=libaio", "--iodepth=4", "--fallocate=none", "--end_fsync=1"),
        *("--refill_buffers=0", "--group_reporting", "--eta=never"),
    ]


def state() -> tuple[str, str]:
    """Return (ActiveState, Result) of the unit."""
    shown = subprocess.run(
        ["systemctl", "show", "--property", "ActiveState,Result", UNIT],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return values.get("ActiveState", "inactive"), values.get("Result", "success")


def start(wanted: dict) -> bool:
    """Start the unit unless the files are complete or it runs already; return True if started."""
    if whole(wanted):
        return False
    if state()[0] in ("active", "activating"):
        return False
    folder = Path(wanted["directory"])
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    (folder / MARK).unlink(missing_ok=True)
    for path in files(wanted):
        path.unlink(missing_ok=True)
    need, free = wanted["jobs"] * wanted["bytes"], shutil.disk_usage(folder).free
    if need > free:
        sys.exit(
            f"{wanted['jobs']} files of {wanted['bytes'] >> 20} MiB do not fit into the "
            f"{free >> 20} MiB free in {folder}: give the scratch file system more room"
        )
    script = '"$@" && echo "$ORDER" > "$MARK.new" && mv "$MARK.new" "$MARK"'
    subprocess.run(["systemctl", "reset-failed", UNIT], capture_output=True, check=False)
    subprocess.run(
        [
            *("systemd-run", "--quiet", f"--unit={UNIT}", "--service-type=exec"),
            *(f"--property=RuntimeMaxSec={wanted['timeout_s']}",),
            *(f"--setenv=ORDER={order(wanted)}", f"--setenv=MARK={folder / MARK}"),
            *("sh", "-c", script, "sh", *command(wanted)),
        ],
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    return True


def wait(wanted: dict) -> bool:
    """Wait until the files are complete; end the script with a sentence if this fails."""
    deadline = time.monotonic() + wanted["timeout_s"]
    while not whole(wanted):
        active, result = state()
        if active in ("failed", "inactive") and not whole(wanted):
            sys.exit(f"fio did not lay out its files ({result}): see journalctl -u {UNIT}")
        if time.monotonic() > deadline:
            sys.exit(f"fio did not lay out its files within {wanted['timeout_s']} s")
        time.sleep(0.5)
    return False


def main() -> None:
    """Run the script; see the module."""
    verb = {"start": start, "wait": wait}[sys.argv[1]]
    json.dump({"changed": verb(json.loads(sys.argv[2]))}, sys.stdout)


if __name__ == "__main__":
    main()
