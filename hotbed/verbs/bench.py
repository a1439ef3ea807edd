"""`hotbed bench`: measure Hotbed's own overhead; every result with its limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hotbed.options import option
from hotbed.output import JsonFlag, Output, new_table
from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, unknown

PROC_STAT = Path("/proc/stat")
NOTED = 0.02
"""Share of the requested processor time: above it, time taken by other machines is reported. The
campaigns' judge calls such a run spoiled."""
BENCHES = Path(__file__).resolve().parents[2] / "tests" / "bench"


def verb(
    only: str | None = option("Run only this bench, such as report, with its parts.", None),
    artifacts: Path = option("Folder for the JSON.", Path("artifacts")),
    as_json: JsonFlag = False,
) -> Output:
    """Measure Hotbed's own overhead and speed; written to artifacts/bench/ too."""
    scripts = sorted(BENCHES.glob("bench_*.py"))
    if only is not None:
        known = [script.stem.removeprefix("bench_") for script in scripts]
        name = f"bench_{only}"
        scripts = [s for s in scripts if s.stem == name or s.stem.startswith(f"{name}_")]
        if not scripts:
            raise unknown("bench", only, known, where="--only")
    folder = artifacts / "bench"
    make_folder(folder)  # fail before minutes of measuring
    results: list[dict[str, Any]] = []
    kept: dict[str, bool] = {}
    for script in scripts:
        if not as_json:
            print(f"{script.stem.removeprefix('bench_')} ...", flush=True)
        with _awake(script) as awake:
            before = processors()
            made = _run(script)
            stolen = stolen_between(before, processors())
        results += [result | {"stolen": stolen} for result in made]
        kept[script.stem.removeprefix("bench_")] = awake
    now = datetime.now(UTC)
    path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
    at = now.isoformat(timespec="seconds")
    document = {"schema": 1, "at": at, "awake": kept, "results": results}
    write_file(path, json.dumps(document, indent=1) + "\n")
    beyond = any(result["within"] is False for result in results)
    written = f"Written: {path.resolve()}"
    return Output(document, lambda: [_table(results), written], code=int(beyond))


def _awake(script: Path) -> AbstractContextManager[bool]:
    """Keep a virtual machine's processors awake during a bench: the time to wake them is the
    hypervisor's. Except for the bench of waking itself."""
    if script.stem == "bench_awake" or os.geteuid() != 0:
        return nullcontext(False)
    from testbed.sites import open_site
    from testbed.sites.contract import AwakeSite, SiteError

    try:
        site = open_site()
        return site.kept_awake() if isinstance(site, AwakeSite) else nullcontext(False)
    except SiteError:
        return nullcontext(False)


def processors() -> tuple[float, float]:
    """Return the ticks that all processors worked, and the ticks that the hypervisor gave to other
    machines instead; zeros if the system does not report them."""
    try:
        fields = [float(field) for field in PROC_STAT.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0.0, 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = fields + [0.0] * (8 - len(fields))
    return user + nice + system + irq + softirq, steal


def stolen_between(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the share of requested time that went to other machines, 0 to 1."""
    worked, stolen = after[0] - before[0], after[1] - before[1]
    return round(stolen / (worked + stolen), 4) if stolen > 0 else 0.0


def _run(script: Path) -> list[dict[str, Any]]:
    """Run a bench, which prints a JSON list of {name, value, unit, limit (or null), n, note}. A
    null value could not be measured here; `note` says why. `limit` is the maximum, or with
    "at_least": true the minimum."""
    done = subprocess.run(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=BENCHES.parents[1],
        check=False,
    )
    try:
        if done.returncode != 0:
            raise ValueError(f"exit code {done.returncode}")
        results: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise HotbedError(f"{script.name} did not print a result: {error}.") from error
    for result in results:
        value, limit = result.get("value"), result.get("limit")
        if value is None or limit is None:
            result["within"] = None
        else:
            result["within"] = value >= limit if result.get("at_least") else value <= limit
    return results


def _table(results: list[dict[str, Any]]) -> object:
    from rich.text import Text

    words = {True: ("within", "green"), False: ("beyond", "red"), None: ("", "")}
    rows = []
    for result in results:
        value, limit, unit = result.get("value"), result.get("limit"), result.get("unit", "")
        measured = "not measured" if value is None else f"{value:.4g} {unit}"
        least = "at least " if result.get("at_least") else ""
        bound = None if limit is None else f"{least}{limit:g} {unit}"
        within = Text(*words[result["within"]])
        rows.append((result["name"], measured, bound, result.get("n"), within, _note(result)))
    return new_table(("bench", "measured", "limit", "n", "", "note"), rows)


def _note(result: dict[str, Any]) -> str:
    note, stolen = str(result.get("note") or ""), result.get("stolen") or 0.0
    if stolen <= NOTED:
        return note
    busy = f"other machines took {stolen:.0%} of this one's processors meanwhile: measure it again"
    return f"{note}; {busy}" if note else busy
