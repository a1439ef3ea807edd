"""Redirect table at 100,000 live entries: create, query, memory, and its log on a disk.

The table's times are processor times, so that other load on the machine does not count (the paper's
figure 12: below 5 ms each). HOTBED_BENCH_SMALL=1 takes fewer operations.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

DATAPLANE = Path(__file__).resolve().parents[2] / "dataplane"
SMALL = bool(os.environ.get("HOTBED_BENCH_SMALL"))
OPERATIONS = 20_000 if SMALL else 300_000
COMMITS = 20 if SMALL else 300
REWRITES = 1 if SMALL else 5
LIMIT_US = 20.0
LIVE = "100,000 live entries"

Found = dict[str, dict[str, float]]


def parse(output: str) -> Found:
    """Parse {name: {unit: value}} from `go test -bench` output, without the `-N` of cores."""
    found: Found = {}
    for line in output.splitlines():
        match = re.match(r"Benchmark(\S+?)(?:-\d+)?\s+(\d+)\s(.*)", line)
        if match:
            pairs = re.findall(r"([\d.e+-]+) (\S+)", match[3])
            found[match[1]] = {unit: float(value) for value, unit in pairs} | {"n": float(match[2])}
    return found


def run(package: str, pattern: str, operations: int) -> tuple[Found, str]:
    """Run a package's benchmarks; return the results and the error."""
    done = subprocess.run(
        [
            *("../tools/go", "test", "-run", "^$", "-bench", pattern),
            *("-benchtime", f"{operations}x", package),
        ],
        cwd=DATAPLANE,
        capture_output=True,
        text=True,
        check=False,
    )
    return parse(done.stdout), (done.stdout + done.stderr).strip()[-200:]


def table_rows(found: Found, problem: str) -> list[dict[str, Any]]:
    """Return rows of create and query in one object and in 1000, and of memory."""
    rows: list[dict[str, Any]] = []
    for what in ("create", "query"):
        name = f"redirect {what} at {LIVE}"
        times = {objects: found.get(f"Redirect/{what}/{objects}") for objects in ("1", "1000")}
        known = {objects: values for objects, values in times.items() if values}
        if len(known) < len(times):
            rows.append({"name": name, "value": None, "note": f"no Go benchmark: {problem}"})
            continue
        note = ", ".join(
            f"{values['cpu-us/op']:.2g} us in {objects} object{'s' * (objects != '1')}"
            for objects, values in known.items()
        )
        rows.append(
            {
                "name": name,
                "value": max(values["cpu-us/op"] for values in known.values()),
                "unit": "us",
                "limit": LIMIT_US,
                "n": int(sum(values["n"] for values in known.values())),
                "note": f"processor time, mean; {note}",
            }
        )
    sizes = {o: found.get(f"RedirectMemory/{o}", {}).get("B/entry") for o in (1, 1000, 100_000)}
    row: dict[str, Any] = {
        "name": f"redirect table, memory of an entry at {LIVE}",
        "value": sizes[1],
    }
    note = ", ".join(f"{size:.0f} B in {o} objects" for o, size in sizes.items() if size)
    rows.append(row | {"unit": "B", "limit": None, "n": 1, "note": note or problem})
    return rows


def log_rows(found: Found, problem: str) -> list[dict[str, Any]]:
    """Return rows of a durable create, and of rewriting and reading the log."""
    rows = []
    for bench, what in (
        ("Commit", f"redirect create, durable in the log, at {LIVE}"),
        ("Compact", f"redirect log of {LIVE}, rewritten"),
        ("Open", f"redirect log of {LIVE}, read after a restart"),
    ):
        values = found.get(bench)
        row: dict[str, Any] = {"name": what, "value": None, "note": problem}
        if values:
            size, processor = values.get("B/entry"), values.get("cpu-ms/op")
            note = "wall time" + (f"; {processor:.3g} ms of processor time" if processor else "")
            note += f"; {size:.0f} B of the file an entry" if size else ""
            row |= {"value": values["ns/op"] / 1e6, "n": int(values["n"]), "note": note}
        rows.append(row | {"unit": "ms", "limit": None})
    return rows


def main() -> None:
    """Print the rows as JSON."""
    rows = table_rows(*run("./twochoice", "^BenchmarkRedirect", OPERATIONS))
    log = "./twochoice/filestore"
    found, problem = run(log, "^BenchmarkCommit$", COMMITS)
    more, worse = run(log, "^Benchmark(Compact|Open)$", REWRITES)
    print(json.dumps(rows + log_rows(found | more, problem or worse)))


if __name__ == "__main__":
    main()
