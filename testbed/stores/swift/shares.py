"""CPU shares of the servers on a node, and their use: one group per microstore, one for the proxy.

There are two ways, detected at run time. If the site exposes the node's own cgroup v1 folders
(systemd on the node does not know them), groups are created there, and servers join them at their
start (`JOIN`). Otherwise systemd enforces a CPUQuota on a slice per group, on cgroup v1 or v2.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from schemas.durable import write_file
from schemas.errors import HotbedError, StoreError
from testbed.stores.nfs.netenforcer import Before, restore_bucket, run
from testbed.stores.nfs.netenforcer import before as look

# ----------------------------------------------------------------------------------------------
# A proxy's share of the network: a token bucket on its interface's outgoing traffic.
#
# The site may already have a bucket there, which stands for the wire: its rate is an upper limit,
# and the bucket is restored when the share is removed. A site that shapes again (after filling)
# replaces our bucket. The kernel reports the change, and our bucket is installed again.

KEPT = Path("/run/hotbed/swift-nic.json")
_TC_EVENTS = 8  # RTMGRP_TC
_HANDLE = "5317:"  # ours: a root with this handle is from us
_LATENCY = "25ms"
_BURST_S = 0.002


class Nic:
    """The interface towards the clients, by its name."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._bytes_s: float | None = None
        self._as_set: Mapping[str, float] | None = None
        self._events = _events()

    def set(self, bytes_s: float | None) -> None:
        """Limit the sending rate from now on; None: as fast as the wire. StoreError: the kernel
        refuses, or the device has foreign queueing."""
        try:
            if bytes_s is None:
                self._put_back()
            else:
                self._put(bytes_s)
        except HotbedError as error:
            raise StoreError(str(error)) from error
        self._bytes_s = bytes_s
        self._drain()

    def renew(self) -> bool:
        """Install the share again if it was replaced; return True if that was necessary."""
        if self._bytes_s is None or not self._drain() or self._ours():
            return False
        KEPT.unlink(missing_ok=True)
        self.set(self._bytes_s)
        return True

    def _put(self, bytes_s: float) -> None:
        if self._ours():
            kept = self._load()
        else:
            kept = look(self._device, run)
            KEPT.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(KEPT, json.dumps(asdict(kept)))
            # The existing root has another handle, so it cannot be changed into ours.
            run("tc", "qdisc", "del", "dev", self._device, "root", check=False)
        wire = kept.root["rate"] if kept and kept.root else bytes_s
        rate = max(1000, round(min(bytes_s, wire)))
        burst = max(round(rate * _BURST_S), 96 * 1024)
        run("tc", "qdisc", "replace", "dev", self._device, "root", "handle", _HANDLE, "tbf",
            "rate", f"{8 * rate}bit", "burst", str(burst), "latency", _LATENCY)  # fmt: skip
        self._as_set = look(self._device, run).root

    def _put_back(self) -> None:
        if self._ours():
            run("tc", "qdisc", "del", "dev", self._device, "root", check=False)
            kept = self._load()
            if kept is not None and kept.root is not None:
                restore_bucket(self._device, kept.root, run)
        KEPT.unlink(missing_ok=True)

    def _ours(self) -> bool:
        """Return True if our bucket is as we set it. Replacing a root by one of the same kind
        changes its numbers but keeps its handle."""
        shown = json.loads(run("tc", "-j", "qdisc", "show", "dev", self._device) or "[]")
        if not any(qdisc.get("root") and qdisc.get("handle") == _HANDLE for qdisc in shown):
            return False
        return self._as_set is None or look(self._device, run).root == self._as_set

    def _load(self) -> Before | None:
        try:
            return Before(**json.loads(KEPT.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _drain(self) -> bool:
        """Return True if the kernel reported any change of queueing since the last call."""
        changed = False
        while self._events is not None:
            try:
                if not self._events.recv(65536):
                    return changed
            except BlockingIOError:
                return changed
            except OSError:  # so many events that the kernel dropped a few
                return True
            changed = True
        return True


def _events() -> socket.socket | None:
    """Return the kernel's events about queueing; None if unavailable: then check every time."""
    try:
        found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        found.bind((0, _TC_EVENTS))
    except OSError:
        return None
    found.setblocking(False)
    return found


def device_with(address: str) -> str:
    """Return the interface that has an address. Raises StoreError if none has it."""
    for link in json.loads(run("ip", "-j", "-4", "address", "show")):
        if any(one.get("local") == address for one in link.get("addr_info", ())):
            return str(link["ifname"])
    raise StoreError(f"no interface has the address {address}.")


SITE = Path("/opt/hotbed-site")
PERIOD_US = 25_000
"""Quota period, as short as the local site's: a group that used its share waits milliseconds."""
_LEAST_US = 1000  # the kernel's smallest quota; a smaller share has a longer period
_CONTROLLERS = ("cpu", "cpuacct")
JOIN = r"""#!/bin/sh
# Written by Hotbed: starts a server of Swift inside its group of shares.
# hotbed-swift-run GROUP COMMAND...
group=$1; shift
# Where the site shows none of cgroup v1, the unit's slice is the group.
[ -w /opt/hotbed-site/cpu/cgroup.procs ] || exec "$@"
for controller in cpu cpuacct; do
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
        """Let a group use `cores` on average over a period; None: no limit of its own. StoreError:
        the kernel refuses, for example more cores than the node has."""
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
        period = PERIOD_US if cores is None else max(PERIOD_US, round(_LEAST_US / cores))
        quota = -1 if cores is None else max(_LEAST_US, round(cores * period))
        (folder / "cpu.cfs_period_us").write_text(str(period))
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
            return ((self._site / "cpuacct" / f"swift-{group}" / "cpuacct.usage", "", 1e-9),)
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
