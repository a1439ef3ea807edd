"""Check of a campaign's real traces before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from campaigns.engine.plan import Cell
from campaigns.papers.prioritymeister.mixes import labels_of
from campaigns.papers.prioritymeister.real_traces import Whole, file_of, measured
from campaigns.papers.prioritymeister.rule import measured_alone
from controllers.prioritymeister.profiles import load_profile
from schemas.cells.prioritymeister import PmCell
from workloads.traces.standins import TABLE2


def require_windows(cells: Iterable[Cell], disk: Path | None) -> None:
    """Check that real traces are long enough for the blocks with consecutive windows. Each trace is
    read once.

    Args:
        cells: the pending cells.
        disk: profile of the ground's disk; None on a testbed, which measures it. A testbed checks
            traces that play until they load the disk only after measuring (`cell.Maker.foresee`).
            The same holds for figure 9's traces, because they may be on another device.

    Raises:
        UserError: a trace is too short or cannot be read.
    """
    known: dict[tuple[Path, Path | None], Whole] = {}
    for (folder, label, profile, load, seconds), blocks in _asked(cells, disk).items():
        path = file_of(Path(folder), label)
        if path is None:
            continue
        if (path, profile) not in known:
            costs = None if profile is None else load_profile(profile)
            known[path, profile] = measured(path, costs)
        known[path, profile].require(blocks, load=load, seconds=seconds)


_Asked = tuple[str, str, Path | None, float | None, float]


def _asked(cells: Iterable[Cell], disk: Path | None) -> dict[_Asked, int]:
    """Return blocks by folder, workload, profile (if the load counts), load and seconds."""
    found: dict[_Asked, int] = {}
    for cell in cells:
        told = cell.parameters
        if not isinstance(told, PmCell) or told.trace_windows != "consecutive":
            continue
        assert told.traces is not None, told
        profile = disk if told.device_profile is None else Path(told.device_profile)
        own = told.trace_load == "own"
        if disk is None and (not own or told.scenario == "network"):
            continue
        for label in _labels(told):
            load = TABLE2[label].storage_load if label in TABLE2 else None
            if load is None:  # not on a disk: a stand-in in any case
                continue
            key: _Asked = (told.traces, label, profile, load, told.seconds)
            if own:
                key = (told.traces, label, None, None, told.seconds)
            found[key] = max(found.get(key, 0), cell.block + 1)
    return found


def _labels(told: PmCell) -> dict[str, None]:
    """Return a cell's workloads, and those measured alone for its SLOs."""
    mixes = [told, *(where for _, where in measured_alone(told))]
    return dict.fromkeys(label for where in mixes for label in labels_of(where))
