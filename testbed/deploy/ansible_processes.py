"""Find and end the Ansible processes of a testbed, whoever started them.

ansible-playbook and its workers (each in a session of its own) have the path of the testbed's
inventory on their command lines. A worker's ssh or local command is in the worker's process group.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

FOLDER = "ansible"
_GRACE_S = 3.0


def ansible_folder(directory: Path) -> Path:
    """Return the folder of Ansible's files for the testbed kept in `directory`."""
    return directory / FOLDER


def processes(directory: Path) -> list[int]:
    """Return the ids of the processes of the testbed's Ansible."""
    mark = os.fsencode(ansible_folder(directory) / "inventory")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(mark) for word in words):
            found.append(int(entry.name))
    return found


def end(directory: Path) -> None:
    """End these processes and what they started: SIGTERM first, then SIGKILL."""
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        limit = time.monotonic() + patience_s
        for pid in processes(directory):
            _signal(pid, number)
        while processes(directory):
            if time.monotonic() > limit:
                break
            time.sleep(0.05)
        else:
            return


def _signal(pid: int, number: int) -> None:
    try:
        group = os.getpgid(pid)
        if group == pid:
            os.killpg(group, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return
