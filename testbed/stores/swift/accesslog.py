"""Access log of a proxy for the workload monitor: its lines, summed up by tenant.

Sums only grow, so any number of readers can compute rates from differences. Latencies are counted
in logarithmic buckets, sizes by powers of two (`testbed.stores.microstores.Tenant`).
"""

from __future__ import annotations

import math
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from testbed.stores.swift.confs import LOG_PORT, MARK

BUCKETS_A_DECADE = 20
LOWEST_S = 1e-4
_ACCOUNT = "AUTH_"
_WRITES = ("PUT", "POST", "DELETE")
_OWN_SOURCES = ("-", "S3")  # requests of clients; others are the middleware's own
_MARKED = MARK.encode() + b" "
_WORDS = 9
_DRAIN = 4096
_RECEIVE_BYTES = 4 << 20
_UNPROVEN = (401, 403, 499)  # the account in the request may be anything
MOST_TENANTS = 1000
"""Limit of counted tenants, so that invented names do not fill the memory."""


@dataclass(slots=True)
class AccessLine:
    """One request. `size` is the object's size, None if no object was moved. `proven` is False if
    the tenant may not exist: the client was rejected or left."""

    tenant: str
    seconds: float
    bytes: int
    failed: bool
    write: bool
    size: int | None
    proven: bool = True


def parse(datagram: bytes) -> AccessLine | None:
    """Parse a request from a datagram of the log; return None for other text, e.g. warnings.

    A request failed if the server says so (5xx) or the client left before its end (499).
    """
    _, mark, rest = datagram.partition(_MARKED)
    if not mark:
        return None
    # Swift's formatter appends text to most requests: the transaction.
    words = rest.rstrip(b"\0\n ").decode("ascii", "replace").split(" ")[:_WORDS]
    if len(words) < _WORDS:
        return None
    method, account, status, received, sent, seconds, _, source, name = words
    account = unquote(account)
    if not account.startswith(_ACCOUNT) or source not in _OWN_SOURCES:
        return None
    try:
        code, got, gave = int(status), _number(received), _number(sent)
        took = float(seconds)
    except ValueError:
        return None
    size = None
    if name != "-" and 200 <= code < 300 and method in {"PUT", "GET"}:
        size = got if method == "PUT" else gave
    return AccessLine(
        tenant=account.removeprefix(_ACCOUNT),
        seconds=took,
        bytes=got + gave,
        failed=code >= 500 or code == 499,
        write=method in _WRITES,
        size=size,
        proven=code not in _UNPROVEN,
    )


def _number(word: str) -> int:
    return 0 if word == "-" else int(word)


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency; bucket n reaches up to `upper_edge`(n)."""
    if seconds <= LOWEST_S:
        return 0
    return math.ceil(math.log10(seconds / LOWEST_S) * BUCKETS_A_DECADE - 1e-9)


def upper_edge(bucket: int) -> float:
    """Return the upper edge of a bucket in seconds."""
    return LOWEST_S * 10 ** (bucket / BUCKETS_A_DECADE)


def percentile(buckets: Mapping[int, int], share: float, beyond: int = 10) -> float | None:
    """Return the latency, in seconds, that `share` of the requests do not exceed (the upper edge of
    its bucket); None if fewer than `beyond` requests are above it."""
    total = sum(buckets.values())
    if total * (1 - share) < beyond:
        return None
    left = share * total
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 1e-9:
            return upper_edge(bucket)
    return None


class Sums:
    """Sums over a tenant's requests since the node's daemon started."""

    def __init__(self) -> None:
        self.requests = self.failed = self.writes = self.bytes = 0
        self.seconds = 0.0
        self.latencies, self.sizes = Counter[int](), Counter[int]()

    def add(self, line: AccessLine) -> None:
        """Add one request. A failed request counts as failed only, not for latency or size."""
        if line.failed:
            self.failed += 1
            return
        self.requests += 1
        self.bytes += line.bytes
        self.seconds += line.seconds
        self.writes += line.write
        self.latencies[bucket_of(line.seconds)] += 1
        if line.size is not None:
            self.sizes[(line.size - 1).bit_length() if line.size else 0] += 1

    def to_json(self) -> dict[str, Any]:
        """Return the sums as JSON-able data."""
        return {
            "requests": self.requests,
            "failed": self.failed,
            "writes": self.writes,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "latencies": {str(key): value for key, value in self.latencies.items()},
            "sizes": {str(key): value for key, value in self.sizes.items()},
        }


class Listener:
    """Receiver of the log on the loopback interface."""

    def __init__(self, port: int = LOG_PORT) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        self.socket.bind(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.tenants: dict[str, Sums] = {}

    def drain(self) -> None:
        """Read the datagrams that have arrived."""
        for _ in range(_DRAIN):
            try:
                datagram = self.socket.recv(8192)
            except BlockingIOError:
                return
            line = parse(datagram)
            if line is not None:
                self.add(line)

    def add(self, line: AccessLine) -> None:
        """Count one request; a new tenant counts only if the proxy has let it in."""
        if line.tenant not in self.tenants and line.proven and len(self.tenants) < MOST_TENANTS:
            self.tenants[line.tenant] = Sums()
        if line.tenant in self.tenants:
            self.tenants[line.tenant].add(line)

    def to_json(self) -> dict[str, Any]:
        """Return sums by tenant."""
        return {tenant: sums.to_json() for tenant, sums in self.tenants.items()}

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()
