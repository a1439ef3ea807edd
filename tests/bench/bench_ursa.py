"""Ursa: seconds to decide, memory, and cost against the lower bound, on the three kinds of data.

Every measurement is a process of its own, which reads the instance, compiles its loops, and then
decides several times. The median of the totals counts; generation, reading and compilation do not.
Sizes other than the default have no limits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from controllers.ursa.run import generate_file, peak_rss_mib, plan_file

SIZE = ("10K", "10M")
SEED = 1
REPEAT = 3
LIMITS = {
    "s1": {"s": 0.6, "gap": 0.05, "joint": 1.5},
    "s2": {"s": 1.5, "gap": 0.4, "joint": 1.5},
    "s3": {"s": 1.5, "gap": 0.4, "joint": None},
}
MEMORY_MIB = 1024.0
LIGHT_TAIL = 3.0
"""The heaviest load over the lightest in a second instance of each kind: hot nodes then have to
give away many objects instead of a few heavy ones, which is the harder case for ALP."""
GRACE_S = 300.0
OTHERS = {"ilp": 60.0, "joint": 60.0, "algorithm1": 600.0, "htoc": 60.0, "sa": 60.0}
"""Methods beside ALP in the same run, and the seconds that each is given."""
SIZES = (("100", "100K"), ("300", "300K"), ("1K", "1M"), ("3K", "3M"), SIZE)

Row = dict[str, Any]


def row(name: str, value: float | None, unit: str, limit: float | None, **more: Any) -> Row:
    """A bench's result."""
    return {"name": name, "value": value, "unit": unit, "limit": limit, "n": 1, "note": "", **more}


def child(path: Path, method: str, repeat: int, limit_s: float | None) -> None:
    """Decide `repeat` times; print the last summary with all totals."""
    plans = [plan_file(path, method, time_limit_s=limit_s, seed=SEED) for _ in range(repeat)]
    summary = plans[-1].summary
    summary["totals"] = [plan.summary["decision_seconds"]["total"] for plan in plans]  # type: ignore[index]
    summary["still_hot"] = len(plans[-1].still_hot)
    summary["peak_rss_mib"] = peak_rss_mib()
    print(json.dumps(summary))


def decide(path: Path, method: str, repeat: int = 1, limit_s: float | None = None) -> Row:
    """The summary of `method`, from a process of its own; {"error"} when it failed."""
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


def alp(kind: str, size: str, found: Row, limits: dict[str, float | None]) -> list[Row]:
    """Rows of our best method."""
    name = f"ursa alp {kind} {size}"
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
            note=f"median, {min(totals):.3f} to {max(totals):.3f}; last: {phases}",
        ),
        row(
            f"{name}, memory beyond the input",
            beyond,
            "MiB",
            MEMORY_MIB if limits else None,
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


def beside(kind: str, size: str, ours: Row, found: Row, limits: dict[str, float | None]) -> Row:
    """A row of another method: what it costs over ALP; of `joint`, ALP over the joint bound."""
    method = found.get("method", "?")
    if "error" in found:
        return row(f"ursa {method} {kind} {size}", None, "x", None, note=found["error"])
    seconds = found["decision_seconds"]["total"]
    note = (
        f"{seconds:.2f} s against {statistics.median(ours['totals']):.2f} s, {found['moves']} "
        f"moves, cost {found['cost']:.6g}, {found['hot_after']} hot"
    )
    if method == "joint":
        bound = found["lower_bound"]
        above = None if not bound else 100 * (ours["cost"] / bound - 1)
        name = f"ursa alp {kind} {size}, cost above the joint bound"
        return row(name, above, "%", limits.get("joint"), note=f"joint: {note}")
    ratio = found["cost"] / ours["cost"] if ours["cost"] else None
    return row(f"ursa {method} {kind} {size}, cost over alp's", ratio, "x", None, note=note)


def measure(folder: Path, kind: str, size: tuple[str, str], methods: list[str]) -> list[Row]:
    """All rows of one kind of data."""
    text = "-".join(size)
    limits: dict[str, float | None] = dict(LIMITS[kind]) if size == SIZE else {}
    path = folder / f"{kind}.npz"
    say(f"{kind} {text}: generating")
    generate_file(path, kind=kind, nodes=size[0], partitions=size[1], seed=SEED)
    say(f"{kind} {text}: alp")
    ours = decide(path, "alp", REPEAT)
    rows = alp(kind, text, ours, limits)
    for method in methods if "error" not in ours else []:
        say(f"{kind} {text}: {method}")
        found = {"method": method} | decide(path, method, 1, OTHERS[method])
        rows.append(beside(kind, text, ours, found, limits))
    say(f"{kind} {text}: alp, loads at most {LIGHT_TAIL:g} to 1")
    generate_file(
        path, kind=kind, nodes=size[0], partitions=size[1], seed=SEED, load_max=LIGHT_TAIL
    )
    rows += alp(
        f"{kind} (loads at most {LIGHT_TAIL:g}:1)", text, decide(path, "alp", REPEAT), limits
    )
    path.unlink()
    return rows


def scaling(folder: Path, sizes: tuple[tuple[str, str], ...]) -> Row:
    """The exponent of seconds against partitions, fitted on S1 with 1000 partitions a node."""
    points = []
    for size in sizes:
        path = folder / "scaling.npz"
        say(f"s1 {'-'.join(size)}: scaling")
        facts = generate_file(path, kind="s1", nodes=size[0], partitions=size[1], seed=SEED)
        found = decide(path, "alp", REPEAT)
        if "error" not in found:
            points.append((int(str(facts["partitions"])), statistics.median(found["totals"])))
    name = "ursa alp s1, seconds ~ partitions^x"
    if len(points) < 2:
        return row(name, None, "", None, note="fewer than two sizes could be measured")
    x, y = np.log(np.array(points)).T
    exponent = float(np.polyfit(x, y, 1)[0])
    note = ", ".join(f"{partitions}: {seconds:.4f} s" for partitions, seconds in points)
    return row(name, exponent, "", None, n=len(points), note=note)


def say(text: str) -> None:
    """Progress, beside the result on standard output."""
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the results."""
    if sys.argv[1:2] == ["--child"]:
        path, method, repeat, *limit = sys.argv[2:]
        child(Path(path), method, int(repeat), float(limit[0]) if limit else None)
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", nargs=2, default=SIZE, metavar=("NODES", "PARTITIONS"))
    parser.add_argument("--kinds", nargs="*", default=list(LIMITS))
    parser.add_argument("--methods", nargs="*", default=list(OTHERS))
    parser.add_argument("--no-scaling", action="store_true")
    chosen = parser.parse_args()
    rows: list[Row] = []
    size = (chosen.size[0], chosen.size[1])
    with tempfile.TemporaryDirectory() as folder:
        for kind in chosen.kinds:
            rows += measure(Path(folder), kind, size, chosen.methods)
        if not chosen.no_scaling:
            rows.append(scaling(Path(folder), SIZES))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
