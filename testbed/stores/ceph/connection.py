"""One librados connection, with a time-out on everything.

librados can wait for ever (a monitor that is gone, an OSD that hangs). So two limits bound every
command: librados' own time-outs, and a thread that is abandoned if those fail too. Measured on Ceph
16.2: connect 5 to 20 ms, a monitor query below 1 ms, `tell` of an OSD below 1 ms. A change of the
OSD map waits for the monitor's next proposal (docs/ceph-store.md).
"""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.errors import StoreError

CONF = "/etc/ceph/ceph.conf"
TIMEOUT_S = 10.0
# As many as one bulk step has changes: only changes in flight together share a map epoch.
CONCURRENCY = 512
_GIVE_UP_S = 3.0  # beyond librados' own time-out
_OSD_TIMEOUT_S = 5  # an OSD that hangs must not cost a whole control interval
_STACK_BYTES = 512 * 1024

T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """Result of a command. `code` is 0 or a negative errno; `data` is parsed JSON or text."""

    code: int
    data: Any
    message: str
    seconds: float

    @property
    def ok(self) -> bool:
        """True if Ceph accepted the command."""
        return self.code == 0

    def checked(self, what: str) -> Any:
        """Return `data`; raise StoreError with Ceph's message if the command failed."""
        if self.code != 0:
            raise StoreError(f"Ceph refused {what!r}: {self.message or 'no message'} ({self.code})")
        return self.data


class Connection:
    """Commands to monitors, managers, OSDs and placement groups; `raw` is a `rados.Rados`."""

    def __init__(self, raw: Any, *, timeout_s: float = TIMEOUT_S) -> None:
        self._raw = raw
        self.timeout_s = timeout_s

    def mon(self, prefix: str, **arguments: Any) -> Reply:
        """Send a monitor command."""
        return self._send(prefix, arguments, self._raw.mon_command)

    def mgr(self, prefix: str, **arguments: Any) -> Reply:
        """Send a manager command (statistics, reweight-by-utilization, the balancer)."""
        return self._send(prefix, arguments, self._raw.mgr_command)

    def osd(self, osd: int, prefix: str, **arguments: Any) -> Reply:
        """Send a command to one OSD, as ``ceph tell osd.N`` does."""
        return self._send(
            prefix, arguments, lambda command, data: self._raw.osd_command(osd, command, data)
        )

    def pg(self, pgid: str, prefix: str) -> Reply:
        """Send a command to a placement group's primary; the command must also contain the id."""
        return self._send(
            prefix,
            {"pgid": pgid},
            lambda command, data: self._raw.pg_command(pgid, command, data),
        )

    def osd_map(self) -> bytes:
        """Return the current OSD map in Ceph's own encoding. Raises StoreError."""
        reply = self._send("osd getmap", {}, self._raw.mon_command, binary=True)
        return bytes(reply.checked("osd getmap"))

    def close(self) -> None:
        """Disconnect."""
        self._raw.shutdown()

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make `calls` concurrently; return their results in order or raise the first error."""
        return together(calls, self.timeout_s + _GIVE_UP_S)

    def _send(
        self,
        prefix: str,
        arguments: dict[str, Any],
        command: Callable[[str, bytes], tuple[int, bytes, str]],
        *,
        binary: bool = False,
    ) -> Reply:
        text = json.dumps({"prefix": prefix, "format": "json", **arguments})
        start = time.monotonic()
        try:
            code, output, message = command(text, b"")
        except StoreError:
            raise
        except Exception as error:
            # rados raises for a command that it cannot send: time-out, no such OSD, not connected.
            code = -abs(int(getattr(error, "errno", 0) or 5))
            output, message = b"", str(error)
        data = output if binary else parse(output)
        return Reply(code, data, message.strip(), time.monotonic() - start)


def parse(output: bytes) -> Any:
    """Parse a command's output as JSON or else text. Ceph 16 prints NaN as nan and inf."""
    text = output.decode(errors="replace").strip()
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        cleaned = text.replace(":-nan", ":null").replace(":nan", ":null").replace(":inf", ":null")
        try:
            return json.loads(cleaned)
        except json.JSONDecodeError:
            return text


def together(
    calls: Sequence[Callable[[], T]], timeout_s: float, concurrency: int = CONCURRENCY
) -> list[T]:
    """Make `calls` in daemon threads, at most `concurrency` at once. `calls`: functions to call;
    results come back in this order. `timeout_s`: limit for all calls; a call that hangs longer is
    left behind in its thread. StoreError: a call did not return in time. An error of a call is
    raised as it is."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []
    positions = iter(range(len(calls)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                position = next(positions, None)
            if position is None:
                return
            try:
                results[position] = calls[position]()
            except Exception as error:
                errors.append(error)

    threads = start_workers(work, min(concurrency, len(calls)))
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            raise StoreError(f"Ceph did not answer within {timeout_s:g} s.")
    if errors:
        raise errors[0]
    return results


_starting = threading.Lock()  # threading.stack_size is process-wide: set and restore under lock


def start_workers(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """Run `work` in `count` daemon threads with small stacks."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    with _starting:
        before = threading.stack_size(_STACK_BYTES)
        try:
            for thread in threads:
                thread.start()
        finally:
            threading.stack_size(before)
    return threads


def connect(conf: str = CONF, timeout_s: float = TIMEOUT_S) -> Connection:
    """Connect to the cluster that `conf` names, as its administrator. StoreError: no librados, no
    configuration, or no monitor answers within `timeout_s`."""
    try:
        import rados
    except ImportError as error:
        raise StoreError(
            "librados is missing: the Ceph store runs on the admin node (package python3-rados)."
        ) from error
    bound = str(int(max(1, timeout_s)))
    options = {
        "rados_mon_op_timeout": bound,
        "rados_osd_op_timeout": str(_OSD_TIMEOUT_S),
        "client_mount_timeout": bound,
        # One messenger thread suffices for a few tiny commands and saves the admin node's cores.
        "ms_async_op_threads": "1",
    }

    def open_it() -> Any:
        cluster = rados.Rados(conffile=conf, name="client.admin", conf=options)
        try:
            cluster.connect(timeout=int(bound))
        except BaseException:
            # Without the shutdown, nine file descriptors and four threads would stay per attempt.
            cluster.shutdown()
            raise
        return cluster

    try:
        (raw,) = together([open_it], timeout_s + _GIVE_UP_S)
    except StoreError:
        raise
    except Exception as error:
        if getattr(error, "errno", None) == errno.ETIMEDOUT:
            raise StoreError(f"no monitor of {conf} answers within {timeout_s:g} s.") from error
        raise StoreError(f"cannot connect to the Ceph cluster of {conf}: {error}.") from error
    return Connection(raw, timeout_s=timeout_s)
