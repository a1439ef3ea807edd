"""Ursa: seconds to decide, memory, and cost relative to the lower bound, on the three kinds of
data.

Every measurement has its own process, which reads the instance, compiles its loops and then decides
several times. The median of the totals counts, without generation, reading and compilation. Only
the sizes 10K-10M and 100K-100M have limits. Further rows: other methods, the limits of any choice
of objects, growth with the size, and Ceph's own balancer (`osdmaptool`).
`bench_ursa_incremental.py` measures consecutive rounds."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import osdmaptool
from frame import Row, row, show

from controllers.ursa.io import load_instance
from controllers.ursa.run import generate_file, peak_rss_mib, plan_instance

SIZE = ("10K", "10M")
LARGE = ("100K", "100M")
SEED = 1
REPEAT = 3
Limits = dict[str, float | None]
LIMITS: dict[tuple[str, str], dict[str, Limits]] = {
    SIZE: {
        "s1": {"s": 0.6, "gap": 0.05, "joint": 1.5, "mib": 1024.0},
        "s2": {"s": 1.5, "gap": 0.4, "joint": 1.5, "mib": 1024.0},
        "s3": {"s": 1.5, "gap": 0.4, "joint": None, "mib": 1024.0},
    },
    LARGE: {
        "s1": {"s": 6.0, "mib": 4096.0},
        "s2": {"s": 20.0, "mib": 4096.0},
        "s3": {"s": 40.0, "mib": 4096.0},
    },
}
LARGE_S1 = "ursa alp-fast s1 100K-100M, decision"
KINDS = ("s1", "s2", "s3")
LARGE_GIB = 8.0
"""Free memory and file space needed to try the large size."""
LIGHT_TAIL = 3.0
"""Ratio of the heaviest load to the lightest in a second instance of each kind. Hot nodes must then
give away many objects instead of a few heavy ones, which is harder for ALP."""
GRACE_S = 300.0
OTHERS = {"ilp": 60.0, "joint": 120.0, "alp": 600.0, "htoc": 60.0, "sa": 60.0}
"""Methods compared with ALP in the same run, and the seconds for each."""
SIZES = (("100", "100K"), ("300", "300K"), ("1K", "1M"), ("3K", "3M"), SIZE)


def child(path: Path, method: str, repeat: int, limit_s: float | None) -> None:
    """Decide `repeat` times; print the last summary with all totals."""
    instance = load_instance(path)
    plans, processor = [], []
    for _ in range(repeat):
        start = time.process_time()
        plans.append(plan_instance(instance, method, time_limit_s=limit_s, seed=SEED))
        processor.append(time.process_time() - start)
    summary = plans[-1].summary
    summary["processor_s"] = min(processor)
    summary["load_average"] = os.getloadavg()[0]
    summary["totals"] = [plan.summary["decision_seconds"]["total"] for plan in plans]  # type: ignore[index]
    summary["still_hot"] = len(plans[-1].still_hot)
    summary["peak_rss_mib"] = peak_rss_mib()
    print(json.dumps(summary))


def decide(path: Path, method: str, repeat: int = 1, limit_s: float | None = None) -> Row:
    """Return the summary of `method`, from its own process; {"error"} if it failed."""
    words = [sys.executable, __file__, "--child", str(path), method, str(repeat)]
    try:
        done = subprocess.run(
            words + ([] if limit_s is None else [str(limit_s)]),
            capture_output=True,
            text=True,
            check=False,
            timeout=GRACE_S + 2 * (limit_s or GRACE_S),
        )
    except subprocess.TimeoutExpired as error:
        return {"error": f"had not decided after {error.timeout:.0f} s"}
    try:
        summary: Row = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return summary


def alp_fast(kind: str, size: str, found: Row, limits: Limits) -> list[Row]:
    """Return rows of our best method."""
    name = f"ursa alp-fast {kind} {size}"
    if "error" in found:
        return [row(f"{name}, decision", None, "s", limits.get("s"), note=found["error"])]
    phases = ", ".join(
        f"{phase} {seconds:.3f}"
        for phase, seconds in found["decision_seconds"].items()
        if phase != "total" and "." not in phase
    )
    counts = f"{found['hot_before']} hot, {found['hot_after_swaps']} after {found['swaps']} swaps"
    totals = found["totals"]
    beyond = found["peak_rss_mib"] - found["input_mib"]
    gap = None if found["gap"] is None else 100 * found["gap"]
    return [
        row(
            f"{name}, decision",
            statistics.median(totals),
            "s",
            limits.get("s"),
            n=len(totals),
            note=f"median, {min(totals):.3f} to {max(totals):.3f}; last: {phases}; "
            f"{found['processor_s']:.2f} s of processor time, at a load average of "
            f"{found['load_average']:.1f} on {os.cpu_count()} processors",
        ),
        row(
            f"{name}, memory beyond the input",
            beyond,
            "MiB",
            limits.get("mib"),
            note=f"input {found['input_mib']:.0f} MiB; interpreter and libraries included",
        ),
        row(f"{name}, nodes still hot", found["hot_after"], "", 0.0, note=counts),
        row(
            f"{name}, cost above the bound",
            gap,
            "%",
            limits.get("gap"),
            note=f"{found['moves']} moves, cost {found['cost']:.6g}, "
            f"bound {found['lower_bound'] or float('nan'):.6g} for the same selection",
        ),
    ]


def beside(kind: str, size: str, ours: Row, found: Row, limits: Limits) -> list[Row]:
    """Return rows of another method: its cost over ALP; for `joint`, the bounds on any choice."""
    method = found.get("method", "?")
    if "error" in found:
        return [row(f"ursa {method} {kind} {size}", None, "x", None, note=found["error"])]
    seconds = found["decision_seconds"]["total"]
    note = (
        f"{seconds:.2f} s against {statistics.median(ours['totals']):.2f} s, {found['moves']} "
        f"moves, cost {found['cost']:.6g}, {found['hot_after']} hot"
    )
    if method == "joint":
        return joint(f"{kind} {size}", ours, found, limits.get("joint"), note)
    ratio = found["cost"] / ours["cost"] if ours["cost"] else None
    return [row(f"ursa {method} {kind} {size}, cost over alp-fast's", ratio, "x", None, note=note)]


def joint(what: str, ours: Row, found: Row, limit: float | None, note: str) -> list[Row]:
    """Compare ALP with every choice of hot nodes' objects, and `joint` with every plan."""
    chosen, every = found["notes"].get("hot_nodes_only_bound"), found["lower_bound"]
    return [
        row(
            f"ursa alp-fast {what}, cost above the joint bound",
            100 * (ours["cost"] / chosen - 1) if chosen else None,
            "%",
            limit,
            note=f"bound {chosen or float('nan'):.6g} on every choice of objects that go from hot "
            "nodes to nodes with room",
        ),
        row(
            f"ursa joint {what}, cost above the bound over all plans",
            100 * (found["cost"] / every - 1) if every else None,
            "%",
            None,
            note=f"objects may also leave other nodes to make room; bound {every or 0:.6g}; {note}",
        ),
    ]


