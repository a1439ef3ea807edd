"""All pages of `hotbed ui`, the frame around them, and their server."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import panel as pn
from panel.io.resources import LOCAL_DIST
from panel.io.server import get_server

from hotbed.ui.live import campaign_page, testbed_page
from hotbed.ui.results import Journals, Runs, reports_page
from hotbed.ui.server import ADDRESS, Files, Guard
from hotbed.ui.sources import Index, Watched
from schemas.errors import UserError
from testbed.closure import ROOT

GALLERY = ROOT / "artifacts" / "reference"
"""The recorded figures of the documentation's gallery."""
FRAME = Path(__file__).with_name("frame.html").read_text()
_MOST_BYTES = 2**20  # of a request's body: pages send none


def serve(
    view: Watched, artifacts: Path, *, port: int, prefix: str = "", token: str = ""
) -> tuple[Any, str]:
    """Return the server of all pages and its address with the token. It serves once its `io_loop`
    is started.

    Args:
        view: the testbed.
        artifacts: the folder of runs and reports.
        port: 0 for any free port.
        prefix: path in front of all paths, behind a proxy.
        token: the token that the proxy sends; by default a new one, for the address.

    Raises:
        UserError: the port cannot be used.
    """
    os.environ["BOKEH_RESOURCES"] = "server"  # never a CDN
    # Bokeh warns of websocket_origin="*", but the guard has checked the origin before. Both report
    # every closed browser tab.
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    pn.extension("tabulator")
    artifacts, prefix = artifacts.resolve(), f"/{prefix.strip('/')}".rstrip("/")
    index, folders = Index(artifacts), {"artifacts": artifacts, "gallery": GALLERY}
    contents: dict[str, Callable[[], Any]] = {
        "testbed": lambda: testbed_page(view),
        "campaign": lambda: campaign_page(index),
        "runs": lambda: Runs(index, prefix).page,
        "journal": lambda: Journals(index, view).page,
        "reports": lambda: reports_page(folders, prefix),
    }

    def framed(name: str) -> Callable[[], Any]:
        def page() -> Any:
            # Panel sets it when it writes the page. A browser that comes back after its session
            # has ended gets a new session and no new page, and would ask a CDN for style sheets.
            assert pn.state.curdoc is not None  # a page is made in a session
            pn.state.curdoc.template_variables["dist_url"] = f"{prefix}/{LOCAL_DIST}"
            frame = pn.Template(FRAME)
            frame.add_panel("main", contents[name]())
            for variable, value in (("pages", list(contents)), ("here", name), ("prefix", prefix)):
                frame.add_variable(variable, value)
            return frame

        return page

    try:
        server = get_server(
            {name: framed(name) for name in contents},
            port=port,
            address=ADDRESS,
            prefix=prefix,
            extra_patterns=[
                (f"/files/{name}/(.*)", Files, {"path": str(each)})
                for name, each in folders.items()
            ],
            websocket_origin="*",
            title={name: f"Hotbed: {name}" for name in contents},
            include_headers=[],  # Bokeh would repeat the secrets in the page's text
            include_cookies=[],
            http_server_kwargs={"max_body_size": _MOST_BYTES},
            # A page whose scripts load for longer than this stays empty; Bokeh's 15 s are too short
            # for a slow network.
            unused_session_lifetime_milliseconds=120_000,
        )
    except OSError as error:
        why = f"port {port} cannot be used ({error.strerror})"
        raise UserError(why, where="--port", do="name another port, or 0 for any") from error
    proxied, token, port = bool(token), token or secrets.token_urlsafe(32), server.port or port
    # Bokeh's server has no hook in front of all of its handlers, static files included.
    server._http.request_callback = Guard(
        server._tornado, contents, token=token, port=port, prefix=prefix, proxied=proxied
    )
    view.start()
    index.start()
    return server, f"http://{ADDRESS}:{port}{prefix}/?token={token}"
