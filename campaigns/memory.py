"""How much memory there is."""

from __future__ import annotations

from pathlib import Path


def available_mib() -> float | None:
    """Memory that programs can still have on this machine, MiB; None where it is not told."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return None
