"""Guard in front of Bokeh's server: it asks every request for the token.

The address that `hotbed ui` prints has the token. The guard exchanges it for a cookie, so that the
token stays out of the browser's history and of links. Behind jupyter-server-proxy, which has asked
for Jupyter's token, each request carries the token in a header instead.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httputil import (
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerRequest,
    ResponseStartLine,
    parse_cookie,
)
from tornado.routing import Router
from tornado.web import HTTPError, StaticFileHandler

from hotbed.ui import TOKEN_HEADER

ADDRESS = "127.0.0.1"
_SHOWN = {".html", ".png", ".pdf", ".svg", ".csv"}
"""Suffixes of the files that are served from the artifacts folder."""

# Tried in Chromium with Panel 1.9 and Bokeh 3.9 (tests/hotbed/test_ui_browser.py):
# 'unsafe-eval' is not needed, because no page uses CustomJS or ReactiveHTML. Scripts inside the
# page carry a nonce, so 'unsafe-inline' is not needed for scripts. It is needed for styles: every
# component of Bokeh has a shadow root with <style> elements, which cannot carry a nonce. Styles
# load nothing from elsewhere, because images and fonts are local, too.
_PAGE = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors {ancestors}"
)
# A report has no scripts, and may not have any: an origin of its own, images and styles inside.
_FILE = (
    "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard(Router):
    """Router in front of Bokeh's server. Without the token the answer to everything is 403.

    Args:
        inside: Bokeh's application.
        pages: names of the pages; the first one is the home page.
        token: the secret in the printed address, or in the proxy's header if `proxied`.
        port: part of the cookie's name, because all ports of a machine share their cookies.
        prefix: path in front of all paths.
    """

    def __init__(
        self,
        inside: Any,
        pages: Iterable[str],
        *,
        token: str,
        port: int,
        prefix: str = "",
        proxied: bool = False,
    ) -> None:
        self._inside, self._token, self._prefix, self._proxied = inside, token, prefix, proxied
        self._pages = [f"{prefix}/{name}" for name in pages]
        self._cookie, self._ticket = f"hotbed-ui-{port}", secrets.token_urlsafe(32)

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> HTTPMessageDelegate:
        """Return the answer to a request."""
        path = request.path.rstrip("/")
        policy = _FILE if path.startswith(f"{self._prefix}/files/") else _PAGE
        policy = policy.replace("{ancestors}", "'self'" if self._proxied else "'none'")
        guarded: Any = _Guarded(request.connection, policy, page=path in self._pages)
        request.connection = guarded
        given = request.query_arguments.get("token", [b""])[0].decode(errors="replace")
        to = self._pages[0] if path == self._prefix else path
        if _from_here(request) and _same(given, self._token):
            where = f"Path={self._prefix or '/'}; HttpOnly; SameSite=Strict"
            ticket = f"{self._cookie}={self._ticket}; {where}"
            return _Answer(request, 303, {"Location": to, "Set-Cookie": ticket})
        if not self._knows(request):
            return _Answer(request, 403, {}, "Open the address that `hotbed ui` printed.\n")
        if path == self._prefix:
            return _Answer(request, 303, {"Location": to})
        found: HTTPMessageDelegate = self._inside.find_handler(request, **kwargs)
        return found

    def _knows(self, request: HTTPServerRequest) -> bool:
        """Return True if the request may see everything. A proxy has checked host and origin: only
        it knows its own address."""
        if self._proxied:
            return _same(request.headers.get(TOKEN_HEADER, ""), self._token)
        given = parse_cookie(request.headers.get("Cookie", "")).get(self._cookie, "")
        return _from_here(request) and _same(given, self._ticket)


def _from_here(request: HTTPServerRequest) -> bool:
    """Return True if the request names this machine, and comes from a page of ours if it comes from
    a page: a name that an attacker points at 127.0.0.1 is another host. Any port is right, because
    an ssh tunnel may begin at another one."""
    host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
    ours = origin is None or urlsplit(origin).netloc == host
    return ours and host.rpartition(":")[0] in {ADDRESS, "localhost"}


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


class _Answer(HTTPMessageDelegate):
    """A short answer to any request, without a look at its method or body."""

    def __init__(
        self, request: HTTPServerRequest, status: int, headers: dict[str, str], text: str = ""
    ) -> None:
        self._connection: Any = request.connection
        self._line = ResponseStartLine("HTTP/1.1", status, responses[status])
        size, kind = str(len(text)), "text/plain; charset=utf-8"
        self._headers = HTTPHeaders({"Content-Length": size, "Content-Type": kind} | headers)
        self._body = b"" if request.method == "HEAD" else text.encode()

    def finish(self) -> None:
        """Send the answer."""
        self._connection.write_headers(self._line, self._headers, self._body)
        self._connection.finish()


class _Guarded:
    """Connection that adds the security headers to its response, and a nonce to a page's scripts.
    A page has no texts but our own: strangers' texts come later, over the websocket."""

    def __init__(self, connection: Any, policy: str, *, page: bool) -> None:
        self._connection, self._policy, self._page = connection, policy, page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def write_headers(
        self, start_line: ResponseStartLine, headers: HTTPHeaders, chunk: bytes | None = None
    ) -> Any:
        nonce = secrets.token_urlsafe(16)
        policy = self._policy.replace("{nonce}", nonce)
        for name, value in {**_HEADERS, "Content-Security-Policy": policy}.items():
            headers[name] = value
        if self._page and chunk:
            chunk = chunk.replace(b"<script", f'<script nonce="{nonce}"'.encode())
            headers["Content-Length"] = str(len(chunk))
        return self._connection.write_headers(start_line, headers, chunk)


class Files(StaticFileHandler):
    """Reports and figures of the artifacts folder."""

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        """Refuse other files, and links that lead out of the folder."""
        path = Path(absolute_path).resolve()
        if path.suffix not in _SHOWN or not path.is_relative_to(Path(root).resolve()):
            raise HTTPError(403)
        return super().validate_absolute_path(root, absolute_path)
