"""CPU shares of the servers on a node, and their use: one group per microstore, one for the proxy.

There are two ways, detected at run time. If the site exposes the node's own cgroup v1 folders (its
systemd may not write them), groups are created there, and servers join them at their start
(`JOIN`). Otherwise systemd enforces a CPUQuota on a slice per group, on cgroup v1 or v2.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from schemas.errors import StoreError

SITE = Path("/opt/hotbed-site")
PERIOD_US = 25_000
"""Quota period, as short as the local site's: a group that used its share waits milliseconds."""
_CONTROLLERS = ("cpu", "cpuacct", "cgroup")
JOIN = r"""#!/bin/sh
# Written by Hotbed: starts a server of Swift inside its group of shares.
# hotbed-swift-run GROUP COMMAND...
group=$1; shift
# Where the site shows none of cgroup v1, the unit's slice is the group.
[ -w /opt/hotbed-site/cpu/cgroup.procs ] || exec "$@"
for controller in cpu cpuacct cgroup; do
    folder=/opt/hotbed-site/$controller
    [ -w "$folder/cgroup.procs" ] || continue
    mkdir -p "$folder/swift-$group" && echo $$ > "$folder/swift-$group/cgroup.procs"
done
exec "$@"
"""


class Shares:
    """The groups of one node."""

    def __init__(self, site: Path = SITE) -> None:
        self._site = site
        self.by_folder = (site / "cpu" / "cgroup.procs").exists()

    def set(self, group: str, cores: float | None) -> None:
        """Let a group use `cores` on average over a period; None: no limit of its own.

        Raises:
            StoreError: the kernel refuses, for example more cores than the node has.
        """
        try:
            if self.by_folder:
                self._write(group, cores)
            else:
                self._quota(group, cores)
        except (OSError, subprocess.SubprocessError) as error:
            what = "no limit" if cores is None else f"{cores:g} cores"
            raise StoreError(
                f"group {group} cannot be given {what} ({error}): has the node that many?"
            ) from error

    def _write(self, group: str, cores: float | None) -> None:
        folder = self._site / "cpu" / f"swift-{group}"
        folder.mkdir(exist_ok=True)
        quota = -1 if cores is None else max(1000, round(cores * PERIOD_US))
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))

    def _quota(self, group: str, cores: float | None) -> None:
        quota = "" if cores is None else f"{cores * 100:.4g}%"
        subprocess.run(
            ["systemctl", "set-property", "--runtime", slice_of(group), f"CPUQuota={quota}"],
            check=True,
            capture_output=True,
            timeout=10,
        )

    def used(self, groups: Iterable[str]) -> dict[str, float]:
        """Return CPU seconds by group; 0 for a group that nothing has joined yet."""
        return {group: self._used(group) for group in groups}

    def _used(self, group: str) -> float:
        for path, key, scale in self._files(group):
            try:
                text = path.read_text()
                return int(text.split(key, 1)[1].split()[0] if key else text) * scale
            except (OSError, ValueError, IndexError):
                continue
        return 0.0

    def _files(self, group: str) -> tuple[tuple[Path, str, float], ...]:
        if self.by_folder:
            folder = f"swift-{group}"
            return (
                (self._site / "cpuacct" / folder / "cpuacct.usage", "", 1e-9),
                (self._site / "cgroup" / folder / "cpu.stat", "usage_usec", 1e-6),
            )
        below = f"hotbed.slice/hotbed-swift.slice/{slice_of(group)}"
        return (
            (Path("/sys/fs/cgroup", below, "cpu.stat"), "usage_usec", 1e-6),
            (Path("/sys/fs/cgroup/cpuacct", below, "cpuacct.usage"), "", 1e-9),
            (Path("/sys/fs/cgroup/cpu,cpuacct", below, "cpuacct.usage"), "", 1e-9),
        )

    def forget(self, group: str) -> None:
        """Remove a group without members; a group in use stays."""
        for controller in _CONTROLLERS if self.by_folder else ():
            try:
                (self._site / controller / f"swift-{group}").rmdir()
            except OSError:
                continue


def slice_of(group: str) -> str:
    """Return the systemd slice of a group; dashes would nest."""
    return f"hotbed-swift-{group.replace('-', '_')}.slice"
