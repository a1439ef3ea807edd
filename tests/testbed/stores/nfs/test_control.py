"""Server node programs: requests to the proxy's socket, and RPC that waits for the server."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import threading
from typing import Any, ClassVar

import pytest

from schemas.errors import StoreError, UserError
from testbed.stores.nfs import control
from tests.errors import raises


class Proxy(http.server.BaseHTTPRequestHandler):
    """Socket that answers like the proxy's control socket."""

    parameters: ClassVar[dict[str, Any]] = {}

    def log_message(self, format: str, *args: object) -> None:
        pass

    def address_string(self) -> str:
        return "unix"

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._reply(200, b"hotbed_nfsproxy_clients 1\n")
        elif self.path == "/parameters":
            self._reply(200, json.dumps(self.parameters).encode())
        else:
            self._reply(404, b"")

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body.get("policy") == "fair":
            self._reply(400, json.dumps({"error": 'policy is "fair"'}).encode())
            return
        type(self).parameters = body
        self._reply(200, b'{"ok": true}')


class _Server(socketserver.ThreadingUnixStreamServer):
    def get_request(self) -> tuple[socket.socket, Any]:
        connection, _ = super().get_request()
        return connection, ("unix", 0)


@pytest.fixture
def configured(tmp_path, monkeypatch):
    path = tmp_path / "socket"
    config = tmp_path / "config.json"
    text = {"control": str(path), "profile": str(tmp_path / "p.json"), "parameters": {"depth": 3}}
    config.write_text(json.dumps(text))
    monkeypatch.setattr(control, "CONFIG", config)
    monkeypatch.setattr(control, "configuration", lambda: json.loads(config.read_text()))
    with _Server(str(path), Proxy) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield path
        server.shutdown()


@pytest.mark.usefixtures("configured")
def test_parameters_are_put_read_and_refused_with_the_proxys_sentence():
    given = {"policy": "pm", "depth": 1}
    assert control.carry_out("put", [], json.dumps(given).encode()) == {"ok": True}
    assert control.carry_out("parameters", [], b"") == given
    with pytest.raises(UserError):
        control.carry_out("put", [], b'{"policy": "fair"}')
    assert control.carry_out("default", [], b"") == {"ok": True}
    assert control.carry_out("parameters", [], b"") == {"depth": 3}
    assert "clients 1" in control.carry_out("metrics", [], b"")["text"]
    with raises(StoreError, "/status", "404"):
        control.carry_out("status", [], b"")


def test_a_proxy_that_does_not_answer_is_reported(tmp_path):
    with raises(StoreError, "does not answer at"):
        control.ask(str(tmp_path / "none"), "GET", "/status")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with raises(StoreError, "0 s"):
            control.until(lambda: control.null_call(address, 100003), timeout_s=0.0)


def test_a_profile_changes_nothing_if_it_is_there_or_refused(tmp_path, monkeypatch):
    profile = {"type": "storageConstant", "base": 0.01}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(profile))
    assert control.put_profile({"profile": str(path)}, dict(reversed(profile.items()))) is False
    path, restarts = tmp_path / "p.json", list[str]()
    path.write_text('{"type": "a"}\n')

    def restart() -> None:
        restarts.append(path.read_text())
        if "bad" in restarts[-1]:
            raise StoreError("nfsproxy: profile: type is bad")

    monkeypatch.setattr(control, "_restart", restart)
    monkeypatch.setattr(control, "ready", lambda config: None)
    config = {"profile": str(path)}
    with pytest.raises(UserError):
        control.put_profile(config, {"type": "bad"})
    assert path.read_text() == restarts[-1] == '{"type": "a"}\n'
    assert control.put_profile(config, {"type": "b"}) is True
    assert json.loads(path.read_text()) == {"type": "b"}


def test_files_of_the_export_are_dropped_from_the_cache(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("a", "folder/b"):
        (tmp_path / name).write_bytes(bytes(10_000))
    assert control.drop_caches(tmp_path) == 2
    assert (tmp_path / "a").read_bytes() == bytes(10_000)
