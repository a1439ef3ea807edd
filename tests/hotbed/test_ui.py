"""Server and sources of `hotbed ui`, without a browser."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from bokeh.protocol import Protocol
from bokeh.util.token import generate_jwt_token, generate_session_id
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from hotbed.ui import TOKEN_HEADER, TOKEN_VARIABLE
from hotbed.ui.sources import OVERVIEW_S, Index, Watched, campaign_state
from schemas.errors import UserError
from tests.hotbed import ui_world
from tests.hotbed.runner import Ask
from tests.hotbed.ui_world import CAMPAIGN, runs, served
from tests.waiting import until

pytestmark = pytest.mark.slow
PAGES = ("testbed", "campaign", "runs", "journal", "reports")


class Client:
    """Client of a server: sends one request a connection, and follows nothing."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.port, self.query = parts.hostname or "", parts.port or 0, parts.query
        self.netloc, self.path = parts.netloc, parts.path

    def get(self, path: str, method: str = "GET", **headers: str) -> HTTPResponse:
        connection = HTTPConnection(self.host, self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        return connection.getresponse()

    def cookie(self) -> str:
        answer = self.get(f"{self.path}?{self.query}")
        assert answer.status == 303 and "token" not in answer.headers["Location"]
        given = answer.headers["Set-Cookie"]
        assert "HttpOnly" in given and "SameSite=Strict" in given
        return given.partition(";")[0]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ui")
    runs(folder, 12)
    return folder


@pytest.fixture(scope="module")
def client(artifacts: Path) -> Iterator[Client]:
    with served(artifacts) as address:
        yield Client(address)


def test_it_listens_on_loopback_only(client: Client) -> None:
    listening = subprocess.check_output(["ss", "-ltnH", f"sport = :{client.port}"], text=True)
    assert [line.split()[3] for line in listening.splitlines()] == [f"127.0.0.1:{client.port}"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS", "STRANGE"])
def test_without_the_token_everything_is_refused(client: Client, method: str) -> None:
    static = "/static/js/bokeh.min.js", "/static/extensions/panel/panel.min.js"
    places = ("/", "/?token=", "/?token=wrong", *(f"/{page}" for page in PAGES), "/nowhere")
    for place in (
        *places,
        *static,
        "/testbed/ws",
        "/testbed/autoload.js",
        "/files/artifacts/x.png",
    ):
        assert client.get(place, method).status == 403, place
        assert client.get(place, method, Cookie=f"hotbed-ui-{client.port}=wrong").status == 403


def test_the_cookie_opens_every_page(client: Client) -> None:
    cookie = client.cookie()
    for page in PAGES:
        answer = client.get(f"/{page}", Cookie=cookie)
        body = answer.read().decode()
        assert answer.status == 200 and "cdn" not in body.lower()
        assert body.count("<script") == body.count("<script nonce=")
    assert client.get("/", Cookie=cookie).headers["Location"] == "/testbed"


def test_strange_hosts_and_origins_are_refused(client: Client) -> None:
    cookie = client.cookie()
    assert client.get("/runs", Cookie=cookie, Host="attacker.example").status == 403
    assert client.get("/runs", Cookie=cookie, Origin="http://attacker.example").status == 403
    assert client.get("/runs", Cookie=cookie, Origin="http://127.0.0.1:1").status == 403
    assert client.get(f"/?{client.query}", Host="attacker.example:80").status == 403
    assert client.get("/runs", Cookie=cookie, Origin=f"http://{client.netloc}").status == 200


def test_every_answer_has_the_headers(client: Client) -> None:
    cookie = client.cookie()
    for answer in (client.get("/runs"), client.get("/runs", Cookie=cookie), client.get("/no")):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe-eval" not in policy and "'unsafe-inline'" not in policy.split("style-src")[0]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_the_websocket_asks_for_the_same(client: Client) -> None:
    cookie = client.cookie()

    def opened(**headers: str) -> int:
        async def connect() -> int:
            request = HTTPRequest(f"ws://{client.netloc}/runs/ws", headers=headers)
            try:
                (await websocket_connect(request, subprotocols=["bokeh", "x"])).close()
            except HTTPClientError as error:
                return error.code
            return 101

        return asyncio.run(connect())

    origin = f"http://{client.netloc}"
    assert opened(Origin=origin) == 403
    assert opened(Origin="http://attacker.example", Cookie=cookie) == 403
    assert opened(Origin=origin, Cookie=cookie) == 101


@pytest.mark.parametrize("page", PAGES)
def test_a_session_without_its_page_asks_no_cdn(client: Client, page: str) -> None:
    """A browser has one when it comes back after its session has ended."""
    cookie = client.cookie()

    async def document() -> str:
        headers = {"Origin": f"http://{client.netloc}", "Cookie": cookie}
        socket = await websocket_connect(
            HTTPRequest(f"ws://{client.netloc}/{page}/ws", headers=headers),
            subprotocols=["bokeh", generate_jwt_token(generate_session_id())],
        )
        greeting = [str(await socket.read_message()) for _ in range(3)]  # before it nothing is read
        asked = Protocol().create("PULL-DOC-REQ")
        for part in (asked.header_json, asked.metadata_json, asked.content_json):
            await socket.write_message(part)
        header, _, content = [str(await socket.read_message()) for _ in range(3)]
        socket.close()
        assert "ACK" in greeting[0] and "PULL-DOC-REPLY" in header
        return content

    answer = asyncio.run(document())
    assert "/static/extensions/panel/" in answer and answer.count("cdn") == 0


def test_files_of_the_folder_alone(client: Client, artifacts: Path) -> None:
    cookie = client.cookie()
    answer = client.get(f"/files/artifacts/{CAMPAIGN}/report.html", Cookie=cookie)
    assert answer.status == 200 and answer.headers["Content-Security-Policy"].startswith("sandbox")
    (artifacts / CAMPAIGN / "outside.html").symlink_to("/etc/hostname")
    for place in (f"{CAMPAIGN}/ledger.jsonl", f"{CAMPAIGN}/outside.html", "../../etc/passwd", ""):
        assert client.get(f"/files/artifacts/{place}", Cookie=cookie).status in (403, 404), place


def test_behind_jupyter_server_proxy(artifacts: Path) -> None:
    (entry,) = entry_points(group="jupyter_serverproxy_servers", name="hotbed")
    settings = entry.load()()
    token = settings["environment"][TOKEN_VARIABLE]
    assert settings["request_headers_override"] == {TOKEN_HEADER: token}
    assert settings["absolute_url"] and settings["launcher_entry"]["title"] == "Hotbed"
    from jupyter_server_proxy.config import ServerProcess  # takes exactly these settings

    assert ServerProcess(name="hotbed", **settings).timeout == 60
    with served(artifacts, "/user/student/hotbed", **{TOKEN_VARIABLE: token}) as address:
        client, base = Client(address), "/user/student/hotbed"
        header = {TOKEN_HEADER: token, "Host": "hub.example", "Origin": "https://hub.example"}
        assert client.get(f"{base}/").status == 403
        assert client.get(f"{base}/", **header).headers["Location"] == f"{base}/testbed"
        answer = client.get(f"{base}/runs", **header)
        body = answer.read().decode()
        assert "frame-ancestors 'self'" in answer.headers["Content-Security-Policy"]
        scripts = [each.partition('"')[0] for each in body.split('src="')[1:]]
        places = [each if each[0] == "/" else f"{base}/{each}" for each in scripts]
        assert places and all(client.get(place, **header).status == 200 for place in places)


def test_a_port_in_use_is_one_sentence(ask: Ask, client: Client) -> None:
    assert str(client.port) in ask("ui", "--port", client.port, "--no-browser", code=2).err


def test_the_command_starts_without_panel() -> None:
    words = "import sys, hotbed.cli; hotbed.cli.build(); print('panel' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", words], text=True).strip() == "False"


