"""Time of nine nodes on this machine to come up, to return to a snapshot, and to go down, also
after a kill -9 of `up`. It needs root, and no other testbed may be up.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from frame import SMALL, row, show

TIMES = 1 if SMALL else 3
STATE = Path("/var/lib/hotbed-bench")
LIMITS_S: dict[str, float | None] = {
    "up": None,
    "snapshot": None,
    "back to the snapshot": 15.0,
    "down": 10.0,
    "down after up was killed": 10.0,
}
SPEC = """
name: bench
store: null
groups:
  - {name: admin, roles: [admin, client], cpus: 1.0, memory: 512MiB, network: 1Gbit}
  - name: osd
    count: 8
    roles: [osd]
    cpus: 0.5
    memory: 512MiB
    network: 200Mbit
    disk: {size: 1GiB, scratch: 0, positioning: 4ms, bandwidth: 40MB/s, queue_depth: 16}
"""


def main() -> None:
    """Print the rows: the slowest of each verb, and the median."""
    try:
        times, why = measured(), ""
    except LookupError as error:
        times, why = {}, str(error)
    rows = []
    for name, limit in LIMITS_S.items():
        made = sorted(times.get(name, ()))
        note = f"median {made[len(made) // 2]:.1f} s" if made else why
        value = made[-1] if made else None
        slowest = f"nine nodes on this machine, {name} (slowest)"
        rows.append(row(slowest, value, "s", limit, n=len(made), note=note))
    show(rows)


def measured() -> dict[str, list[float]]:
    """Return the seconds of each verb, by name. LookupError: no measurement is possible here."""
    from testbed.choose import existing

    if os.geteuid() != 0:
        raise LookupError("the local site needs root: sudo make bench")
    if existing():
        raise LookupError("another testbed is up: hotbed down --all")
    times: dict[str, list[float]] = {name: [] for name in LIMITS_S}
    os.environ["HOTBED_STATE"] = str(STATE)
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "bench.yaml"
        spec.write_text(SPEC)
        hotbed("up", spec)  # this creates the nodes' image if it is missing
        hotbed("down", "--all")
        try:
            for turn in range(TIMES):
                once(spec, times, killed_after_s=0.5 + turn * 0.5)
        finally:
            hotbed("down", "--all")
            shutil.rmtree(STATE, ignore_errors=True)
    return times


def once(spec: Path, times: dict[str, list[float]], *, killed_after_s: float) -> None:
    """Run each verb once and add its time to `times`; then run `up` again and kill it."""
    from testbed.sites.local import LocalSite

    times["up"].append(taken(lambda: hotbed("up", spec)))
    site = LocalSite()
    times["snapshot"].append(taken(lambda: site.snapshot("bench", "clean")))
    times["back to the snapshot"].append(taken(lambda: site.restore("bench", "clean")))
    times["down"].append(taken(lambda: hotbed("down")))
    process = subprocess.Popen(
        words("up", spec), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(killed_after_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    times["down after up was killed"].append(taken(lambda: hotbed("down", "--all")))


def taken(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def hotbed(*arguments: object) -> None:
    """Run the command line, which starts Python as a person's command would."""
    done = subprocess.run(words(*arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"hotbed {arguments}: {done.stderr[-500:]}")


def words(*arguments: object) -> list[str]:
    """Return the words of a Hotbed command."""
    return [sys.executable, "-m", "hotbed.cli", *map(str, arguments)]


if __name__ == "__main__":
    main()
