"""Sources of the pages: the testbed's stream and overview, and an index of the artifacts folder.

Each source has threads of its own and is shared by all browser tabs. Its `version` grows with every
change, so that a page sees cheaply if it must draw again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from campaigns.engine.attempts import CELL_LOG
from campaigns.engine.display import label_of
from campaigns.engine.estimate import Estimator, took_s
from campaigns.engine.job import JOURNAL_FILE
from campaigns.engine.lock import Holder, holder_of
from campaigns.engine.session import CAMPAIGN_FILE, LEDGER_FILE
from campaigns.engine.store import Ledger, read_run, read_summary
from controllers import remote
from hotbed.top_view import Sample, samples
from schemas.errors import HotbedError
from schemas.run import Run, Summary
from testbed.choose import choose, choose_partly
from testbed.client import agent_client
from testbed.overview import NOTHING, overview

Samples = Generator[Sample, None, None]

HISTORY = 600
"""Samples that are kept: ten minutes of one sample a second."""
AGAIN_S = 3.0
"""Wait before a testbed that did not answer is asked again."""
OVERVIEW_S = 10.0
"""Longest wait between two looks at health and units, which cost more than a sample. If a fault, a
lost node or a running controller comes or goes, the next look is at once."""
SCAN_S = 0.7
"""Wait between two looks at the artifacts folder: pages are at most two seconds behind."""
_TICK_NS = 10**8
"""Longest time in which a file system gives two changes of a folder the same time."""


class LiveJournal:
    """Journal of a controller's last run on the testbed, read while the controller runs.

    Attributes:
        header, footer: as in `controllers.journal.Journal`.
        steps: the last `HISTORY` steps.
        problem: why no step follows; empty while the journal is read, and after its end.
    """

    def __init__(self, lines: Iterator[Mapping[str, Any]]) -> None:
        self.header: Mapping[str, Any] = {}
        self.footer: Mapping[str, Any] | None = None
        self.steps: deque[Mapping[str, Any]] = deque(maxlen=HISTORY)
        self.problem, self.ended, self.version = "", False, 0
        threading.Thread(
            target=self._read, args=[lines], name="hotbed ui journal", daemon=True
        ).start()

    def _read(self, lines: Iterator[Mapping[str, Any]]) -> None:
        try:
            for line in lines:
                if line.get("header"):
                    self.header = line
                elif line.get("footer"):
                    self.footer = line
                else:
                    self.steps.append(line)
                self.version += 1
        except (HotbedError, OSError) as error:
            self.problem = str(error)
        self.ended = True
        self.version += 1


class Watched:
    """A testbed, watched by one stream of samples and by `hotbed status`, for all browser tabs.

    Attributes:
        samples: the last ten minutes.
        overview: the last `testbed.overview.overview`.
        problem: why there is no new sample; empty if samples come.
    """

    def __init__(
        self,
        samples: Callable[[], Samples],
        overview: Callable[[], Mapping[str, Any]],
        journal: Callable[[str], Iterator[Mapping[str, Any]]],
    ) -> None:
        self._open, self._ask, self._lines = samples, overview, journal
        self._journals: dict[str, LiveJournal] = {}
        self.samples: deque[Sample] = deque(maxlen=HISTORY)
        self.overview: Mapping[str, Any] = NOTHING
        self.problem = "Looking for a testbed."
        self.version = 0
        self._changed = threading.Event()

    def start(self) -> None:
        """Start both threads, which end with the process."""
        for work in (self._follow, self._oversee):
            threading.Thread(target=work, name="hotbed ui", daemon=True).start()

    def journal(self, controller: str) -> LiveJournal:
        """Return the journal of a controller, read anew if it had ended."""
        found = self._journals.get(controller)
        if found is None or found.ended:
            found = self._journals[controller] = LiveJournal(self._lines(controller))
        return found

    def _follow(self) -> None:
        before: Any = None
        while True:
            try:
                with closing(self._open()) as samples:
                    for sample in samples:
                        if self.samples and self.samples[-1]["testbed"] != sample["testbed"]:
                            self.samples.clear()
                        self.samples.append(sample)
                        self.problem = ""
                        now = (sample["faults"], {*sample["lost"]}, {*sample["controllers"]})
                        if now != before:
                            self._changed.set()
                        before = now
                        self.version += 1
                self.problem = "The testbed's stream of samples ended."
            except (HotbedError, OSError) as error:
                self.problem = str(error)
            self.version += 1
            time.sleep(AGAIN_S)

    def _oversee(self) -> None:
        while True:
            try:
                self.overview = self._ask()
            except (HotbedError, OSError) as error:
                self.overview = NOTHING | {"unanswered": [str(error)]}
            self.version += 1
            self._changed.wait(OVERVIEW_S)
            self._changed.clear()


def watched(name: str | None) -> Watched:
    """Return the testbed called `name`, or without a name the only one, not yet started."""
    return Watched(
        lambda: samples(choose_partly(name)),
        lambda: overview(choose_partly(name), choose(name)[0]),
        lambda controller: remote.follow(
            agent_client(choose_partly(name)), controller, lambda lost: None
        ),
    )


@dataclass(frozen=True)
class CellState:
    """State of a planned cell. `status` is ``done``, ``running``, ``pending``, or that of its last
    attempt; `why` has the reasons of attempts that are no result."""

    run_id: str
    label: str
    block: int
    status: str
    why: str
    attempts: int
    seconds: float | None


@dataclass(frozen=True)
class CampaignState:
    """State of a campaign, read from its folder. `left_s` is None if no run was measured yet;
    `engine` is the living engine, `running` are the folders of attempts under way."""

    name: str
    cells: tuple[CellState, ...]
    left_s: float | None
    engine: Holder | None
    running: tuple[Path, ...]

    def count(self, status: str) -> int:
        """Return the number of cells with this status."""
        return sum(cell.status == status for cell in self.cells)

    def log(self, size: int = 20_000) -> str:
        """Return the end of a running cell's log, at most `size` bytes."""
        for folder in self.running:
            with suppress(OSError), (folder / CELL_LOG).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - size))
                return file.read().decode(errors="replace")
        return ""


