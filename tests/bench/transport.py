"""Stand-ins for machines that the bench lacks: probes of N nodes, and a monitor.

One process answers for all probes over socket pairs, a line per request like probe.py, with
counters that advance. The monitor answers with a recorded `osd dump` and `osd tree` of Ceph 16.2
enlarged to N OSDs. All code that senses, parses and decides is real.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import socket
import time

from testbed.agent.contract import AgentConfig, AgentNode
from tests.testbed.stores.ceph.fake_rados import FakeRados


def config(count: int) -> AgentConfig:
    """Return `count` nodes with one OSD each; every other one is hot (see `serve`)."""
    nodes = tuple(
        AgentNode(f"n{i}", f"10.0.{i // 250}.{i % 250}", ("osd",), "io_pressure", "/p", osds=(i,))
        for i in range(count)
    )
    return AgentConfig(testbed="bench", store="ceph", nodes=nodes)


class Probes:
    """Probes of all nodes, in one child process."""

    def __init__(self, nodes: tuple[AgentNode, ...]) -> None:
        _raise_file_limit(2 * len(nodes) + 100)
        pairs = {node.name: socket.socketpair() for node in nodes}
        self._ours = {name: ours for name, (ours, _) in pairs.items()}
        self._pid = os.fork()
        if self._pid == 0:
            for ours, _ in pairs.values():
                ours.close()
            _serve([theirs for _, theirs in pairs.values()])
            os._exit(0)
        for _, theirs in pairs.values():
            theirs.close()

    def open(self, node: AgentNode) -> SocketChannel:
        """Open a channel, as an `Opener` for `testbed.agent.monitor.Monitor`."""
        return SocketChannel(self._ours[node.name])

    def close(self) -> None:
        """End the child: it exits when every socket is closed."""
        for ours in self._ours.values():
            ours.close()
        os.waitpid(self._pid, 0)


class SocketChannel:
    """`Channel` over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


def _serve(sockets: list[socket.socket]) -> None:
    with selectors.DefaultSelector() as selector:
        for number, sock in enumerate(sockets):
            selector.register(sock, selectors.EVENT_READ, number)
        while selector.get_map():
            for key, _ in selector.select():
                sock, number = key.fileobj, key.data
                assert isinstance(sock, socket.socket)
                request = sock.recv(4096)
                if not request:
                    selector.unregister(sock)
                    continue
                sock.sendall(_answer(int(request.split()[-1]), 0.97 if number % 2 else 0.04))


def _answer(seq: int, pressure: float) -> bytes:
    now = time.monotonic()
    sample = {
        "seq": seq,
        "t": now,
        "wall": time.time(),
        "pressure_us": int(now * 1e6 * pressure),
        "cpu": [int(now * 100)] * 8,
        "cpus": 2,
        "cpu_us": int(now * 1e5),
        "disk": [[int(now * 100)] * 7],
        "net": [int(now * 1e6), int(now * 1e6)],
        "osd_us": {},
    }
    return json.dumps(sample).encode() + b"\n"


def _raise_file_limit(files: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))


class Monitors(FakeRados):
    """Monitors of a cluster with `count` OSDs, one on each host."""

    def __init__(self, count: int) -> None:
        super().__init__()
        pattern = self.dump["osds"][0]
        self.dump["osds"] = [pattern | {"osd": number} for number in range(count)]
        nodes = {kind["type"]: kind for kind in self.tree["nodes"]}
        self.tree["nodes"] = [
            nodes["osd"] | {"id": i, "name": f"osd.{i}"} for i in range(count)
        ] + [nodes["host"] | {"id": -2 - i, "name": f"n{i}", "children": [i]} for i in range(count)]
        self._encoded = {
            "osd dump": json.dumps(self.dump).encode(),
            "osd tree": json.dumps(self.tree).encode(),
        }

    def mon_command(self, cmd: str, inbuf: bytes) -> tuple[int, bytes, str]:
        """Answer with maps encoded in advance: the time to encode them is not the product's."""
        encoded = self._encoded.get(json.loads(cmd)["prefix"])
        return super().mon_command(cmd, inbuf) if encoded is None else (0, encoded, "")
