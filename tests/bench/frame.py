"""Frame of every bench: its rows, the data plane's programs, and small runs.

`hotbed bench` runs a bench by its path; HOTBED_BENCH_SMALL=1 makes its run small.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
DATAPLANE = ROOT / "dataplane"
PROGRAMS = DATAPLANE / "bin"
SMALL = bool(os.environ.get("HOTBED_BENCH_SMALL"))

Row = dict[str, Any]
Found = dict[str, dict[str, float]]


def row(
    name: str,
    value: float | None,
    unit: str = "",
    limit: float | None = None,
    *,
    n: int = 1,
    note: str | None = "",
    at_least: bool = False,
) -> Row:
    """Return a bench's result; `value` None: it could not be measured, and `note` says why.

    Args:
        name: the measure.
        value: in `unit`.
        unit: the unit.
        limit: the maximum, or the minimum if `at_least`; None without a limit.
        n: number of measurements.
        note: details.
        at_least: see `limit`.
    """
    found = {"name": name, "value": value, "unit": unit, "limit": limit, "n": n, "note": note}
    return found | ({"at_least": True} if at_least else {})


def unmeasured(name: str, why: str, unit: str = "", limit: float | None = None) -> Row:
    """Return the row of a measure that is not possible here."""
    return row(name, None, unit, limit, n=0, note=why)


def show(rows: Iterable[Row]) -> None:
    """Print the rows as `hotbed bench` reads them."""
    print(json.dumps([*rows]))


def not_built(*programs: str) -> str:
    """Return the reason why the bench cannot run if a program is missing; else nothing."""
    missing = [name for name in programs if not (PROGRAMS / name).exists()]
    return f"{', '.join(missing)} not built: make setup" if missing else ""


def answer(name: str, *words: str, request: str | bytes | None = None, failed: bool = False) -> Any:
    """Return the JSON output of a data plane program; with `failed` also at exit status 1."""
    data = request.encode() if isinstance(request, str) else request
    done = subprocess.run([PROGRAMS / name, *words], input=data, capture_output=True, check=False)
    if done.returncode not in (0, int(failed)) or not done.stdout.strip():
        raise RuntimeError(f"{name} {' '.join(words)}: {done.stderr.decode().strip()[-200:]}")
    try:
        return json.loads(done.stdout)
    except ValueError:  # other lines precede it
        return json.loads(done.stdout.splitlines()[-1])


def go_benchmarks(package: str, pattern: str, times: int) -> tuple[Found, str]:
    """Run Go benchmarks; return {name: {unit: value}} and the end of the output."""
    done = subprocess.run(
        [
            *("../tools/go", "test", "-run", "^$", "-bench", pattern),
            *("-benchtime", f"{times}x", package),
        ],
        cwd=DATAPLANE,
        capture_output=True,
        text=True,
        check=False,
    )
    found: Found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"Benchmark(\S+?)(?:-\d+)?\s+(\d+)\s(.*)", line)
        if match:
            pairs = re.findall(r"([\d.e+-]+) (\S+)", match[3])
            found[match[1]] = {unit: float(value) for value, unit in pairs} | {"n": float(match[2])}
    return found, (done.stdout + done.stderr).strip()[-200:]


def with_store(role: str, use: Callable[[Testbed], T], hint: str) -> T:
    """Return the result of `use` for a running testbed with a node of `role`. LookupError: no such
    testbed is up, or it failed."""
    from schemas.errors import HotbedError
    from testbed.choose import existing

    for site, name in existing():
        testbed = site.find(name)
        if testbed is None or not testbed.with_role(role):
            continue
        try:
            return use(testbed)
        except HotbedError as error:
            raise LookupError(f"testbed {name}: {error}") from error
    raise LookupError(f"no testbed with a {role} is up: hotbed up {hint} && hotbed deploy")


def equal(seed: int, simpy: Sequence[object], ours: Sequence[object]) -> None:
    """Raise if SimPy and the simulator report different results."""
    if tuple(simpy) != tuple(ours):
        raise AssertionError(f"seed {seed}: SimPy {simpy}; the simulator {ours}")


def against_simpy(name: str, limit: float | None, ratios: Sequence[float], note: str) -> Row:
    """Return the row of a simulator's speed: processor time of SimPy over its own, by round."""
    import simpy

    return row(
        name,
        round(statistics.median(ratios), 1),
        "times",
        limit,
        n=len(ratios),
        note=f"processor time of SimPy {simpy.__version__} over ours, median of {len(ratios)} "
        f"rounds in turns ({min(ratios):.0f} to {max(ratios):.0f}), results equal to the "
        f"nanosecond; {note}",
        at_least=True,
    )
