"""The proxy that spoils calls, before a service that counts them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from tests.openstack.proxy import DROPPED, Call, Proxy, Rule, error


class Counted(BaseHTTPRequestHandler):
    """Answers with what it was sent."""

    protocol_version = "HTTP/1.1"
    served: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.served.append(f"{self.path} {body.decode()}")
        self.send_response(202)
        self.send_header("X-Host", self.headers["Host"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served() -> Iterator[tuple[list[str], Proxy, requests.Session]]:
    """(what reached the service, the proxy before it, a client)."""
    reached: list[str] = []
    handler = type("Handler", (Counted,), {"served": reached})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as service, requests.Session() as client:
        client.trust_env = False
        threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
        proxy = Proxy("127.0.0.1", {"compute": ("127.0.0.1", service.server_address[1])})
        proxy.start()
        yield reached, proxy, client
        proxy.stop()
        service.shutdown()


def test_without_a_rule_nobody_can_tell(
    served: tuple[list[str], Proxy, requests.Session],
) -> None:
    reached, proxy, client = served
    reply = client.post(f"{proxy.url('compute')}/servers", data="a", timeout=10)
    assert (reply.status_code, reply.text) == (202, "a")
    assert f"http://{reply.headers['X-Host']}" == proxy.url("compute")
    assert reached == ["/servers a"]
    assert [(call.service, call.method, call.path) for call in proxy.changing()] == [
        ("compute", "POST", "/servers")
    ]


def test_an_error_in_place_of_the_service_and_in_place_of_its_answer(
    served: tuple[list[str], Proxy, requests.Session],
) -> None:
    reached, proxy, client = served
    rule = proxy.spoil(Rule(method="POST", path="^/a$", skip=1, reply=error(500, "no")))
    proxy.spoil(Rule(path="^/b$", reply=error(503, "late"), after=True))
    url = proxy.url("compute")
    asked = ["a", "a", "a", "b", "b"]
    replies = [client.post(f"{url}/{path}", data="x", timeout=10) for path in asked]
    assert [reply.status_code for reply in replies] == [202, 500, 202, 503, 202]
    assert replies[1].json()["error"]["message"] == "no"
    assert reached == ["/a x", "/a x", "/b x", "/b x"]
    assert rule.hits == 3


def test_an_answer_that_is_lost_and_a_call_that_is_seen(
    served: tuple[list[str], Proxy, requests.Session],
) -> None:
    reached, proxy, client = served
    seen: list[Call] = []
    proxy.spoil(Rule(reply=DROPPED, after=True, act=seen.append))
    headers = {"X-Auth-Token": "t"}
    with pytest.raises(requests.ConnectionError):
        client.post(f"{proxy.url('compute')}/c", data="x", headers=headers, timeout=10)
    assert reached == ["/c x"]
    assert [call.token for call in seen] == ["t"]
    proxy.clear()
    assert client.post(f"{proxy.url('compute')}/c", data="x", timeout=10).status_code == 202
