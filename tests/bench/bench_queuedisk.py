"""Mean wait of the queue disk compared with M/G/1's at 80 % load, and lateness of its alarms.

The bench runs `queuedisk check` (docs/queue-disk.md) several times, each with its own seed of
arrivals. The check itself allows 10 %; late alarms show a machine that does not keep time.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
from scipy import stats

PROGRAM = Path(__file__).resolve().parents[2] / "dataplane" / "bin" / "queuedisk"
SEEDS = 4
REQUESTS = 4000
LIMIT_PERCENT = 10.0


def checked(seed: int) -> dict[str, float]:
    """Return the report of one check; a wait beyond the tolerance is a result, not an error."""
    done = subprocess.run(
        [str(PROGRAM), "check", "--requests", str(REQUESTS), "--seed", str(seed), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        raise SystemExit(f"{PROGRAM.name} check: {done.stderr.strip()}")
    report: dict[str, float] = json.loads(done.stdout)
    return report


def main() -> None:
    reports = [checked(seed) for seed in range(1, SEEDS + 1)]
    apart = 100 * np.array([report["relative_error"] for report in reports])
    half = stats.t.ppf(0.975, SEEDS - 1) * apart.std(ddof=1) / np.sqrt(SEEDS)
    alarm = 1e3 * np.array([report["overshoot_mean_s"] for report in reports])
    generator = 1e3 * np.array([report["generator_late_mean_s"] for report in reports])
    print(
        json.dumps(
            [
                {
                    "name": "queue disk: mean wait above M/G/1's at 80 % load",
                    "value": round(float(apart.mean()), 2),
                    "unit": "%",
                    "limit": LIMIT_PERCENT,
                    "n": SEEDS,
                    "note": f"95 % [{apart.mean() - half:.2f}, {apart.mean() + half:.2f}]; the "
                    f"load generator late by {generator.mean():.3f} ms",
                },
                {
                    "name": "queue disk: alarm late",
                    "value": round(float(alarm.mean()), 4),
                    "unit": "ms",
                    "limit": None,
                    "n": SEEDS,
                    "note": f"means of {alarm.min():.3f} to {alarm.max():.3f}",
                },
            ]
        )
    )


if __name__ == "__main__":
    main()
