"""World of the live view's tests: a testbed that never was, and a folder of runs.

``python -m tests.hotbed.ui_world ARTIFACTS [PREFIX]`` serves them, and prints the address.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd

from campaigns.engine.lock import InUseError, Lock
from schemas.run import OpSummary, Summary
from testbed.overview import NOTHING
from tests.analysis.synthetic_runs import written

ROOT = Path(__file__).resolve().parents[2]
EVIL = "<img src=x onerror=evil()><evil-tag><script>evil()<\\script>\"'\x1b[31m{{evil}}"
"""A stranger's text; without a slash, so that it can also be the name of a folder."""
CAMPAIGN = "dlr-stored"
SLOW = "the disk of node osd1 is 4 times as slow since 17:00:00 UTC"
JOURNAL = ROOT / "tests/data/journals/dlr-8.jsonl"


def sample(number: int, wall: float) -> dict[str, Any]:
    """Return a sample of the agent's verb `top`: eight OSDs, two of them disturbed."""
    nodes: dict[str, Any] = {"admin": {"roles": ["admin", "mon"], "osds": [], "pressure": 2.0}}
    osds = {}
    for place in range(8):
        hot, wave = place < 2, math.sin(number / 15 + place)
        pressure = 75 + 20 * wave if hot else 12 + 6 * wave
        nodes[f"osd{place}"] = {
            "roles": ["osd"],
            "osds": [place],
            "signal": "io_pressure",
            "pressure": pressure,
            "hot": float(hot),
            "disk_util": min(100.0, pressure * 1.1),
            "disk_queue": pressure / 8,
            "disk_read_mb_s": 42.0 - pressure / 4,
            "disk_write_mb_s": 0.2,
            "net_rx_mb_s": 0.4,
            "net_tx_mb_s": 41.0 - pressure / 4,
            "cpu_cores": 0.3,
        }
        osds[f"osd.{place}"] = {
            "primary_affinity": 0.1 if hot else 1.0,
            "primaries": 4.0 if hot else 31.0,
            "op_r_latency_s": 0.2 if hot else 0.04,
        }
    return {
        "wall": wall,
        "testbed": "dlr",
        "nodes": nodes,
        "osds": osds,
        "client": {"read_mb_s": 240 + 15 * math.sin(number / 9), "write_mb_s": 0.3},
        "lost": {},
        "steered": {},
        "controllers": {
            "dlr": {
                **{"step": number // 5, "at": wall, "actions": [], "error": None},
                "acted": {"step": number // 90 * 18, "at": wall - number % 90, "actions": ["1 Up"]},
            }
        },
        "faults": [
            {"node": "osd1", "kind": "disk", "since_s": time.time() - 120, "sentence": SLOW}
        ],
    }


def samples() -> Iterator[dict[str, Any]]:
    """Yield five minutes at once, then a sample a second."""
    now = time.time()
    yield from (sample(number, now - 300 + number) for number in range(300))
    for number in range(300, 10_000):
        time.sleep(1.0)
        yield sample(number, time.time())


def overview() -> Mapping[str, Any]:
    """Return what `hotbed status NAME --json` prints."""
    return NOTHING | {
        "state": "ready",
        "nodes": {f"osd{place}": "running" for place in range(8)},
        "health": {
            "status": "HEALTH_WARN",
            "checks": [{"code": "OSD_DOWN", "severity": "HEALTH_WARN", "summary": "1 osds down"}],
        },
        "osds_down": [{"osd": 7, "node": "osd7"}],
        "disks_full": [{"node": "osd2", "path": "/var/lib/hotbed/scratch", "used_share": 0.97}],
        "controllers": [{"name": "dlr", "running": True, "last": None, "steered": ["osd.0=0.10"]}],
        "loads": [{"node": "osd0", "name": "hotspot", "iops": None}],
        "faults": [{"sentence": SLOW}],
        "snapshots": ["deployed"],
    }


def journal(words: str = "") -> Iterator[dict[str, Any]]:
    """Yield the lines of a controller's journal, two a second, without end."""
    text = JOURNAL.read_text().replace('"dlr"', json.dumps(f"dlr{words}"))
    header, *steps = map(json.loads, text.splitlines()[:-1])
    yield header
    for number in itertools.count():
        yield steps[number % len(steps)] | {"step": number, "t_s": number / 2}
        time.sleep(0.5)


def evil(value: Any) -> Any:
    """Return a source's answer with a stranger's text in place of every text."""
    if isinstance(value, Mapping):
        names = ("nodes", "osds", "client", "lost", "steered", "controllers", "health", "acted")
        return {
            key if key in names or not isinstance(each, Mapping) else EVIL: evil(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [evil(each) for each in value]
    return EVIL if isinstance(value, str) else value


def runs(folder: Path, count: int, name: str = CAMPAIGN, words: str = "") -> Path:
    """Write a campaign with `count` finished runs, a spoiled attempt, a running cell and a pending
    one; `words` is put wherever a stranger's text can be. Return its folder."""
    campaign, cells = folder / name, []
    journal = JOURNAL.read_text().replace('"dlr"', json.dumps(f"dlr{words}"))
    times = pd.Series(range(0, 60))
    for number in range(count):
        controller = ("default", "dlr", "dlr-even")[number % 3]
        whole = OpSummary(
            op="rand",
            seconds=60.0,
            operations=None,
            bytes=None,
            throughput_mb_s=200.0 + 20 * (number % 3) + number % 7,
            iops=50.0,
            latency_mean_s=0.3,
        )
        nodes = {f"osd{place}{words}": 20.0 + place for place in range(4)}
        parameters = {
            "op": "rand",
            "controller": controller,
            "scenario": "interference",
            "hot_nodes": 1 + number % 4,
            **({words: words} if words else {}),
        }
        made = written(
            campaign,
            number // 12,
            "dlr",
            parameters,
            Summary(whole=[whole], steady=[], pressure_mean=nodes),
            name=str(number),
            ground="sim",
            started_at=f"2026-01-01T{number // 60 % 24:02d}:{number % 60:02d}:00Z",
            ended_at=f"2026-01-01T{number // 60 % 24:02d}:{number % 60:02d}:30Z",
        )
        cells.append(made.parent.name)
        if number >= count - 6:  # the newest, which are shown first
            columns = {"node": f"osd0{words}", "metric": "pressure", "t_s": times.astype(float)}
            values = 40 + 10 * (number % 6) + 5 * (times / 5).map(math.sin)
            pd.DataFrame({**columns, "value": values}).to_parquet(made / "samples.parquet")
        if number % 3 == 1:
            (made / "journal.jsonl").write_text(journal)
    spoiled = f"0.9 cores were used outside the testbed {words}"
    cell = {"op": "rand", "controller": "dlr"}
    made = written(campaign, 0, "dlr", cell, {}, name="spoiled", status="spoiled", reason=spoiled)
    cells += [made.parent.name, "running00000", "pending00000"]
    log = campaign / "running00000" / ".attempt-1.partial" / "logs"
    log.mkdir(parents=True)
    (log / "cell.log").write_text(f"prefill: 100 objects\nworkload: 12 of 60 s {words}\n")
    plan = [
        {
            "run_id": each,
            "label": f"rand {controller}{words}",
            "block": place // 12,
            "planned_s": 30,
        }
        for place, each in enumerate(cells)
        for controller in [("default", "dlr", "dlr-even")[place % 3]]
    ]
    (campaign / "campaign.json").write_text(json.dumps({"campaign": {"name": name}, "cells": plan}))
    event = {"event": "started", "run_id": "running00000", "attempt": 1}
    (campaign / "ledger.jsonl").write_text(json.dumps(event) + "\n")
    (campaign / f"report{words}.html").write_text("<script>evil()</script><p>a report</p>")
    return campaign


@contextmanager
def served(folder: Path, *more: str, **environment: str) -> Iterator[str]:
    """Serve a folder of runs in a process of its own; yield the address with the token. `more`:
    ``--evil``, ``--none``, or a prefix."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hotbed.ui_world", str(folder), *more],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)


def main(folder: str, *more: str) -> None:
    """Serve the pages until the process is ended."""
    from hotbed.ui import TOKEN_VARIABLE
    from hotbed.ui.pages import serve
    from hotbed.ui.sources import Watched
    from schemas.errors import UserError

    def none() -> Any:
        raise UserError("there is no testbed", do="`hotbed up SPEC` makes one")

    watched = Watched(samples, overview, lambda name: journal())
    if "--none" in more:
        watched = Watched(none, none, none)
    elif "--evil" in more:
        watched = Watched(
            lambda: (evil(each) for each in samples()),
            lambda: evil(overview()),
            lambda name: journal(EVIL),
        )
    prefix = next((each for each in more if each.startswith("/")), "")
    token = os.environ.get(TOKEN_VARIABLE, "")
    server, address = serve(watched, Path(folder), port=0, prefix=prefix, token=token)
    with ExitStack() as stack:
        with suppress(FileNotFoundError, InUseError):  # as a living engine
            stack.enter_context(Lock(Path(folder) / CAMPAIGN / ".lock", "the campaign"))
        print(address, flush=True)
        server.start()
        server.io_loop.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
