"""Time to make the report of 1000 runs (synthetic folders, real analysis)."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))

from frame import row, show
from synthetic import cells, write_campaign

from analysis.core.report import build

RUNS = 1000


def main() -> None:
    """Print the result."""
    per_block = sum(1 for _ in cells())
    with tempfile.TemporaryDirectory() as folder:
        artifacts = Path(folder)
        write_campaign(artifacts, blocks=-(-RUNS // per_block))
        start = time.perf_counter()
        report = build(artifacts, "dlr-full")
        seconds = time.perf_counter() - start
    show([row(f"report from {report.runs} runs", seconds, "s", 20.0)])


if __name__ == "__main__":
    main()
