"""How much memory files may take: what the machine has left, and the control groups of this
process (a notebook server's 1 GB, say)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_V2 = ("memory.max", "memory.current")
_GIVEN_BACK = ("total_inactive_file", "inactive_file")
"""What of its use a control group can drop: files that were read and may be read again."""


def available(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Bytes that can be had without anything being swapped out or killed; 0 where the system does
    not tell."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        machine = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return 0
    return max(0, min([machine, *_left_in_groups(proc, cgroups)]))


def _left_in_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Of each control group with a limit that this process is in, itself or by one within."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        # A container sees its own group as the root, under a path that it does not see.
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            left = _left(group, *(_V1 if controllers else _V2))
            if left is not None:
                yield left
            if group == root:
                break


def _left(group: Path, limit: str, usage: str) -> int | None:
    try:
        most, used = int((group / limit).read_text()), int((group / usage).read_text())
        pairs = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        stat = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    except (OSError, ValueError):  # "max" is no limit
        return None
    dropped = next((stat[name] for name in _GIVEN_BACK if name in stat), 0)
    return most - max(0, used - dropped)