class Index:
    """Table of every attempt below the artifacts folder. A finished attempt never changes, so a run
    folder is read again only if its time of change is another.

    Attributes:
        runs: a row an attempt, newest first, see `row_of`.
        complete: True once every folder has been read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = pd.DataFrame(columns=list(BASE))
        self.complete = False
        self.version = 0
        self._seen: dict[Path, tuple[int, list[dict[str, Any]]]] = {}

    def start(self) -> None:
        """Start the thread that keeps the table up to date, and ends with the process."""
        threading.Thread(target=self._follow, name="hotbed ui index", daemon=True).start()

    @property
    def empty(self) -> str:
        """A sentence for a page that finds nothing in the table."""
        if not self.complete:
            return "The artifacts folder is being read."
        return (
            f"{self.folder.resolve()} holds nothing to show. `hotbed run CAMPAIGN` makes runs, "
            "`hotbed list campaigns` shows the campaigns."
        )

    def campaigns(self) -> list[str]:
        """Return the campaigns, the one that changed last first."""
        ledgers = []
        for file in self.folder.glob(f"*/{LEDGER_FILE}"):
            with suppress(OSError):
                ledgers.append((-file.stat().st_mtime, file.parent.name))
        return list(
            dict.fromkeys([name for _, name in sorted(ledgers)] + list(self.runs["campaign"]))
        )

    def _follow(self) -> None:
        while True:
            began = time.monotonic()
            with suppress(OSError):  # a folder is being removed; the next look is complete
                self.scan()
            time.sleep(max(SCAN_S, 3 * (time.monotonic() - began)))

    def scan(self) -> None:
        """Read the run folders that are new or have changed."""
        there, changed, shown = set(), False, time.monotonic()
        for folder, changed_ns in self._run_folders():
            there.add(folder)
            if self._seen.get(folder, (0, ()))[0] != changed_ns:
                fresh = 0 <= time.time_ns() - changed_ns < _TICK_NS  # may change again unnoticed
                self._seen[folder] = 0 if fresh else changed_ns, list(rows_of(folder))
                changed = True
            if changed and time.monotonic() > shown + 1.0:  # the first look at many folders
                self._publish()
                changed, shown = False, time.monotonic()
        gone = self._seen.keys() - there
        for folder in gone:
            del self._seen[folder]
        if changed or gone or not self.complete:
            self.complete = True
            self._publish()

    def _run_folders(self) -> Iterator[tuple[Path, int]]:
        for campaign in sorted(self.folder.glob("[!.]*/")):
            with os.scandir(campaign) as entries:
                for entry in entries:
                    if not entry.name.startswith(".") and entry.is_dir():
                        yield Path(entry.path), entry.stat().st_mtime_ns

    def _publish(self) -> None:
        rows = [row for _, rows in self._seen.values() for row in rows]
        if rows:
            self.runs = pd.DataFrame(rows).sort_values(
                "started", ascending=False, ignore_index=True
            )
        else:
            self.runs = pd.DataFrame(columns=list(BASE))
        self.version += 1


BASE = (
    *("campaign", "cell", "controller", "block", "status", "why", "started", "seconds"),
    *("attempt", "run", "journal", "folder"),
)
PARAMETER, RESULT = "parameter ", "result "
"""Starts of the names of columns that are cells' parameters, and of numbers among the results."""
_OF_AN_OPERATION = {
    "throughput_mb_s": "throughput, MB/s",
    "iops": "operations/s",
    "latency_mean_s": "mean latency, s",
    "latency_p99_s": "p99 latency, s",
}


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each finished attempt in a run's folder."""
    for path in folder.glob("attempt-*"):
        with suppress(OSError):
            run = read_run(path)
            if run is not None:
                yield row_of(run, read_summary(path), path)


