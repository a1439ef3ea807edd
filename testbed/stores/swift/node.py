"""The daemon on a node: ``python3 -m testbed.stores.swift.node``, unit ``hotbed-swift-node``.

It answers one JSON line per line on a unix socket that only root may open: {"op": ...} with {"ok":
true, "result": ...} or {"ok": false, "error": "<one sentence>"}. It keeps its last orders in a file
and puts them into force again when it starts, for example after a reboot.

In every slot (a quarter of a second) it records the counters of the node's groups of shares,
interface and disks. Readers that need more than a mean use the slots.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, UserError
from testbed.agent.notify import notify
from testbed.agent.probe import disk_counters, net_bytes, stat_files
from testbed.stores.swift import accesslog, services
from testbed.stores.swift.confs import Wanted, groups_of
from testbed.stores.swift.shares import Nic, Shares, device_with

SOCKET = Path("/run/hotbed/swift-node.sock")
KEPT = Path("/etc/hotbed/swift/node.json")
SLOT_S = 0.25
_SLOTS = 1200  # five minutes
_LONGEST = 16 << 20
_CLIENTS = 64
_PATIENCE_S = 5.0  # for a client to take its answer; slots wait meanwhile
_BUSY_MS = 4  # index in `disk_counters`: milliseconds in which the disk was busy


class SwiftNode:
    """State and operations of the daemon; `address` is the node's own."""

    def __init__(self, kept: Path = KEPT) -> None:
        self._path = kept
        self.kept: dict[str, Any] = {
            **{"wanted": {}, "shares": {}, "network": None, "devices": {}},
            # By unit, the digest of the settings of its last start.
            "running": {},
        }
        with contextlib.suppress(OSError, ValueError):
            self.kept |= json.loads(kept.read_text())
        self.shares = Shares()
        self.nic: Nic | None = None
        self.listener: accesslog.Listener | None = None
        self.slots: deque[list[Any]] = deque(maxlen=_SLOTS)
        self._numbered = 0
        self._stats: list[str] = []
        self.device = ""

    # -- operations -----------------------------------------------------------------------------

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Carry out one request. HotbedError: it cannot be done; the message says why."""
        operation = getattr(self, f"op_{request.get('op')}", None)
        if operation is None:
            raise UserError(f"there is no operation {request.get('op')!r}")
        return operation(request)

    def op_configure(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Configure what the node runs: {wanted, address, devices} -> {changed, stale}. `changed`
        are changed files and units. `stale` are units that run with outdated settings, even if an
        earlier caller wrote the settings and did not restart the unit."""
        self.kept |= {key: request[key] for key in ("wanted", "address", "devices")}
        wanted = self._wanted()
        groups, units = groups_of(wanted), services.settings_of(wanted)
        gone = set(self.kept["shares"]) - set(groups)
        # A unit that leaves is stopped, so it must be started if it returns unchanged.
        self.kept["running"] = {
            unit: digest for unit, digest in self.kept["running"].items() if unit in units
        }
        self.kept["shares"] = {
            group: cores for group, cores in self.kept["shares"].items() if group in groups
        }
        self._keep()
        changed = services.write(wanted)
        for group in gone:
            self.shares.forget(group)
        self._look()
        return {"changed": changed, "stale": self._stale()}

    def op_start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start everything that is not running; restart units that run with outdated settings and,
        in any case, the units in `restart`."""
        wanted = self._wanted()
        anew = {*request.get("restart", ()), *self._stale()}
        changed = services.start(wanted, tuple(sorted(anew)))
        self.kept["running"] = services.settings_of(wanted)
        self._keep()
        return {"changed": changed}

    def op_ring(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Install rings: {microstore, rings: {kind: base64}, digests} -> what changed."""
        return {
            "changed": services.put_rings(
                str(request["microstore"]), request["rings"], request["digests"]
            )
        }

    def op_shares(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Set {shares: {group: cores or null}, network?: bytes/s or null} -> {seconds, changed}."""
        began = time.monotonic()
        changed = []
        for group, cores in request.get("shares", {}).items():
            if self.kept["shares"].get(group, ...) != cores:
                changed.append(group)
            self.shares.set(group, cores)
            self.kept["shares"][group] = cores
        if "network" in request and self.nic is not None:
            if self.kept["network"] != request["network"]:
                changed.append("network")
            self.nic.set(request["network"])
            self.kept["network"] = request["network"]
        self._keep()
        return {"seconds": time.monotonic() - began, "changed": changed}

    def op_workers(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Set the proxy's number of processes, {workers}, without refusing a connection."""
        workers = int(request["workers"])
        wanted = dict(self.kept["wanted"])
        if not wanted.get("proxy"):
            raise UserError("this node runs no proxy")
        if wanted["proxy"]["workers"] == workers and services.PROXY not in self._stale():
            return {"changed": []}
        wanted["proxy"] = wanted["proxy"] | {"workers": workers}
        self.kept["wanted"] = wanted
        self.kept["running"].pop(services.PROXY, None)  # unknown until the proxy adopts them
        self._keep()
        known = self._wanted()
        changed = services.write(known)
        seconds = services.reload_proxy(workers)
        self.kept["running"][services.PROXY] = services.settings_of(known)[services.PROXY]
        self._keep()
        return {"changed": changed, "seconds": seconds}

    def op_sense(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return all counters now, and the slots after the one numbered `since`."""
        self._tick()
        since = int(request.get("since", -1))
        slots = [slot for slot in self.slots if slot[0] > since]
        return {
            "wall": time.time(),
            "slots": slots if since >= 0 else slots[-1:],
            "tenants": self.listener.to_json() if self.listener else {},
            "shares": self.kept["shares"],
        }

    def op_units(self, request: Mapping[str, Any]) -> dict[str, str]:
        """Return the state by unit."""
        return services.states(self._wanted())

    def op_endpoints(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Write client files: {tenants: {tenant: {auth_url, user, proxies}}} -> {changed}."""
        return {"changed": services.put_endpoints(request["tenants"])}

    # -- inside ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Put the kept state into force."""
        self._look()
        for group, cores in self.kept["shares"].items():
            self.shares.set(group, cores)
        if self.nic is not None and self.kept["network"] is not None:
            self.nic.set(self.kept["network"])

    def _wanted(self) -> Wanted:
        found: Wanted = self.kept["wanted"]
        return found

    def _stale(self) -> list[str]:
        """Return units that were not last started with their current settings."""
        found = services.settings_of(self._wanted())
        running = self.kept["running"]
        return [unit for unit, digest in found.items() if running.get(unit) != digest]

    def _look(self) -> None:
        """Find the counters, according to what the node must run."""
        address = self.kept.get("address")
        if address and not self.device:
            self.device = device_with(address)
        proxy = self.kept["wanted"].get("proxy")
        if proxy and self.nic is None:
            self.nic = Nic(self.device)
        if proxy and self.listener is None:
            self.listener = accesslog.Listener()
        self._stats = stat_files(self.kept["devices"])

    def tick(self) -> None:
        """Finish a slot."""
        if self.nic is not None:
            with contextlib.suppress(HotbedError):
                self.nic.renew()
        self._tick()

    def _tick(self) -> None:
        if self.listener is not None:
            self.listener.drain()
        self._numbered += 1
        self.slots.append([self._numbered, time.monotonic(), *self._counters()])

    def _counters(self) -> tuple[dict[str, float], list[int], list[int]]:
        """Return CPU seconds by group, bytes received and sent, milliseconds busy by disk."""
        used = self.shares.used(groups_of(self._wanted()))
        net = net_bytes(Path("/proc/net/dev").read_text(), [self.device])
        busy = [disk_counters(Path(path).read_text())[_BUSY_MS] for path in self._stats]
        return used, net, busy

    def _keep(self) -> None:
        make_folder(self._path.parent)
        write_file(self._path, json.dumps(self.kept))


class NodeSocketServer:
    """The socket server: many clients, one request at a time for each."""

    def __init__(self, node: SwiftNode, path: Path = SOCKET) -> None:
        self._node, self._path = node, path
        self._selector = selectors.DefaultSelector()
        self._buffers: dict[socket.socket, bytes] = {}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen(32)
        self._listener.setblocking(False)  # accept() must not block if the client has left
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ended = False

    def end(self) -> None:
        """Make `run` return."""
        self._ended = True

    def run(self, slot_s: float = SLOT_S) -> None:
        """Serve until `end` is called."""
        due = time.monotonic()
        while not self._ended:
            left = due - time.monotonic()
            if left <= 0:
                self._node.tick()
                due = max(due + slot_s, time.monotonic())
                continue
            for key, _ in self._selector.select(left):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._buffers:  # skip a client that was dropped for a new one
                    assert isinstance(key.fileobj, socket.socket)
                    self._serve(key.fileobj)
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        """Accept a client; if there are too many, drop the oldest."""
        if len(self._buffers) >= _CLIENTS:
            self._drop(next(iter(self._buffers)))
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client left, or no descriptors: it stays in the queue
            return
        client.settimeout(_PATIENCE_S)
        self._buffers[client] = b""
        self._selector.register(client, selectors.EVENT_READ)

    def _serve(self, client: socket.socket) -> None:
        try:
            data = client.recv(1 << 20)
        except OSError:
            data = b""
        if not data or len(self._buffers[client]) > _LONGEST:
            self._drop(client)
            return
        *lines, self._buffers[client] = (self._buffers[client] + data).split(b"\n")
        for line in lines:
            try:
                client.sendall(json.dumps(self._answer(line)).encode() + b"\n")
            except OSError:
                self._drop(client)
                return

    def _answer(self, line: bytes) -> dict[str, Any]:
        seq: object = None
        try:
            request = json.loads(line)
            seq = request.get("seq")
            return {"seq": seq, "ok": True, "result": self._node.answer(request)}
        except HotbedError as error:
            return {"seq": seq, "ok": False, "error": str(error)}
        except (OSError, ValueError, KeyError, TypeError) as error:
            return {"seq": seq, "ok": False, "error": f"{type(error).__name__}: {error}"}

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        self._buffers.pop(client, None)
        client.close()


def main() -> int:
    """Run the daemon; see the module's docstring."""
    node = SwiftNode()
    node.begin()
    server = NodeSocketServer(node)
    signal.signal(signal.SIGTERM, lambda *_: server.end())
    notify("READY=1")
    server.run()
    if node.nic is not None:
        node.nic.set(None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
