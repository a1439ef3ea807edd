"""Properties of a cell's stand-ins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.plan import raw_cells
from campaigns.papers.prioritymeister.machines import Machines, write_profiles
from campaigns.papers.prioritymeister.rule import measured_alone
from campaigns.papers.prioritymeister.trace_maker import TraceMaker
from campaigns.papers.prioritymeister.tracework import REFERENCE
from controllers.prioritymeister.profiles import load_profile
from schemas.cells.prioritymeister import INPUTS, PM, PmCell
from workloads.traces.requests import RequestBlock

ACCESS = ("random", "mixed")


def block_of(folder: Path, label: str, values: dict[str, Any]) -> RequestBlock:
    """Return a stand-in of a cell."""
    machines = Machines()
    write_profiles(machines, folder)
    maker = TraceMaker(PM.check({"policy": "none", **values}, "here"), 5, machines, folder)
    return maker.standin(maker.row(label), maker.disk).block


def disk_work(block: RequestBlock) -> np.ndarray:
    return load_profile(REFERENCE).estimator("storage").work(block)


@pytest.mark.parametrize("label", ["F", "G", "H"])
def test_synthetic_bursts_are_random_access(label: str, tmp_path: Path) -> None:
    cell = {"scenario": "burst", "burst": label, "seconds": 60.0}
    made = {access: block_of(tmp_path, label, {**cell, "access": access}) for access in ACCESS}
    for access, block in made.items():
        follows = block.offset[1:] == block.offset[:-1] + block.size[:-1]
        assert bool(follows.mean() > 0.5) == (access == "mixed")
        assert float(disk_work(block).sum()) / 60 == pytest.approx(0.25, rel=0.05)
    assert len(made["random"]) < len(made["mixed"])


def test_fewer_bytes_for_the_same_work_are_less_sequential(tmp_path: Path) -> None:
    cell = {"scenario": "disk", "seconds": 60.0}
    shares = (1.0, 0.2)
    whole, part = (block_of(tmp_path, "A", {**cell, "network_share": share}) for share in shares)
    assert part.size.sum() == pytest.approx(0.2 * whole.size.sum(), rel=0.1)
    assert disk_work(part).sum() == pytest.approx(disk_work(whole).sum(), rel=0.05)
    jumps = [(np.diff(block.offset) != block.size[0]).mean() for block in (whole, part)]
    assert jumps[1] > 5 * jumps[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pm-quick", "pm-full", "pm-why", "pm-local", "pm-local-quick"])
def test_traces_are_long_enough_for_what_slos_are_made_of(name: str, tmp_path: Path) -> None:
    campaign = load_campaign(find_campaign(name))
    machines = local_machines(tmp_path) if name.startswith("pm-local") else Machines()
    write_profiles(machines, tmp_path)
    known: dict[tuple[str, str], int] = {}
    for raw in (one for grid in campaign.grids for one in raw_cells(campaign, grid)):
        cell = PM.check(raw, name)
        if cell.policy == INPUTS or cell.slo_percentile == 100:
            continue
        for label, where in measured_alone(cell):
            key = (label, where.contents())
            if key not in known:
                known[key] = int(rate_of(label, where, machines, tmp_path) * where.seconds / 2)
            needed = 10 / (1 - cell.slo_percentile / 100)
            assert known[key] >= 0.99 * needed, f"{name}: {cell.label()}: {label}"


def rate_of(label: str, cell: PmCell, machines: Machines, folder: Path) -> float:
    """Return the requests per second of a stand-in."""
    short = cell.model_copy(update={"seconds": 60.0})
    maker = TraceMaker(short, 5, machines, folder)
    on_ram = maker.row(label).storage_load is None
    row, costs = maker.row(label), maker.ram if on_ram else maker.disk
    made = maker.standin(row, costs, "ram" if on_ram else None)
    return len(made.block) / 60


def local_machines(folder: Path) -> Machines:
    """Return machines like testbed/specs/pm-local.yaml: fio's disk profile by request size."""
    sizes = 2.0 ** np.arange(9, 21)
    rates = (sizes / (0.0048 + sizes / 150e6)).tolist()
    rows = [
        {"requestSize": size, "readBandwidth": rate, "writeBandwidth": rate}
        for size, rate in zip(sizes.tolist(), rates, strict=True)
    ]
    path = folder / "queue-disk.json"
    path.write_text(json.dumps({"type": "storageSSD", "bandwidthTable": rows}))
    return Machines(link=200e6, other_links={"ram": 100e6}, disk=path)
