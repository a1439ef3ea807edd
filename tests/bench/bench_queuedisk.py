"""Mean wait of the queue disk compared with M/G/1's at 80 % load, and lateness of its alarms.

The bench runs `queuedisk check` (docs/queue-disk.md) several times, each with its own seed of
arrivals. The check itself allows 10 %; late alarms show a machine that does not keep time.
"""

from __future__ import annotations

import numpy as np
from frame import answer, row, show
from scipy import stats

SEEDS = 4
REQUESTS = 4000
LIMIT_PERCENT = 10.0


def main() -> None:
    """Print the rows; a wait beyond the check's tolerance is a result, not an error."""
    words = ("check", "--requests", str(REQUESTS), "--json", "--seed")
    reports = [answer("queuedisk", *words, str(seed), failed=True) for seed in range(1, SEEDS + 1)]
    apart = 100 * np.array([report["relative_error"] for report in reports])
    half = stats.t.ppf(0.975, SEEDS - 1) * apart.std(ddof=1) / np.sqrt(SEEDS)
    alarm = 1e3 * np.array([report["overshoot_mean_s"] for report in reports])
    generator = 1e3 * np.array([report["generator_late_mean_s"] for report in reports])
    note = (
        f"95 % [{apart.mean() - half:.2f}, {apart.mean() + half:.2f}]; the load generator late by "
        f"{generator.mean():.3f} ms"
    )
    name, late = "queue disk: mean wait above M/G/1's at 80 % load", round(float(alarm.mean()), 4)
    wait = round(float(apart.mean()), 2)
    means = f"means of {alarm.min():.3f} to {alarm.max():.3f}"
    show(
        [
            row(name, wait, "%", LIMIT_PERCENT, n=SEEDS, note=note),
            row("queue disk: alarm late", late, "ms", n=SEEDS, note=means),
        ]
    )


if __name__ == "__main__":
    main()
