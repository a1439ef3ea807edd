"""Wake-up delay of a virtual machine's processors, left to sleep and kept awake.

Rounds alternate between asleep and awake. A process sleeps 2 ms repeatedly and measures its
lateness, as in a load generator with a timetable.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from frame import Row, row, show, unmeasured
from scipy import stats

from testbed.sites.local.awake import kept_awake, wanted
from testbed.sites.local.cgroups import Cgroups, detect

ROUNDS = 10
SLEEPS = 1500
SLEEP_S = 0.002
STEAL = 7
CPU_FIELDS = 8


def lateness_ms() -> tuple[float, float]:
    """Return the 99th percentile of the lateness of sleeps in ms, and the stolen share of time."""
    late = np.empty(SLEEPS)
    before = cpu_times()
    for number in range(SLEEPS):
        due = time.perf_counter() + SLEEP_S
        time.sleep(SLEEP_S)
        late[number] = time.perf_counter() - due
    spent = cpu_times() - before
    return 1e3 * float(np.percentile(late, 99)), float(spent[STEAL] / max(spent.sum(), 1))


def cpu_times() -> np.ndarray:
    """Return the ticks of all processors: user nice system idle iowait irq softirq steal."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : CPU_FIELDS + 1]
    return np.array(line, dtype=float)


def interval(values: np.ndarray) -> str:
    """Return the 95 % confidence interval of the mean."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"[{values.mean() - half:.3g}, {values.mean() + half:.3g}]"


def main() -> None:
    cgroups = Cgroups(detect(), "hotbed-bench-awake")
    asleep, awake, refused = [], [], ""
    for _ in range(ROUNDS):
        asleep.append(lateness_ms())
        with kept_awake(cgroups) as done:
            if not done:
                refused = "control groups cannot be made here (root?)"
                break
            awake.append(lateness_ms())
    if refused:
        show([unmeasured("p99 of lateness, awake over asleep", refused)])
        return
    before, after = np.array(asleep), np.array(awake)
    machine = "a virtual machine" if wanted({}) else "no virtual machine: nothing to gain"
    measures = (
        ("p99 of lateness, asleep", before[:, 0], "ms"),
        ("p99 of lateness, awake", after[:, 0], "ms"),
        ("p99 of lateness, awake over asleep", after[:, 0] / before[:, 0], ""),
        ("stolen, asleep", 100 * before[:, 1], "%"),
        ("stolen, awake", 100 * after[:, 1], "%"),
    )
    show(averaged(name, values, unit, machine) for name, values, unit in measures)


def averaged(name: str, values: np.ndarray, unit: str, machine: str) -> Row:
    """Return a row without a limit, because machines differ."""
    note = f"95 %: {interval(values)}; {machine}"
    return row(name, float(values.mean()), unit, n=ROUNDS, note=note)


if __name__ == "__main__":
    main()
