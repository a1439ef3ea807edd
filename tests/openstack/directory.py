"""Chameleon's directory of sites, as far as python-chi asks for it: one site, this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.openstack.config import REGION


class Directory:
    """Serves ``/sites.json`` at `address`; python-chi finds it by CHI_RESOURCE_API_URL."""

    def __init__(self, address: str) -> None:
        self._server = _Server((address, 0), _Handler)
        self._server.address = address
        self._serves = False

    @property
    def url(self) -> str:
        """Value of CHI_RESOURCE_API_URL."""
        address, port = self._server.server_address[:2]
        return f"http://{address!s}:{port}"

    def start(self) -> None:
        """Begin to serve."""
        self._serves = True
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        if self._serves:
            self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address = ""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to say."""

    def do_GET(self) -> None:
        site = {
            "name": REGION,
            "web": f"http://{self.server.address}",
            "site_class": "baremetal",
            "location": "loopback",
            "user_support_contact": "nobody",
        }
        known = self.path == "/sites.json"
        body = json.dumps({"items": [site]} if known else {}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
