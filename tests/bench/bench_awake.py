"""Wake-up delay of a virtual machine's processors, left to sleep and kept awake.

Rounds alternate between asleep and awake. A process sleeps 2 ms repeatedly and measures its
lateness, as in a load generator with a timetable.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

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
        print(json.dumps([row("p99 of lateness, awake over asleep", None, "", refused)]))
        return
    before, after = np.array(asleep), np.array(awake)
    machine = "a virtual machine" if wanted({}) else "no virtual machine: nothing to gain"
    told = [
        row("p99 of lateness, asleep", before[:, 0], "ms", machine),
        row("p99 of lateness, awake", after[:, 0], "ms", machine),
        row("p99 of lateness, awake over asleep", after[:, 0] / before[:, 0], "", machine),
        row("stolen, asleep", 100 * before[:, 1], "%", machine),
        row("stolen, awake", 100 * after[:, 1], "%", machine),
    ]
    print(json.dumps(told))


def row(name: str, values: np.ndarray | None, unit: str, note: str) -> dict[str, Any]:
    """Return a result for `hotbed bench`, without a limit because machines differ."""
    if values is None:
        return {"name": name, "value": None, "unit": unit, "limit": None, "n": 0, "note": note}
    note = f"95 %: {interval(values)}; {note}"
    value = float(values.mean())
    return {"name": name, "value": value, "unit": unit, "limit": None, "n": ROUNDS, "note": note}


if __name__ == "__main__":
    main()
