"""Share of the throughput of random reads that is lost while a testbed is watched.

One benchmark of the objects that cells of DLR read runs all the time. Windows in which `hotbed ui`
(and Prometheus, if the spec has `metrics: true`) reads the testbed alternate with windows without,
in random order within each pair, so that slow changes of the machine meet both. Each window begins
with empty caches, as a cell does, so that disks and not processors limit it. It needs a testbed
with Ceph that is up.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
from frame import SMALL, row, show, unmeasured, with_store
from scipy import stats

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed
    from workloads.rados_bench import BenchResult

PAIRS = 2 if SMALL else 28
WINDOW_S = 60.0
SETTLE_S = 14.0  # of a window, in which caches are emptied, and the watch starts (11 s) or ends
OBJECT_BYTES, CONCURRENCY = 4 * 2**20, 16  # as in cells of DLR
LIMIT = 0.02
NAME = "throughput of reads lost while hotbed ui reads the testbed"
UNITS = ("hotbed-metrics", "hotbed-prometheus")


def main() -> None:
    """Print the lost share, with its 95 % interval."""
    try:
        lost, note = with_store("mon", measured, "testbed/specs/dlr.yaml")
    except LookupError as error:
        show([unmeasured(NAME, str(error), "", LIMIT)])
        return
    half = stats.t.ppf(0.975, len(lost) - 1) * lost.std(ddof=1) / np.sqrt(len(lost))
    note += f"; 95 %: [{lost.mean() - half:.4f}, {lost.mean() + half:.4f}]"
    show([row(NAME, float(lost.mean()), "", LIMIT, n=len(lost), note=note)])


def measured(testbed: Testbed) -> tuple[np.ndarray, str]:
    """Return the lost share of each pair of windows, and the rate without the watch in words."""
    from testbed.client import agent_client
    from testbed.deploy.roles import spec_of
    from workloads import rados_bench
    from workloads.prefill import disk_bound_iops, plan_prefill, prefill, usable_bytes
    from workloads.rados_bench import RadosBench

    agent, client = agent_client(testbed), testbed.with_role("client")[0].name
    disks, pool = list(spec_of(testbed).osd_disks()), spec_of(testbed).ceph().pools[0]
    objects = plan_prefill(
        object_size=OBJECT_BYTES,
        duration_s=90.0,
        max_iops=disk_bound_iops(disks, OBJECT_BYTES),
        usable=usable_bytes(disks, pool.size),
        concurrency=CONCURRENCY,
    )
    prefill(agent, client, pool.name, objects)
    windows = [on for _ in range(PAIRS) for on in random.sample([True, False], 2)]
    bench = RadosBench(
        op="rand",
        pool=pool.name,
        run_name=objects.run_name,
        object_size=OBJECT_BYTES,
        concurrency=CONCURRENCY,
        duration_s=(len(windows) + 0.5) * WINDOW_S,
    )
    begun, failed, begins = threading.Event(), threading.Event(), list[float]()

    def take_turns() -> None:
        begun.wait()
        begins.extend(time.time() + WINDOW_S * place for place in range(len(windows)))
        for on, begin in zip(windows, begins, strict=True):
            with watched(testbed) if on else nullcontext():
                agent.call("caches", {}, timeout_s=WINDOW_S)
                if failed.wait(max(0.0, begin + WINDOW_S - time.time())):
                    return

    turns = threading.Thread(target=take_turns)
    turns.start()
    try:
        result = rados_bench.run(agent, client, bench, started=lambda _: begun.set())
    except BaseException:
        failed.set()
        raise
    finally:
        begun.set()
        turns.join()
    rates = np.array([rate(result, wall + SETTLE_S, wall + WINDOW_S) for wall in begins])
    on = np.array(windows)
    with_watch, without = rates[on], rates[~on]
    return 1 - with_watch / without, f"of {without.mean():.1f} MB/s"


@contextmanager
def watched(testbed: Testbed) -> Iterator[None]:
    """Let the live view, and Prometheus if it is there, read the testbed inside the context."""
    from testbed.reach import shell_to

    shell = shell_to(testbed, testbed.admin)
    words = ["ui", "--no-browser", "--port", "0", "--testbed", testbed.name]
    shell.run(["systemctl", "start", *UNITS], timeout_s=20, check=False)
    view = subprocess.Popen([sys.executable, "-m", "hotbed.cli", *words], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        view.terminate()
        view.wait()
        shell.run(["systemctl", "stop", *UNITS], timeout_s=20, check=False)


def rate(result: BenchResult, begin: float, end: float) -> float:
    """Return the mean throughput in MB/s between two epochs."""
    seconds = [each for each in result.series if each.wall and begin <= each.wall < end]
    return float(np.mean([each.throughput_mb_s for each in seconds]))


if __name__ == "__main__":
    main()
