"""An object server's probes on loopback (the paper's figure 11: below 10 ms for 4 pending writes),
to eight agents, each in its own process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frame import PROGRAMS, SMALL, Row, answer, not_built, row, show, unmeasured

SERVERS = 8
SCHEDULERS = (1, 4)
PROBES = 50 if SMALL else 1000
PROBE_LIMIT_MS = 2.0


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def agents(folder: Path, number: int) -> Iterator[dict[str, Path]]:
    """Start one agent process each on loopback; yield cluster files by the clients' scheduler."""
    key = folder / "key"
    key.touch(0o600)
    key.write_bytes(os.urandom(32))
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(number)]
    clusters = {name: folder / f"{name}.json" for name in ("both", "fixed")}
    for name, path in clusters.items():
        document = {
            "agents": addresses,
            "key_file": str(key),
            "scheduler": {"scheduler": name},
            "maintainer": {"off": True},
        }
        path.write_text(json.dumps(document))
    started = []
    try:
        for node in range(number):
            started.append(
                subprocess.Popen(
                    [
                        str(PROGRAMS / "twochoiced"),
                        *("--cluster", str(clusters["both"]), "--node", str(node)),
                        *("--folder", str(folder / str(node))),
                    ],
                    stderr=subprocess.DEVNULL,
                )
            )
        for address in addresses:
            wait_for(address)
        yield clusters
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=30)


def wait_for(address: str) -> None:
    """Wait until a process listens there."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def probes(cluster: Path) -> list[Row]:
    """Measure a collaborative probe of eight servers, as needed by four pending writes."""
    rows = []
    for schedulers in SCHEDULERS:
        found = answer(
            *("twochoicebench", "probe", "--cluster", str(cluster)),
            *("--servers", str(SERVERS), "--schedulers", str(schedulers)),
            *("--times", str(PROBES)),
            failed=True,
        )
        p99 = found["p99_seconds"]
        note = f"mean, loopback, agents as processes; {found['lost']} unanswered"
        note += "" if p99 is None else f"; 99th percentile {1e3 * p99:.2g} ms"
        several = "" if schedulers == 1 else "s at the same time"
        name = f"probe of {SERVERS} servers for 4 pending writes, {schedulers} scheduler{several}"
        mean_ms = 1e3 * found["mean_seconds"]
        rows.append(row(name, mean_ms, "ms", PROBE_LIMIT_MS, n=found["probes"], note=note))
    return rows


def main() -> None:
    """Print the rows."""
    if why := not_built("twochoiced", "twochoicebench"):
        show([unmeasured("two-choice protocol", why)])
        return
    with (
        tempfile.TemporaryDirectory(prefix="hotbed-bench-") as name,
        agents(Path(name), SERVERS) as clusters,
    ):
        show(probes(clusters["both"]))


if __name__ == "__main__":
    main()
