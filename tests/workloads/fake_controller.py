"""COSBench controller for tests: a real HTTP server with the observed behaviour of 0.4.2.

Every answer has status 200 and is plain text. Each status request moves a workload one state on.
After its end, its archive is written slightly later than the state reports.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

STATES = ("QUEUING", "PROCESSING", "PROCESSING", "FINISHED")


class FakeController:
    """Controller with archive folder `archive`; `recorded` holds the results of any workload."""

    def __init__(self, archive: Path, recorded: Path) -> None:
        self.archive = archive
        self.recorded = recorded
        self.password = "cosbench"
        self.drivers = {"driver1": "http://127.0.0.1:18088/driver"}
        self.states: tuple[str, ...] = STATES
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.paths: list[str] = []
        self.answers: dict[str, list[str]] = {}  # action -> replacement answers, once each
        self.failures: list[int] = []  # HTTP status of the next answers
        self.write_late = 0
        self._asked: dict[str, int] = {}
        self._born = "Sat Nov 21 05:29:50 UTC 2026"

    def restart(self, *, keeps: bool) -> None:
        """Forget running workloads; with `keeps`, ended workloads remain in the archive."""
        if keeps:
            self._asked = dict.fromkeys(self._asked, len(self.states))
            self._write("w1")
        else:
            self._asked = {}

    def reuse(self) -> None:
        """Give the workload's id to another user's workload, as after a restart."""
        self._born = "Sat Nov 21 06:00:00 UTC 2026"

    def answer(self, action: str, form: dict[str, str], body: bytes, kind: str) -> str:
        """Return the answer to a request."""
        if form.get("password") != self.password:
            return "User info [username:password] incorrect !"
        if self.answers.get(action):
            return self.answers[action].pop(0)
        if action == "submit.action":
            return self._submit(body, kind)
        if action == "index.action":
            return self._index()
        identity = form.get("id", "")
        if not identity:
            return "Bad Request"
        if identity not in self._asked:
            return "Not Found"
        if action == "cancel.action":
            self.cancelled.append(identity)
            self.states = ("CANCELLED",)
            self._write(identity)
        return f"{identity}\t{self._born}\t{self._state(identity)}\n"

    def _submit(self, body: bytes, kind: str) -> str:
        message = BytesParser(policy=HTTP).parsebytes(
            f"Content-Type: {kind}\r\n\r\n".encode() + body
        )
        for part in message.iter_parts():  # type: ignore[attr-defined]
            if part.get_param("name", header="content-disposition") == "config":
                self.submitted.append(part.get_payload(decode=True).decode())
                identity = f"w{len(self.submitted)}"
                self._asked[identity] = 0
                return f"Accepted with ID: {identity}"
        return "Bad Request"

    def _state(self, identity: str) -> str:
        at = self._asked[identity]
        self._asked[identity] = at + 1
        state = self.states[min(at, len(self.states) - 1)]
        if state in ("FINISHED", "TERMINATED"):
            self._write(identity)
        return state

    def _index(self) -> str:
        drivers = "".join(f"{name}\t{url}\n" for name, url in self.drivers.items())
        active = [f"{one}\t{self._born}\tPROCESSING\ts3-main\n" for one in self._asked]
        return (
            f"Drivers:\n{drivers}Total: {len(self.drivers)} drivers\n\n"
            f"Active Workloads:\n{''.join(active)}Total: {len(active)} active workloads\n"
        )

    def _write(self, identity: str) -> None:
        if self.write_late > 0:
            self.write_late -= 1
            return
        target = self.archive / f"{identity}-{self.recorded.name.partition('-')[2]}"
        if target.exists():
            return
        old = self.recorded.name.partition("-")[0]
        shutil.copytree(self.recorded, target)
        for path in target.glob(f"{old}-*"):
            path.rename(target / path.name.replace(f"{old}-", f"{identity}-", 1))
        (target / "workload.log").write_text("driver: logged in by testing\n")
        for name in ("run-history.csv", "workloads.csv"):
            text = (self.recorded.parent / name).read_text()
            (self.archive / name).write_text(re.sub(rf"(?m)^{old}([,-])", rf"{identity}\1", text))


@contextmanager
def serving(fake: FakeController) -> Iterator[str]:
    """Serve the controller at an address of this machine until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers["Content-Length"])))

        def _serve(self, body: bytes) -> None:
            fake.paths.append(self.path)
            parts = urlsplit(self.path)
            kind = self.headers.get("Content-Type", "")
            form = {key: values[0] for key, values in parse_qs(parts.query).items()}
            if kind.startswith("application/x-www-form-urlencoded"):
                form |= {key: values[0] for key, values in parse_qs(body.decode()).items()}
            status = fake.failures.pop(0) if fake.failures else 200
            found = parts.path.startswith("/controller/cli/") and status == 200
            text = fake.answer(parts.path.rpartition("/")[2], form, body, kind) if found else "gone"
            self.send_response(status if status != 200 else 200 if found else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