def measure(folder: Path, kind: str) -> list[Row]:
    """Measure all rows of one kind of data."""
    text, limits = "-".join(SIZE), LIMITS[SIZE][kind]
    path = folder / f"{kind}.npz"
    ours = generated(path, kind, SIZE)
    rows = alp_fast(kind, text, ours, limits)
    for method in OTHERS if "error" not in ours else []:
        say(f"{kind} {text}: {method}")
        found = {"method": method} | decide(path, method, 1, OTHERS[method])
        rows += beside(kind, text, ours, found, limits)
    light = generated(path, kind, SIZE, load_max=LIGHT_TAIL)
    rows += alp_fast(f"{kind} (loads at most {LIGHT_TAIL:g}:1)", text, light, limits)
    path.unlink()
    return rows


def generated(path: Path, kind: str, size: tuple[str, str], **changes: float) -> Row:
    """Return the summary of ALP on a new instance, which stays at `path`."""
    text = " ".join(
        [kind, "-".join(size), *(f"{name} {value:g}" for name, value in changes.items())]
    )
    say(f"{text}: generating")
    path.unlink(missing_ok=True)
    generate_file(path, kind=kind, nodes=size[0], partitions=size[1], seed=SEED, **changes)
    say(f"{text}: alp-fast")
    return decide(path, "alp-fast", REPEAT)


def large(folder: Path) -> list[Row]:
    """Measure ALP at 100K-100M, one kind after the other; report in a row if space is missing."""
    rows: list[Row] = []
    text = "-".join(LARGE)
    for kind in KINDS:
        room = min(available_gib(), shutil.disk_usage(folder).free / 2**30)
        limits = LIMITS[LARGE][kind]
        if room < LARGE_GIB:
            note = f"needs {LARGE_GIB:g} GiB of memory and disk; {room:.1f} GiB are free"
            rows.append(row(f"ursa alp-fast {kind} {text}", None, "s", limits["s"], note=note))
            continue
        path = folder / "large.npz"
        rows += alp_fast(kind, text, generated(path, kind, LARGE), limits)
        path.unlink(missing_ok=True)
    return rows


def available_gib() -> float:
    """Return the memory that can be used without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return 0.0


Point = tuple[int, float]
"""Partitions, and seconds of a decision."""


def measured(folder: Path) -> list[Point]:
    """Measure ALP on S1 of several sizes, 1000 partitions per node."""
    points = []
    for size in SIZES:
        path = folder / "scaling.npz"
        say(f"s1 {'-'.join(size)}: scaling")
        facts = generate_file(path, kind="s1", nodes=size[0], partitions=size[1], seed=SEED)
        found = decide(path, "alp-fast", REPEAT)
        if "error" not in found:
            points.append((int(str(facts["partitions"])), statistics.median(found["totals"])))
        path.unlink()
    return points


def scaling(points: list[Point]) -> Row:
    """Fit the exponent of seconds against partitions."""
    name = "ursa alp-fast s1, seconds ~ partitions^x"
    if len(points) < 2:
        return row(name, None, "", None, note="fewer than two sizes could be measured")
    x, y = np.log(np.array(points)).T
    exponent = float(np.polyfit(x, y, 1)[0])
    note = ", ".join(f"{partitions}: {seconds:.4f} s" for partitions, seconds in points)
    return row(name, exponent, "", None, n=len(points), note=note)


def say(text: str) -> None:
    """Print progress, separate from the result on standard output."""
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the results."""
    if sys.argv[1:2] == ["--child"]:
        path, method, repeat, *limit = sys.argv[2:]
        child(Path(path), method, int(repeat), float(limit[0]) if limit else None)
        return
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            rows += measure(Path(folder), kind)
        say("osdmaptool")
        rows += osdmaptool.rows(Path(folder))
        points = measured(Path(folder))
        found = large(Path(folder))
        took = [each["value"] for each in found if each["name"] == LARGE_S1]
        points += [(100_000_000, seconds) for seconds in took if seconds is not None]
    rows += [*found, scaling(points)]
    show(rows)


if __name__ == "__main__":
    main()
