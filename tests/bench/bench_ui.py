"""First paint of `hotbed ui` with 1,000 runs, in Debian's Chromium."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from frame import SMALL, row, show, unmeasured

from tests.hotbed.ui_browser import CHROMIUM, chromium, go, window
from tests.hotbed.ui_world import runs, served

TIMES = 2 if SMALL else 10
RUNS = 1000
LIMIT_S = 2.0
NAME = f"first paint of the page of {RUNS} runs"
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    """Print the median time from a reload to the first paint, and to the first rows."""
    if CHROMIUM is None:
        show([unmeasured(NAME, "needs Debian's package chromium", "s", LIMIT_S)])
        return
    paints, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        runs(Path(folder), RUNS)
        with (
            served(Path(folder)) as address,
            chromium() as browser,
            window(browser, address) as page,
        ):
            go(page, "runs")
            page.get_by_text(f"{RUNS + 1} of {RUNS + 1} attempts").wait_for()
            for _ in range(TIMES):
                page.reload(wait_until="commit")
                page.locator(".tabulator-row").first.wait_for()
                rows.append(float(page.evaluate("() => performance.now()")) / 1e3)
                paints.append(float(page.evaluate(_PAINT)) / 1e3)
    note = f"longest {max(paints):.2f} s"
    show(
        [
            row(NAME, float(np.median(paints)), "s", LIMIT_S, n=TIMES, note=note),
            row("rows of that page", float(np.median(rows)), "s", n=TIMES),
        ]
    )


if __name__ == "__main__":
    main()