def test_without_the_extra_it_says_what_to_install(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith(("hotbed.ui.", "panel"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "panel", None)
    assert "hotbed[ui]" in ask("ui", "--port", 0, code=2).err


def test_one_stream_is_kept_and_opened_again() -> None:
    opened = []

    def stream() -> Iterator[dict[str, object]]:
        opened.append(time.time())
        yield ui_world.sample(1, len(opened))
        raise UserError("is down", where="node admin")

    watched = Watched(stream, ui_world.overview, ui_world.journal)  # type: ignore[arg-type]
    watched.start()
    until(lambda: len(watched.samples) == 2, 20)
    until(lambda: watched.problem and watched.overview["health"], 20)


def test_a_new_fault_is_looked_into_at_once() -> None:
    looked: list[float] = []
    sent = threading.Event()

    def stream() -> Iterator[dict[str, object]]:
        yield ui_world.sample(1, 1)
        sent.wait()
        fault = {"kind": "osd", "node": "osd0", "since_s": 1.0, "until_s": None, "about": "killed"}
        yield ui_world.sample(1, 2) | {"faults": [fault]}
        threading.Event().wait()

    def look() -> Mapping[str, Any]:
        looked.append(time.monotonic())
        return ui_world.overview()

    Watched(stream, look, ui_world.journal).start()  # type: ignore[arg-type]
    until(lambda: len(looked) == 2, 20)  # at the start, and for the first sample
    sent.set()
    until(lambda: len(looked) == 3, 0.6 * OVERVIEW_S)


def test_the_index_follows_the_folder(tmp_path: Path) -> None:
    index = Index(tmp_path / "none-yet")
    index.scan()
    assert index.complete and index.runs.empty and index.campaigns() == []
    campaign = runs(index.folder, 6)
    index.scan()
    assert len(index.runs) == 7 and index.campaigns() == [CAMPAIGN]
    time.sleep(0.2)  # a folder that has just changed is read once more
    index.scan()
    before = index.version
    index.scan()
    assert index.version == before
    shutil.rmtree(next(campaign.glob("*/attempt-1")).parent)
    index.scan()
    assert len(index.runs) == 6


def test_a_campaign_with_and_without_its_engine(tmp_path: Path) -> None:
    campaign = runs(tmp_path, 6)
    index = Index(tmp_path)
    index.scan()
    state = campaign_state(index, CAMPAIGN)
    assert state.engine is None and state.count("done") == 6
    assert state.count("pending") == 2 and state.count("spoiled") == 1
    holder = {"pid": os.getpid(), "command": "hotbed run dlr-stored"}
    (campaign / ".lock").write_text(json.dumps(holder))
    state = campaign_state(index, CAMPAIGN)
    assert state.engine is not None and state.count("running") == 1
    assert state.left_s == pytest.approx(3 * 30.0) and "12 of 60 s" in state.log()
