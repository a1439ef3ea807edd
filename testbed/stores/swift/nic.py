"""A proxy's share of the network: a token bucket on its interface's outgoing traffic.

The site may already have a bucket there, which stands for the wire: its rate is an upper limit, and
the bucket is restored when the share is removed. A site that shapes again (after filling) replaces
our bucket. The kernel reports the change, and our bucket is installed again.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from schemas.durable import write_file
from schemas.errors import HotbedError, StoreError
from testbed.stores.nfs.netenforcer import Before, run
from testbed.stores.nfs.netenforcer import before as look

KEPT = Path("/run/hotbed/swift-nic.json")
_TC_EVENTS = 8  # RTMGRP_TC
_HANDLE = "5317:"  # ours: a root with this handle is from us
_LATENCY = "25ms"
_BURST_S = 0.002


@dataclass(frozen=True)
class Kept:
    """The earlier settings of the device."""

    device: str
    root: Mapping[str, float] | None
    segments: int


class Nic:
    """The interface towards the clients.

    Args:
        device: its name.
        keep: file for the earlier settings of the device.
    """

    def __init__(self, device: str, keep: Path = KEPT) -> None:
        self._device, self._keep = device, keep
        self._bytes_s: float | None = None
        self._as_set: Mapping[str, float] | None = None
        self._events = _events()

    def set(self, bytes_s: float | None) -> None:
        """Limit the sending rate from now on; None: as fast as the wire.

        Raises:
            StoreError: the kernel refuses, or the device has foreign queueing.
        """
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
        self._keep.unlink(missing_ok=True)
        self.set(self._bytes_s)
        return True

    def _put(self, bytes_s: float) -> None:
        if self._ours():
            kept = self._load()
        else:
            found: Before = look(self._device, run)
            kept = Kept(found.device, found.root, found.segments)
            self._keep.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._keep, json.dumps(asdict(kept)))
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
                rate, burst, lat = (round(kept.root[key]) for key in ("rate", "burst", "lat"))
                bucket = ("rate", f"{8 * rate}bit", "burst", str(burst), "latency", f"{lat}us")
                run("tc", "qdisc", "replace", "dev", self._device, "root", "tbf", *bucket)
        self._keep.unlink(missing_ok=True)

    def _ours(self) -> bool:
        """Return True if our bucket is as we set it. Replacing a root by one of the same kind
        changes its numbers but keeps its handle."""
        shown = json.loads(run("tc", "-j", "qdisc", "show", "dev", self._device) or "[]")
        if not any(qdisc.get("root") and qdisc.get("handle") == _HANDLE for qdisc in shown):
            return False
        return self._as_set is None or look(self._device, run).root == self._as_set

    def _load(self) -> Kept | None:
        try:
            return Kept(**json.loads(self._keep.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _drain(self) -> bool:
        """Return True if the kernel reported any change of queueing since the last call."""
        told = False
        while self._events is not None:
            try:
                if not self._events.recv(65536):
                    return told
            except BlockingIOError:
                return told
            except OSError:  # so many events that the kernel dropped a few
                return True
            told = True
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
