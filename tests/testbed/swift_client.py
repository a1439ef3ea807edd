"""Swift client for tests on a testbed: it stores, reads back, counts failures, and records the
checksum of every acknowledged object."""

from __future__ import annotations

import hashlib
import http.client
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 25.0


class Client:
    """Client of one tenant, with a connection per thread."""

    def __init__(self, endpoint: Mapping[str, Any]) -> None:
        self._proxies = [urlsplit(url).netloc for url in endpoint["proxies"]]
        self._tenant = str(endpoint["user"]).partition(":")[0]
        self._local = threading.local()
        headers = {"X-Auth-User": endpoint["user"], "X-Auth-Key": endpoint["key"]}
        connection = http.client.HTTPConnection(self._proxies[0], timeout=TIMEOUT_S)
        connection.request("GET", "/auth/v1.0", headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        self._token = answer.headers["X-Auth-Token"]
        connection.close()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body; the status is 0 if the connection broke."""
        try:
            connection = self._connection()
            headers = {"X-Auth-Token": self._token}
            connection.request(method, f"/v1/AUTH_{self._tenant}/{path}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self._local.connection = None
            return 0, b""

    def _connection(self) -> http.client.HTTPConnection:
        if getattr(self._local, "connection", None) is None:
            where = random.choice(self._proxies)
            self._local.connection = http.client.HTTPConnection(where, timeout=TIMEOUT_S)
        connection: http.client.HTTPConnection = self._local.connection
        return connection


class Stored:
    """Objects of a container: every acknowledged object must exist, byte for byte."""

    def __init__(self, client: Client, container: str, seed: int = 1) -> None:
        self.client, self.container = client, container
        self.sums: dict[str, str] = {}
        self.requests = self.failed = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        assert client.ask("PUT", container)[0] in {201, 202}

    def put(self, name: str, size: int) -> bool:
        """Store an object and return True if it was acknowledged."""
        with self._lock:
            body = self._random.randbytes(size)
        status, _ = self.client.ask("PUT", f"{self.container}/{name}", body)
        with self._lock:
            self.requests += 1
            self.failed += status != 201
            if status == 201:
                self.sums[name] = hashlib.sha256(body).hexdigest()
        return status == 201

    def get(self, name: str) -> bool:
        """Read an object and return True on success; its content must match the stored one."""
        status, body = self.client.ask("GET", f"{self.container}/{name}")
        with self._lock:
            self.requests += 1
            self.failed += status != 200
        if status == 200:
            assert hashlib.sha256(body).hexdigest() == self.sums[name], name
        return status == 200

    def lost(self) -> list[str]:
        """Return the names of acknowledged objects that are missing or changed."""
        found = []
        for name, wanted in sorted(self.sums.items()):
            for _ in range(3):
                status, body = self.client.ask("GET", f"{self.container}/{name}")
                if status == 200:
                    break
            if status != 200 or hashlib.sha256(body).hexdigest() != wanted:
                found.append(f"{name}: {status}")
        return found

    @contextmanager
    def load(self, threads: int = 3, size: int = 16_384) -> Iterator[None]:
        """Store and read continuously in the background; an error in a thread fails the test."""
        ended = threading.Event()
        problems: list[BaseException] = []

        def work(place: int) -> None:
            count = 0
            chosen = random.Random(place)
            try:
                while not ended.is_set():
                    name = f"{place}-{len(self.sums)}-{count}"
                    count += 1
                    if not self.put(name, size):
                        time.sleep(0.1)
                    elif count % 2:
                        self.get(chosen.choice(list(self.sums)))
            except BaseException as error:
                problems.append(error)

        workers = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(threads)]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            ended.set()
            for worker in workers:
                worker.join(2 * TIMEOUT_S)
        if problems:
            raise problems[0]
