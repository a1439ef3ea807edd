"""Server node programs: requests to the proxy's socket, and RPC that waits for the server."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import threading

import pytest

from schemas.errors import StoreError, UserError
from testbed.stores.nfs import control
from tests.errors import raises


class Proxy(http.server.BaseHTTPRequestHandler):
    """Control socket of a proxy that refuses parameters and knows nothing else."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        refused = self.path == "/parameters"
        body = b'{"error": "policy is fair"}' if refused else b""
        self.send_response(400 if refused else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = _answer


def test_what_the_proxy_refuses_or_does_not_know_is_reported(tmp_path):
    path = str(tmp_path / "socket")
    with socketserver.ThreadingUnixStreamServer(path, Proxy) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with raises(UserError, "policy is fair"):
            control.ask(path, "PUT", "/parameters", b"{}")
        with raises(StoreError, "/status", "404"):
            control.ask(path, "GET", "/status")
        server.shutdown()


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
