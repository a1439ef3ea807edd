"""Redirect table at 100,000 live entries: create, query, memory, and its log on a disk.

The table's times are processor times, so that other load on the machine does not count (the paper's
figure 12: below 5 ms each).
"""

from __future__ import annotations

from frame import SMALL, Found, Row, go_benchmarks, row, show, unmeasured

OPERATIONS = 20_000 if SMALL else 300_000
COMMITS = 20 if SMALL else 300
REWRITES = 1 if SMALL else 5
LIMIT_US = 20.0
LIVE = "100,000 live entries"


def table_rows(found: Found, problem: str) -> list[Row]:
    """Return rows of create and query in one object and in 1000, and of memory."""
    rows = []
    for what in ("create", "query"):
        name = f"redirect {what} at {LIVE}"
        times = {objects: found.get(f"Redirect/{what}/{objects}") for objects in ("1", "1000")}
        known = {objects: values for objects, values in times.items() if values}
        if len(known) < len(times):
            rows.append(unmeasured(name, f"no Go benchmark: {problem}", "us", LIMIT_US))
            continue
        note = ", ".join(
            f"{values['cpu-us/op']:.2g} us in {objects} object{'s' * (objects != '1')}"
            for objects, values in known.items()
        )
        slowest = max(values["cpu-us/op"] for values in known.values())
        n = int(sum(values["n"] for values in known.values()))
        rows.append(row(name, slowest, "us", LIMIT_US, n=n, note=f"processor time, mean; {note}"))
    sizes = {o: found.get(f"RedirectMemory/{o}", {}).get("B/entry") for o in (1, 1000, 100_000)}
    note = ", ".join(f"{size:.0f} B in {o} objects" for o, size in sizes.items() if size)
    name = f"redirect table, memory of an entry at {LIVE}"
    return [*rows, row(name, sizes[1], "B", note=note or problem)]


def log_rows(found: Found, problem: str) -> list[Row]:
    """Return rows of a durable create, and of rewriting and reading the log."""
    rows = []
    for bench, name in (
        ("Commit", f"redirect create, durable in the log, at {LIVE}"),
        ("Compact", f"redirect log of {LIVE}, rewritten"),
        ("Open", f"redirect log of {LIVE}, read after a restart"),
    ):
        values = found.get(bench)
        if not values:
            rows.append(unmeasured(name, problem, "ms"))
            continue
        size, processor = values.get("B/entry"), values.get("cpu-ms/op")
        note = "wall time" + (f"; {processor:.3g} ms of processor time" if processor else "")
        note += f"; {size:.0f} B of the file an entry" if size else ""
        rows.append(row(name, values["ns/op"] / 1e6, "ms", n=int(values["n"]), note=note))
    return rows


def main() -> None:
    """Print the rows."""
    rows = table_rows(*go_benchmarks("./twochoice", "^BenchmarkRedirect", OPERATIONS))
    log = "./twochoice/filestore"
    found, problem = go_benchmarks(log, "^BenchmarkCommit$", COMMITS)
    more, worse = go_benchmarks(log, "^Benchmark(Compact|Open)$", REWRITES)
    show(rows + log_rows(found | more, problem or worse))


if __name__ == "__main__":
    main()
