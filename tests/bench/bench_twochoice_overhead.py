"""Cost of scheduling for a 4 MiB write without stragglers, on disks that are queues.

Eight object servers on loopback have a queue disk each that writes 50 MB/s (a compute node's rate
to a storage node in section VI.A). Rounds with both strategies and with fixed placement alternate
on the same servers: the paper reports 2 to 3 %. If a busy machine makes the rounds' interval wider,
the result is void and the row says so. A second row is the time of probing per write: the full
overhead of a write that stays at home, not a difference of two large numbers. Needs root, FUSE and
loop devices.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench_twochoice_protocol import SERVERS, agents
from frame import SMALL, Row, answer, not_built, row, show, unmeasured

NAME = "two-choice, overhead at 4 MiB writes without stragglers"
SHARE_NAME = "two-choice, what probing takes of 4 MiB writes without stragglers"
LIMIT_PERCENT = 3.0
ROUNDS = 2 if SMALL else 30
WRITES = 2 if SMALL else 6
DISK = {
    "size": "1GiB",
    "scratch": 0,
    "positioning": "4ms",
    "bandwidth": "50MB/s",
    "queue_depth": 32,
}


@contextmanager
def mounted(folder: Path, number: int) -> Iterator[None]:
    """Mount a file system on a queue disk at each of the agents' folders."""
    from testbed.sites.local.disk import LocalDisk
    from testbed.sites.local.process import run
    from testbed.spec import DiskSpec

    spec = DiskSpec.model_validate(DISK)
    with ExitStack() as stack:
        for place in range(number):
            home = folder / f"disk-{place}"
            home.mkdir()
            layer = home / "layer"
            with layer.open("wb") as file:
                file.truncate(int(spec.size))
            disk = LocalDisk(home, spec)
            stack.callback(disk.stop)
            device = f"{disk.start([layer], [])}p1"
            disk.command({"op": "shape", "on": False})
            run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", device)
            point = folder / str(place)
            point.mkdir()
            run("mount", "-o", "noatime", device, str(point))
            stack.callback(run, "umount", str(point))
            disk.command({"op": "shape", "on": True})
        yield


def overhead(clusters: dict[str, Path]) -> Row:
    """Measure the extra cost of a write over fixed placement; rounds alternate."""
    took: dict[str, list[float]] = {name: [] for name in clusters}
    redirected = 0
    for turn in range(ROUNDS):
        for name in sorted(clusters, reverse=turn % 2 == 1):
            found = answer(
                *("twochoicebench", "write", "--cluster", str(clusters[name])),
                *("--processes", "1", "--writes", str(WRITES), "--size", "4MiB"),
                *("--file", f"overhead-{turn}"),
                failed=True,
            )
            took[name].append(found["seconds"] / found["writes"])
            redirected += found["redirected"]
    logs = [math.log(b / f) for b, f in zip(took["both"], took["fixed"], strict=True)]
    mean, half = statistics.fmean(logs), 2 * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = (100 * (math.exp(mean + side * half) - 1) for side in (-1, 1))
    means = {name: 1e3 * statistics.fmean(times) for name, times in took.items()}
    sure = 100 * half <= LIMIT_PERCENT
    why = "" if sure else "the machine is too busy for a result: "
    return row(
        NAME,
        100 * (math.exp(mean) - 1) if sure else None,
        "%",
        LIMIT_PERCENT,
        n=len(logs),
        note=f"{why}paired rounds of {WRITES} writes to queue disks of 50 MB/s: "
        f"{means['both']:.4g} ms against {means['fixed']:.4g} ms fixed, mean ratio's 95 % interval "
        f"{low:.2g} to {high:.2g} %; {redirected} writes redirected",
    )


def probing(cluster: Path, folder: Path) -> Row:
    """Measure the time of probing per write with both strategies, one after another."""
    plan = folder / "plan.json"
    app = {"name": "probing", "writes": ROUNDS * WRITES // 2, "size": 4 << 20}
    plan.write_text(json.dumps({"nodes": 1, "processes": 1, "apps": [app]}))
    found = answer(
        "twochoicebench", "apps", "--cluster", str(cluster), "--plan", str(plan), failed=True
    )
    probe, write = found["steps"]["probe"], found["apps"][0]["latency"]
    share = 100 * probe["mean"] / (write["mean"] - probe["mean"])
    note = (
        f"probes {1e3 * probe['mean']:.3g} ms of writes of {1e3 * write['mean']:.4g} ms in the "
        f"mean; {found['apps'][0]['redirected']} of them redirected"
    )
    return row(SHARE_NAME, share, "%", LIMIT_PERCENT, n=write["n"], note=note)


def why_not() -> str:
    """Return the reason why no measurement is possible here."""
    if why := not_built("twochoiced", "twochoicebench", "queuedisk"):
        return why
    if os.geteuid() != 0:
        return "needs root, for disks that are queues"
    return "" if Path("/dev/fuse").exists() else "needs FUSE (no /dev/fuse): modprobe fuse"


def main() -> None:
    """Print the rows."""
    if why := why_not():
        show([unmeasured(NAME, why)])
        return
    with tempfile.TemporaryDirectory(prefix="hotbed-bench-") as name:
        folder = Path(name)
        with mounted(folder, SERVERS), agents(folder, SERVERS) as clusters:
            # Only first writes do this: they load the tables of the file systems into memory.
            for path in clusters.values():
                answer(
                    *("twochoicebench", "write", "--cluster", str(path), "--processes", "8"),
                    *("--size", "4MiB", "--file", f"first-{path.stem}"),
                )
            show([overhead(clusters), probing(clusters["both"], folder)])


if __name__ == "__main__":
    main()
