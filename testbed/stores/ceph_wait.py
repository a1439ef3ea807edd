"""Waits until a Ceph cluster serves: HEALTH_OK, all OSDs up, every placement group active+clean.

Runs on the admin node, from the agent's bundle (``python3 -m testbed.stores.ceph_wait OSDS
TIMEOUT_S``) or on standard input of ``python3 -`` (the role ceph). Standard library and rados only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Ask = Callable[[str, str], Mapping[str, Any]]
"""(daemon, command) to its JSON answer, daemon being ``mon`` or ``mgr``; raises OSError when it is
not answered."""

POLL_S = 0.1
COMMAND_S = 5


def what_is_missing(ask: Ask, osds: int) -> str | None:
    """What a cluster still lacks, in words; None when it serves.

    After a restart the monitors show what the last manager told them, for as long as half a minute.
    So placement groups are asked of the manager itself: a new one knows only what living OSDs have
    reported to it.
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
    """Poll until the cluster serves; the seconds it took.

    Raises:
        TimeoutError: with what was still missing.
    """
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
    """Asks the cluster of /etc/ceph/ceph.conf, connecting at the first question that finds it."""
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
                    # Not by itself: nine file descriptors and four threads would stay, of each
                    # attempt, and librados ends a process that has none left.
                    cluster.shutdown()
                    raise
                connected.append(cluster)
            command = json.dumps({"prefix": prefix, "format": "json"})
            call = getattr(connected[0], f"{daemon}_command")
            code, output, message = call(command, b"", timeout=COMMAND_S)
        except rados.Error as error:  # no OSError of Python's
            raise OSError(str(error)) from error
        if code != 0:
            raise OSError(abs(code), message)
        answer: Mapping[str, Any] = json.loads(output)
        return answer

    return ask


def main(arguments: list[str]) -> int:
    """``OSDS TIMEOUT_S``: prints the seconds it took, or a sentence and returns 1."""
    osds, timeout_s = int(arguments[0]), float(arguments[1])
    try:
        took = wait(asker(), osds, timeout_s, clock=time.monotonic, sleep=time.sleep)
    except TimeoutError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{took:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
