"""Campaign blocks as windows of real traces."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_kinds import PM as TINY_PM
from tiny_kinds import written

from campaigns.engine import session
from campaigns.engine.plan import Cell
from campaigns.engine.session import Request
from campaigns.engine.workers import Workers
from campaigns.papers.prioritymeister import real_traces
from campaigns.papers.prioritymeister.foreseen import require_windows
from campaigns.papers.prioritymeister.machines import Machines
from campaigns.papers.prioritymeister.mixes import build
from campaigns.papers.prioritymeister.real_traces import window
from controllers.prioritymeister.estimators import Costs, SizeProfile
from schemas.cells.prioritymeister import PM
from schemas.errors import UserError
from workloads.traces.reader import TraceReader, load
from workloads.traces.requests import RequestBlock, save

SLOW = Costs(SizeProfile(np.array([4096.0]), np.array([1e8]), np.array([1e8])))


def ten_seconds(folder: Path) -> RequestBlock:
    """Write A.csv.gz: 1,000 requests of 41 us each at random times within ten seconds."""
    random = np.random.default_rng(5)
    times = np.sort(random.integers(0, 10**10, 1000))
    times[[0, -1]] = 0, 10**10
    whole = RequestBlock(
        times, np.full(1000, 4096), random.random(1000) < 0.5, np.arange(1000) * 4096
    )
    save([whole], folder / "A.csv.gz")
    return whole


def test_consecutive_windows_of_a_real_trace_are_all_of_it_once(tmp_path: Path) -> None:
    whole = ten_seconds(tmp_path)
    windows = [
        window(tmp_path, "A", SLOW, load=None, seconds=2.5, seed=3, place=k) for k in range(4)
    ]
    assert all(one is not None and one.time_ns[-1] < 2.5e9 for one in windows)
    back = [one.time_ns + k * 2_500_000_000 for k, one in enumerate(windows) if one is not None]
    assert np.concatenate(back).tolist() == whole.time_ns[:-1].tolist()
    offsets = np.concatenate([one.offset for one in windows if one is not None])
    assert offsets.tolist() == whole.offset[:-1].tolist()
    with pytest.raises(
        UserError, match=r"lasts 10 s .*, 4 windows of 2\.5 s .* too few for 5 blocks: fewer r"
    ):
        window(tmp_path, "A", SLOW, load=None, seconds=2.5, seed=3, place=4)
    # At half the speed there are half the requests and twice as many windows.
    own = whole.size.sum() / 1e8 / 10
    last = window(tmp_path, "A", SLOW, load=own / 2, seconds=2.5, seed=3, place=7)
    assert last is not None and 80 < len(last) < 170
    with pytest.raises(UserError, match="8 windows"):
        window(tmp_path, "A", SLOW, load=own / 2, seconds=2.5, seed=3, place=8)
    with pytest.raises(UserError, match="has no two requests in a window of 1e-06 s"):
        window(tmp_path, "A", SLOW, load=None, seconds=1e-6, seed=3, place=1)


@pytest.mark.parametrize("seconds", [3.0, 25.0])
def test_a_window_is_the_same_however_a_trace_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    whole = ten_seconds(tmp_path)
    one = window(tmp_path, "A", SLOW, load=None, seconds=seconds, seed=3)
    monkeypatch.setattr(real_traces, "TraceReader", partial(TraceReader, block=64))
    other = window(tmp_path, "A", SLOW, load=None, seconds=seconds, seed=3)
    assert one is not None and other is not None
    for column in ("time_ns", "size", "read", "offset"):
        assert getattr(one, column).tolist() == getattr(other, column).tolist()
    assert len(one) == pytest.approx(len(whole) * seconds / 10, rel=0.2)


def test_blocks_have_windows_of_real_traces_and_their_own_speed(tmp_path: Path) -> None:
    whole, folder = ten_seconds(tmp_path), tmp_path / "mix"
    found = []
    told: dict[str, Any] = {"scenario": "disk", "seconds": 10, "traces": str(tmp_path)}
    (tmp_path / "A.csv.gz").unlink()
    later = RequestBlock(10 * whole.time_ns, whole.size, whole.read, whole.offset)
    save([later], tmp_path / "A.csv.gz")
    cell = PM.of(**told, trace_windows="consecutive", trace_load="own")
    for block in (0, 1):
        folder.mkdir()
        build(cell, 5, Machines(), folder, block=block)
        found.append(load(folder / "A.csv")[0].offset)
        shutil.rmtree(folder)
    assert found[0][0] == 0
    assert found[0][-1] + 4096 == found[1][0]
    for name, value in (("trace_windows", "consecutive"), ("trace_load", "own")):
        with pytest.raises(UserError, match=f"{name} is of real traces: name their folder"):
            PM.check({"scenario": "disk", name: value}, "a cell")
    assert cell.contents() != PM.of(**told).contents()


def campaign_of(folder: Path, repetitions: int, **fixed: Any) -> Path:
    """Write a campaign with consecutive windows of the folder's traces as blocks."""
    told = {"scenario": "disk", "traces": str(folder), "trace_windows": "consecutive"}
    grid = {**TINY_PM["grids"][0], "repetitions": repetitions, "fixed": told | fixed}
    return written(folder, TINY_PM, grids=[grid], parameters={"seconds": 10, "slo_percentile": 50})


