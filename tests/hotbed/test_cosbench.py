"""`hotbed cosbench` from the command line."""

from __future__ import annotations

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.sites.contract import Node, Testbed
from tests.hotbed.runner import Runner
from workloads.cosbench import driver
from workloads.cosbench.archive import read_archive
from workloads.cosbench.credentials import Credentials
from workloads.errors import WorkloadError

REAL = Path(__file__).parents[1] / "data" / "cosbench" / "real"


def run(*arguments: str, code: int = 0) -> str:
    done = Runner().run(["cosbench", *arguments])
    if isinstance(done.exception, UserError):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def refused(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        run(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_workload_is_printed_or_written(tmp_path):
    options = ("--scale", "0.125", "--storage", "swift", "--runtime", "30s", "--workers", "8")
    text = run("xml", "c", *options)
    assert 'sizes=u(1,16)MB"' in text
    assert '<auth type="swauth"/>' in text
    assert 'workers="8" interval="5" runtime="30"' in text
    out = tmp_path / "c.xml"
    facts = json.loads(run("xml", "C", *options, "--out", str(out), "--json"))
    assert facts == {"name": "workloadC", "file": str(out), "xml": None}
    assert out.read_text() == text
    assert out.stat().st_mode & 0o777 == 0o600
    assert "is there already" in refused("xml", "C", "--out", str(out))


def test_an_archive_is_shown():
    text = run("show", str(REAL), "--workload", "w1", "--series")
    assert "mos-A" in text
    assert "200.1" in text
    assert "series of s3-main" in text
    facts: dict[str, Any] = json.loads(run("show", str(REAL / "w8-s3u"), "--json"))
    assert (facts["id"], facts["finished"], facts["driver"]) == ("w8", True, None)
    read = facts["stages"][2]["results"][0]
    assert (read["op"], read["operations"], read["failed"]) == ("read", 181, 0)
    assert "say which one" in refused("show", str(REAL))


def test_two_archives_are_compared():
    one, other = str(REAL / "w1-mos-A"), str(REAL / "w8-s3u")
    assert "same" in run("compare", one, one)
    text = run("compare", one, other, "--main-only", code=1)
    assert "only in the first: main/delete" in text
    facts = json.loads(run("compare", str(REAL), one, "--first-workload", "w1", "--json"))
    assert facts["same_shape"] is True


def test_a_run_by_the_embedded_driver(tmp_path, monkeypatch):
    seen: dict[str, str] = {}

    def fake(xml: str, where: str, archive: Path, options: Any, *_: Any) -> driver.DriverResult:
        seen["xml"], seen["flags"] = xml, " ".join(options.flags())
        shutil.copytree(REAL / "w1-mos-A", archive / "w1-mos-A")
        return driver.DriverResult(read_archive(archive))

    monkeypatch.setattr(driver, "run_here", fake)
    secret = tmp_path / "secret.json"
    secret.write_text('{"user": "u", "key": "hidden", "auth_url": "http://192.0.2.1/a"}')
    secret.chmod(0o600)
    xml = tmp_path / "w.xml"
    xml.write_text(run("xml", "A", "--storage", "swift"))
    options = ("--credentials", str(secret), "--open-loop", "50:constant", "--seed", "3")
    out = tmp_path / "out"
    facts = json.loads(run("run", str(xml), "--out", str(out), *options, "--json"))
    assert facts["name"] == "mos-A"
    assert "password=hidden" in seen["xml"]
    assert seen["flags"] == "--open-loop 50:constant --seed 3"
    assert "hidden" not in json.dumps(facts)
    assert "never overwritten" in refused("run", str(xml), "--out", str(out), *options)

    def lost(xml: str, where: str, archive: Path, *_: Any) -> driver.DriverResult:
        archive.mkdir()
        raise WorkloadError("the store is gone.")

    monkeypatch.setattr(driver, "run_here", lost)
    other = str(tmp_path / "other")
    done = Runner().run(["cosbench", "run", str(xml), "--out", other, *options])
    assert isinstance(done.exception, WorkloadError)
    assert f"what was measured until then is in {other}" in done.stderr


@pytest.mark.skipif(not driver.PROGRAM.exists(), reason="cosdrive: `make setup` builds it")
def test_a_failed_login_is_said_once_and_leaves_nothing(tmp_path):
    asked: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/auth/v1.0"
        xml, out = tmp_path / "w.xml", tmp_path / "out"
        xml.write_text(run("xml", "A", "--storage", "swift", "--auth-url", url))
        secret = tmp_path / "secret.json"
        secret.write_text('{"user": "u", "key": "wrong"}')
        secret.chmod(0o600)
        words = ["cosbench", "run", str(xml), "--credentials", str(secret), "--out", str(out)]
        for count in (1, 2):
            done = Runner().run(words)
            assert isinstance(done.exception, WorkloadError)
            assert "401" in str(done.exception)
            assert len(asked) == count
            assert done.stderr.splitlines() == ["cosbench: s1-init"]
            assert not out.exists()
        server.shutdown()


def test_a_run_on_a_client_node(tmp_path, monkeypatch):
    nodes = [Node(n, n, frozenset({r}), r) for n, r in (("a", "admin"), ("c0", "client"))]
    found = Testbed("t", "fake", tuple(nodes), tmp_path, tmp_path, tmp_path, "")
    asked: list[driver.ClientWorkload] = []

    def fake(
        agent: Any, shell_to: Any, loads: list[driver.ClientWorkload], out: Path, *_: Any
    ) -> Any:
        asked.extend(loads)
        archive = read_archive(REAL, "w1")
        return {"cli": driver.DriverResult(archive, warnings=("cli: afr has no effect",))}

    key = Credentials(
        {"username": "w", "password": "of-the-tenant", "auth_url": "http://192.0.2.1/"}
    )
    monkeypatch.setattr("testbed.choose.choose_ready", lambda name: (None, found))
    monkeypatch.setattr("testbed.client.agent_client", lambda testbed: None)
    monkeypatch.setattr("testbed.reach.shell_to", lambda testbed, node: None)
    monkeypatch.setattr(driver, "tenant", lambda shell, name: key)
    monkeypatch.setattr(driver, "run_on", fake)
    xml = tmp_path / "w.xml"
    xml.write_text(run("xml", "A", "--storage", "swift", "--runtime", "30s"))
    options = ("--testbed", "t", "--tenant", "web", "--out", str(tmp_path / "out"))
    done = Runner().run(["cosbench", "run", str(xml), *options])
    assert done.exit_code == 0, done.output
    assert "hotbed: cli: afr has no effect" in done.stderr
    (load,) = asked
    assert load.node == "c0"
    assert "password=of-the-tenant" in load.xml
    assert load.max_s >= 30
    assert "of-the-tenant" not in done.output
    assert "no client node 'a'; client nodes: c0" in refused(
        "run", str(xml), *options, "--node", "a"
    )


def test_a_run_by_a_real_cosbench(tmp_path, monkeypatch):
    asked: dict[str, Any] = {}

    def fake(controller: Any, source: Any, xml: str, out: Path, *_: Any) -> Any:
        asked.update(address=controller.address, root=Path(source.root), xml=xml)
        return read_archive(REAL, "w1")

    monkeypatch.setattr("workloads.cosbench.real.run", fake)
    login = tmp_path / "login.json"
    login.write_text('{"user": "me", "key": "sesame"}')
    login.chmod(0o600)
    xml = tmp_path / "w.xml"
    xml.write_text(run("xml", "A"))
    options = ("--controller", "cos0", "--archive", str(REAL), "--login", str(login))
    text = run("run", str(xml), *options, "--out", str(tmp_path / "out"))
    assert asked == {"address": "http://cos0:19088", "root": REAL, "xml": asked["xml"]}
    assert "sesame" not in text + asked["xml"]
    assert "mos-A" in text
