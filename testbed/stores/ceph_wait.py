"""Wait for a Ceph cluster to serve: HEALTH_OK, all OSDs up, every placement group active+clean.

Runs on the admin node, from the agent's bundle (``python3 -m testbed.stores.ceph_wait OSDS
TIMEOUT_S``) or on standard input of ``python3 -`` (the role ceph). Standard library and rados only.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

Ask = Callable[[str, str], Mapping[str, Any]]
"""Function from (daemon, command) to the JSON answer; daemon is ``mon`` or ``mgr``. Raises OSError
without an answer."""

POLL_S = 0.1
COMMAND_S = 5
PATIENCE_S = 20.0
"""Limit for one answer, with connecting; librados' limits (twice `COMMAND_S`) expire earlier."""


def what_is_missing(ask: Ask, osds: int) -> str | None:
    """Return in words what the cluster still lacks, None if the cluster serves.

    After a restart the monitors report the old manager's last data for up to half a minute. The
    manager itself is therefore asked for the placement groups: a new manager knows only reports of
    living OSDs.
    """
    status = ask("mon", "status")
    up, inside = status["osdmap"]["num_up_osds"], status["osdmap"]["num_in_osds"]
    if up < osds or inside < osds:
        return f"{up} of {osds} OSDs are up and {inside} in"
    groups = ask("mgr", "pg stat")["pg_summary"]
    clean = sum(row["num"] for row in groups["num_pg_by_state"] if row["name"] == "active+clean")
    if clean < groups["num_pgs"]:
        return f"{clean} of {groups['num_pgs']} placement groups are active+clean"
    health = status["health"]
    if health["status"] != "HEALTH_OK":
        reasons = [check["summary"]["message"] for check in health["checks"].values()]
        return f"{health['status']}: {'; '.join(reasons) or 'no reason given'}"
    return None


def wait(ask: Ask, osds: int, timeout_s: float, *, clock: Callable[[], float], sleep: Any) -> float:
    """Poll until the cluster serves; return the seconds it took. TimeoutError: the cluster does not
    serve in time; the message says what is missing."""
    start = clock()
    missing: str | None = "the monitors do not answer"
    while True:
        try:
            missing = what_is_missing(ask, osds)
        except OSError as error:
            missing = f"monitors or manager do not answer ({error})"
        if missing is None:
            return clock() - start
        if clock() - start > timeout_s:
            raise TimeoutError(f"Ceph is not healthy after {timeout_s:.0f} s: {missing}.")
        sleep(POLL_S)


def asker() -> Ask:
    """Return an `Ask` of the cluster of /etc/ceph/ceph.conf; it connects at the first question."""
    import rados

    connected: list[Any] = []

    def ask(daemon: str, prefix: str) -> Mapping[str, Any]:
        try:
            if not connected:
                options = {"rados_mon_op_timeout": str(COMMAND_S), "client_mount_timeout": "5"}
                cluster = rados.Rados(
                    conffile="/etc/ceph/ceph.conf", name="client.admin", conf=options
                )
                try:
                    cluster.connect()
                except rados.Error:
                    # Without the shutdown, nine file descriptors and four threads would stay per
                    # attempt, and librados aborts a process that has no descriptor left.
                    cluster.shutdown()
                    raise
                connected.append(cluster)
            command = json.dumps({"prefix": prefix, "format": "json"})
            call = getattr(connected[0], f"{daemon}_command")
            code, output, message = call(command, b"", timeout=COMMAND_S)
        except rados.Error as error:  # not an OSError of Python
            raise OSError(str(error)) from error
        if code != 0:
            raise OSError(abs(code), message)
        answer: Mapping[str, Any] = json.loads(output)
        return answer

    return ask


class Apart:
    """An `Ask` in a child process; a new child replaces one that ended or hangs.

    librados aborts its process on unexpected errors. An abort was seen while a store started on a
    busy machine. With a child process, an abort costs one question and does not end the wait.
    """

    def __init__(self, make: Callable[[], Ask] = asker, *, patience_s: float = PATIENCE_S) -> None:
        self._make = make
        self._patience_s = patience_s
        self._child: tuple[BaseProcess, Connection] | None = None

    def __call__(self, daemon: str, prefix: str) -> Mapping[str, Any]:
        """Ask as any `Ask` does. RuntimeError: the process cannot ask at all; it wrote the reason
        to standard error."""
        child, pipe = self._child = self._child or self._begin()
        try:
            pipe.send((daemon, prefix))
            if not pipe.poll(self._patience_s):
                raise TimeoutError(f"no answer within {self._patience_s:g} s")
            answer, failure = pipe.recv()
        except TimeoutError:
            self.close()
            raise
        except (EOFError, OSError) as error:
            child.join(1)  # wait first: after a kill, the exit code would be the kill's
            self.close()
            if child.exitcode is not None and child.exitcode > 0:
                raise RuntimeError("the cluster cannot be asked from here") from error
            raise OSError(f"librados ended the process that asked ({child.exitcode})") from error
        if failure is not None:
            raise OSError(failure)
        found: Mapping[str, Any] = answer
        return found

    def _begin(self) -> tuple[BaseProcess, Connection]:
        ours, its = multiprocessing.Pipe()
        # Fork: this file may have come on standard input, which cannot be read again.
        child = multiprocessing.get_context("fork").Process(
            target=_answer, args=(self._make, its, ours), daemon=True
        )
        child.start()
        its.close()
        return child, ours

    def close(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            child, pipe = self._child
            self._child = None
            pipe.close()
            child.kill()
            child.join()


def _answer(make: Callable[[], Ask], pipe: Connection, others: Connection) -> None:
    """Answer questions from `pipe` until its other end closes; `others` is a copy of that end."""
    others.close()
    ask = make()
    while True:
        try:
            daemon, prefix = pipe.recv()
        except EOFError:
            os._exit(0)  # a normal exit would wait for librados, which may hang
        try:
            pipe.send((ask(daemon, prefix), None))
        except OSError as error:
            pipe.send((None, str(error)))


def main(arguments: list[str]) -> int:
    """Wait for `OSDS TIMEOUT_S`; print the seconds it took, or an error and return 1."""
    osds, timeout_s = int(arguments[0]), float(arguments[1])
    apart = Apart()
    try:
        took = wait(apart, osds, timeout_s, clock=time.monotonic, sleep=time.sleep)
    except (TimeoutError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        apart.close()
    print(f"{took:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