@pytest.mark.parametrize(("load", "there"), [("table2", 2), ("own", 4)])
def test_more_blocks_than_a_trace_has_windows_are_refused_before_any_runs(
    tmp_path: Path, load: str, there: int
) -> None:
    whole, disk = ten_seconds(tmp_path), tmp_path / "disk.json"
    (tmp_path / "A.csv.gz").unlink()
    longer = RequestBlock(4 * whole.time_ns, whole.size, whole.read, whole.offset)
    save([longer], tmp_path / "A.csv.gz")
    # The whole trace is 1.25 s of this disk. For A's 5 % share it is played in 25 s.
    rate = float(whole.size.sum()) / 1.25
    rows = [{"requestSize": 4096, "readBandwidth": rate, "writeBandwidth": rate}]
    disk.write_text(json.dumps({"type": "storageSSD", "bandwidthTable": rows}))
    artifacts = tmp_path / "artifacts"

    def asked(blocks: int) -> Request:
        told = {"trace_load": load, "device_profile": str(disk)}
        return Request(str(campaign_of(tmp_path, blocks, **told)), artifacts=artifacts)

    assert session.dry_run(asked(there)).cells == 4 * there
    says = rf"A\.csv\.gz: lasts .*, {there} windows of 10 s .* too few for {there + 1} blocks: fe"
    for carry_out in (session.dry_run, session.run):
        with pytest.raises(UserError, match=says):
            carry_out(asked(there + 1))
    assert not artifacts.exists()
    # The traces of a cluster's workers are unknown here.
    afar = Workers(scheduler="tcp://127.0.0.1:8786")
    assert session.dry_run(asked(there + 1), workers=afar).cells == 4 * (there + 1)


def test_what_is_no_window_of_a_real_trace_is_not_looked_at(tmp_path: Path) -> None:
    ten_seconds(tmp_path)
    told: dict[str, Any] = {"scenario": "disk", "seconds": 10, "traces": str(tmp_path)}
    own = told | {"trace_windows": "consecutive", "trace_load": "own"}
    says = "1 windows of 10 s one after the other, too few for 3 blocks"

    def require(disk: Path | None = None, **more: Any) -> None:
        require_windows([Cell("x", PM.of(**more), 2, 5, 0, (), ())], disk)

    require(**told)  # random ones
    require(**own | {"scenario": "misbehave"})  # C and D are stand-ins
    require(**own | {"trace_load": "table2"})  # on a testbed with an unmeasured disk
    with pytest.raises(UserError, match=says):
        require(**own)
    (tmp_path / "A.csv.gz").rename(tmp_path / "K.csv.gz")  # on no disk
    require(Machines().disk, **own | {"scenario": "network"})
    (tmp_path / "K.csv.gz").rename(tmp_path / "F.csv.gz")  # H's SLO uses F's latency
    with pytest.raises(UserError, match=says):
        require(**own | {"scenario": "burst", "burst": "H"})
    (tmp_path / "F.csv.gz").rename(tmp_path / "I.csv.gz")
    require(**own | {"scenario": "network"})  # a testbed has no device like figure 9's
    with pytest.raises(UserError, match=says):
        require(Machines().disk, **own | {"scenario": "network"})
    with pytest.raises(UserError, match="is no folder of traces"):
        require(**own | {"traces": str(tmp_path / "none")})
