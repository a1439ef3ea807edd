"""HTTP proxy in front of the public endpoints: it counts calls and, on demand, spoils them.

It passes requests and answers unchanged, so that without a rule the proxy is invisible.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
_TIMEOUT_S = 180.0
MAKING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True)
class Call:
    """Request of a client."""

    service: str
    method: str
    path: str
    token: str | None = None

    @property
    def changes(self) -> bool:
        """True if the call may change something; a token request to keystone does not."""
        return self.method in MAKING and self.service != "identity"


@dataclass(frozen=True)
class Reply:
    """Answer to a client. Status 0: no answer, and the connection is closed."""

    status: int
    text: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


DROPPED = Reply(0)


def error(status: int, text: str) -> Reply:
    """Return an error in the format of OpenStack's services."""
    body = f'{{"error": {{"code": {status}, "message": "{text}"}}, "error_message": "{text}"}}'
    return Reply(status, body.encode(), (("Content-Type", "application/json"),))


@dataclass
class Rule:
    """Fault for the first `times` matching calls: `service` and `method` (regular expressions)
    match, and `path` (searched) is found.

    `act` runs first. Then the client gets `reply` instead of the service's call (``after`` False),
    or instead of its answer, with the effect kept (True).
    """

    service: str = ".*"
    method: str = ".*"
    path: str = ""
    times: int = 1
    reply: Reply | None = None
    act: Callable[[Call], None] | None = None
    after: bool = False
    hits: int = field(default=0, init=False)

    def takes(self, call: Call) -> bool:
        """Return True if the rule applies to the call, and count the call."""
        fits = re.fullmatch(self.service, call.service) and re.fullmatch(self.method, call.method)
        if not fits or not re.search(self.path, call.path):
            return False
        self.hits += 1
        return self.hits <= self.times


class Proxy:
    """Proxies of all services, a port each. `targets`: service -> (address, port). `ports`: fixed
    ports of services."""

    def __init__(
        self,
        address: str,
        targets: Mapping[str, tuple[str, int]],
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._serves = False
        self._servers = {
            service: _Server((address, (ports or {}).get(service, 0)), self, service, target)
            for service, target in targets.items()
        }

    def start(self) -> None:
        """Start to serve."""
        self._serves = True
        for service, server in self._servers.items():
            threading.Thread(
                target=server.serve_forever, args=(0.1,), name=f"proxy-{service}", daemon=True
            ).start()

    def stop(self) -> None:
        """Stop serving."""
        for server in self._servers.values():
            if self._serves:  # otherwise it would wait forever
                server.shutdown()
            server.server_close()

    def url(self, service: str) -> str:
        """Return a service's address for users."""
        address, port = self._servers[service].server_address[:2]
        return f"http://{address!s}:{port}"

    def spoil(self, rule: Rule) -> Rule:
        """Put a rule into force and return it."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules and calls."""
        with self._lock:
            self._rules.clear()
            self.calls.clear()

    def changing(self) -> list[Call]:
        """Return the calls so far that may have changed something."""
        with self._lock:
            return [call for call in self.calls if call.changes]

    def heard(self, call: Call) -> list[Rule]:
        """Record a call and return the rules that apply to it."""
        with self._lock:
            self.calls.append(call)
            return [rule for rule in self._rules if rule.takes(call)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, where: tuple[str, int], proxy: Proxy, service: str, target: tuple[str, int]
    ) -> None:
        super().__init__(where, _Handler)
        self.proxy, self.service, self.target = proxy, service, target

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that disconnected, because tests kill clients."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Ignore log messages, because the proxy records calls."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        token = self.headers.get("X-Auth-Token")
        call = Call(self.server.service, self.command, self.path, token)
        rules = self.server.proxy.heard(call)
        reply = self._act(call, [rule for rule in rules if not rule.after])
        if reply is None:
            reply = self._forward(body)
            reply = self._act(call, [rule for rule in rules if rule.after]) or reply
        self._answer(reply)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve

    def _act(self, call: Call, rules: list[Rule]) -> Reply | None:
        for rule in rules:
            if rule.act is not None:
                rule.act(call)
            if rule.reply is not None:
                return rule.reply
        return None

    def _forward(self, body: bytes) -> Reply:
        connection = http.client.HTTPConnection(*self.server.target, timeout=_TIMEOUT_S)
        try:
            # `Host` stays the client's, so that links in the answer lead back here.
            kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            connection.request(self.command, self.path, body=body or None, headers=kept)
            answer = connection.getresponse()
            headers = tuple(
                (key, value)
                for key, value in answer.getheaders()
                if key.lower() not in _HOP | {"content-length", "date", "server"}
            )
            return Reply(answer.status, answer.read(), headers)
        except OSError:
            return DROPPED
        finally:
            connection.close()

    def _answer(self, reply: Reply) -> None:
        if reply.status == 0:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for key, value in reply.headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(reply.text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.text)
