"""Server side of the NFS store: talks to the proxy's control socket, waits for proxy and server.

    python3 -m testbed.stores.nfs.control VERB [ARGUMENT...] < BODY

The admin node's `NfsStore` starts it on a server node over ssh. It prints a JSON answer. A refusal
is one sentence on standard error and exit code 2; any other failure exits with 1.

    answers ADDRESS...    wait until RPC servers answer at the addresses (NULL calls)
    ready                 wait until the proxy and the server behind it answer
    status | parameters | metrics      print the proxy's answer
    put                   set parameters from BODY; connections and queued calls stay
    default               set the parameters of the deployment
    profile               set a device's profile from BODY; a new profile restarts the proxy
    trace-start FOLDER | trace-stop    record the workloads' requests
    caches                write back and drop the page cache of the exported files
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.durable import read_deployed, write_file
from schemas.errors import HotbedError, StoreError, UserError

CONFIG = Path("/etc/hotbed/nfsproxy.json")
UNIT = "hotbed-nfsproxy.service"
WAIT_S = 30.0
_NFS, _MOUNT, _VERSION = 100003, 100005, 3


class _Unix(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=15.0)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def configuration(path: Path = CONFIG) -> dict[str, Any]:
    """Return the proxy's deployed configuration; raise UserError if there is none."""
    found: dict[str, Any] = read_deployed(path)
    return found


def ask(socket_path: str, method: str, path: str, body: bytes | None = None) -> bytes:
    """Send one request to the control socket; return the answer. UserError: the proxy refused the
    request; contains the proxy's reason. StoreError: the proxy does not answer."""
    connection = _Unix(socket_path)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read()
    except OSError as error:
        raise StoreError(f"the NFS proxy does not answer at {socket_path}: {error}.") from error
    except http.client.HTTPException as error:
        raise StoreError(f"the NFS proxy answered {method} {path} with garbage.") from error
    finally:
        connection.close()
    if answer.status == 400:
        raise UserError(f"the NFS proxy refused: {json.loads(text)['error']}")
    if answer.status != 200:
        raise StoreError(f"the NFS proxy answered {method} {path} with status {answer.status}.")
    return text


def null_call(address: str, program: int) -> None:
    """Call procedure 0 of an RPC program over TCP (RFC 5531); raise OSError without an answer."""
    host, _, port = address.rpartition(":")
    xid = secrets.randbits(32)
    # xid, CALL, RPC version 2, program, version, procedure 0, no credentials, no verifier.
    call = struct.pack(">10I", xid, 0, 2, program, _VERSION, 0, 0, 0, 0, 0)
    with socket.create_connection((host, int(port)), timeout=2.0) as connection:
        connection.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
        reply = b""
        while len(reply) < 28:
            part = connection.recv(4096)
            if not part:
                raise ConnectionError(f"{address} closed the connection")
            reply += part
    _, got, kind, accepted, _, _, state = struct.unpack(">7I", reply[:28])
    if (got, kind, accepted, state) != (xid, 1, 0, 0):
        raise ConnectionError(f"{address} does not serve program {program}")


def until(attempt: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    """Repeat until it does not fail; raise StoreError with its last failure after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            attempt()
            return
        except (OSError, StoreError) as error:
            if time.monotonic() > end:
                raise StoreError(f"{error} (waited {timeout_s:g} s).") from error
        time.sleep(0.1)


def answers(addresses: Sequence[str]) -> None:
    """Wait until NFS answers at the first address, and the mount protocol at the second."""
    for address, program in zip(addresses, (_NFS, _MOUNT), strict=False):
        until(lambda a=address, p=program: null_call(a, p))  # type: ignore[misc]


def ready(config: Mapping[str, Any]) -> None:
    """Wait until the proxy and the server behind it answer."""
    until(lambda: ask(config["control"], "GET", "/status"))
    answers([config["nfs"]["server"], config["mount"]["server"]])


def put_profile(config: Mapping[str, Any], profile: Mapping[str, Any]) -> bool:
    """Set the proxy's profile; return True if it changed. The proxy restarts with its defaults.
    UserError: the proxy refuses the profile; the old one stays."""
    path = Path(config["profile"])
    old = path.read_text() if path.exists() else "{}"
    if json.loads(old) == dict(profile):
        return False
    write_file(path, json.dumps(profile, sort_keys=True) + "\n")
    try:
        _restart()
        ready(config)
    except StoreError as error:
        write_file(path, old)
        _restart()
        raise UserError(f"the NFS proxy does not start with this profile: {error}") from error
    return True


def _restart() -> None:
    done = subprocess.run(
        ["systemctl", "restart", UNIT], capture_output=True, text=True, check=False, timeout=90
    )
    if done.returncode != 0:
        log = ["journalctl", "--no-pager", "-o", "cat", "-n", "5", "-u", UNIT]
        said = subprocess.run(log, capture_output=True, text=True, check=False).stdout
        lines = [line for line in said.splitlines() if line.startswith("nfsproxy:")]
        raise StoreError(lines[-1] if lines else f"{UNIT} does not start.")


def drop_caches(folder: Path) -> int:
    """Write back and drop the page cache of all files below `folder`; return how many."""
    count = 0
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            count += 1
    return count


def _exported() -> Path:
    """Return the folder in the server's configuration."""
    path = Path("/etc/hotbed/ganesha.conf")
    for line in path.read_text().splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "Path":
            return Path(value.strip().rstrip(";"))
    raise UserError(f"{path} exports nothing", do="deploy the testbed again")


def carry_out(verb: str, arguments: Sequence[str], body: bytes) -> Any:
    """Carry out one verb; see the module's docstring."""
    if verb == "answers":
        answers(arguments)
        return {"ok": True}
    if verb == "caches":
        return {"files": drop_caches(_exported())}
    config = configuration()
    control = config["control"]
    if verb == "ready":
        ready(config)
        return {"ok": True}
    if verb in ("status", "parameters"):
        return json.loads(ask(control, "GET", f"/{verb}"))
    if verb == "metrics":
        return {"text": ask(control, "GET", "/metrics").decode()}
    if verb == "put":
        return json.loads(ask(control, "PUT", "/parameters", body))
    if verb == "default":
        given = json.dumps(config["parameters"]).encode()
        return json.loads(ask(control, "PUT", "/parameters", given))
    if verb == "profile":
        return {"changed": put_profile(config, json.loads(body))}
    if verb == "trace-start":
        folder = Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        return json.loads(ask(control, "POST", f"/trace?folder={folder}"))
    if verb == "trace-stop":
        return json.loads(ask(control, "DELETE", "/trace"))
    raise UserError(f"there is no verb {verb!r}; `pydoc testbed.stores.nfs.control` lists them")


def main(arguments: list[str]) -> int:
    """Run one verb; see the module's docstring."""
    verb = arguments[0] if arguments else ""
    body = sys.stdin.buffer.read() if verb in ("put", "profile") else b""
    try:
        print(json.dumps(carry_out(verb, arguments[1:], body)))
    except HotbedError as error:
        print(str(error), file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