def row_of(run: Run, summary: Summary | None, folder: Path) -> dict[str, Any]:
    """Return an attempt as a row: `BASE`, its parameters, and its results as numbers."""
    given = run.parameters
    row: dict[str, Any] = {
        "campaign": folder.parents[1].name,
        "cell": label_of(run),
        "controller": str(given.get("controller") or given.get("method") or ""),
        "block": run.block,
        "status": run.status,
        "why": run.reason or "",
        "started": run.started_at[:19].replace("T", " "),
        "seconds": round(took_s(run), 1),
        "attempt": run.attempt,
        "run": run.run_id,
        "journal": (folder / JOURNAL_FILE).exists(),
        "folder": str(folder),
    }
    simple = {name: each for name, each in given.items() if isinstance(each, str | int | float)}
    row |= {PARAMETER + name: value for name, value in simple.items()}
    if summary is None:
        return row
    ops = sorted(summary.whole, key=lambda each: each.op != given.get("op"))  # the cell's own first
    results = {title: getattr(ops[0], name) for name, title in _OF_AN_OPERATION.items() if ops}
    if pressures := summary.pressure_mean.values():
        results["mean pressure, %"] = sum(pressures) / len(pressures)
    results |= {f"controller {name}": value for name, value in summary.controller.items()}
    results |= summary.extra
    return row | {RESULT + name: value for name, value in results.items() if value is not None}


def campaign_state(index: Index, name: str) -> CampaignState:
    """Return the state of a campaign from its folder, whether an engine runs it or not."""
    folder = index.folder / name
    engine, under_way = holder_of(folder / ".lock"), _under_way(folder / LEDGER_FILE)
    attempts: dict[str, list[Any]] = {}
    for row in index.runs[index.runs["campaign"] == name].sort_values("attempt").itertuples():
        attempts.setdefault(str(row.run), []).append(row)
    try:
        body = json.loads((folder / CAMPAIGN_FILE).read_bytes())
        planned = {str(cell["run_id"]): dict(cell) for cell in body["cells"]}
    except (OSError, ValueError, KeyError, TypeError):
        planned = {run_id: {} for run_id in attempts}
    estimator, cells, waiting, running = Estimator(), [], [], []
    for run_id, cell in planned.items():
        made = attempts.get(run_id, [])
        end = next((row for row in made if row.status == "done"), made[-1] if made else None)
        status = "pending" if end is None else str(end.status)
        if engine is not None and run_id in under_way and status != "done":
            status = "running"
            running.append(folder / run_id / f".attempt-{under_way[run_id]}.partial")
        label = str(cell.get("label") or (run_id if end is None else end.cell))
        block = cell.get("block", 0 if end is None else end.block)
        why = "; ".join(row.why for row in made if row.why)
        count, seconds = len(made) + (status == "running"), None if end is None else end.seconds
        cells.append(CellState(run_id, label, int(block), status, why, count, seconds))
        planned_s = float(cell.get("planned_s", 1.0))
        if status == "done":
            estimator.observe(label, planned_s, float(seconds or 0.0))
        else:
            waiting.append((label, planned_s))
    left_s = sum(estimator.seconds(*each) for each in waiting) / max(1, len(running))
    known = left_s if estimator.runs else None
    return CampaignState(name, tuple(cells), known, engine, tuple(running))


def _under_way(ledger: Path) -> dict[str, Any]:
    """Return the attempts that a ledger says have begun and not ended, by run."""
    found: dict[str, Any] = {}
    with suppress(OSError):
        for record in Ledger(ledger).records():
            if record["event"] == "campaign-started":
                found.clear()  # attempts of an engine that was killed
            elif record["event"] == "started":
                found[str(record.get("run_id"))] = record.get("attempt")
            else:
                found.pop(str(record.get("run_id")), None)
    return found
