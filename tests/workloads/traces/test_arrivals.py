"""Generators compared with the formulas of their processes; stand-ins compared with Table 2."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.errors import UserError
from tests.errors import raises
from workloads.traces import arrivals, standins
from workloads.traces.requests import RequestBlock


def test_poisson_and_hyperexponential_have_their_moments() -> None:
    gaps = np.diff(arrivals.poisson(50.0, 200_000, seed=1))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01)
    assert arrivals.scv(gaps) == pytest.approx(1.0, rel=0.02)
    gaps = np.diff(arrivals.hyperexponential(50.0, 20.0, 2_000_000, seed=1))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01)
    assert arrivals.scv(gaps) == pytest.approx(20.0, rel=0.05)


@pytest.mark.parametrize("c2", [1.0, 1.3, 14.0, 145.0])
def test_exact_gaps_have_c2_in_a_short_trace(c2: float) -> None:
    times = arrivals.hyperexponential(10.0, c2, 4000, seed=2, exact=True)
    gaps = np.diff(times)
    assert times[0] == 0
    assert (gaps >= 0).all()
    assert arrivals.scv(gaps) == pytest.approx(c2, rel=1e-6)
    assert gaps.mean() == pytest.approx(0.1, rel=1e-9)
    first, other = (arrivals.hyperexponential(10.0, c2, 4000, seed=s, exact=True) for s in (2, 3))
    assert (first == times).all()
    assert not (first == other).all()
    with raises(UserError, "cannot have a C2 of 145"):
        arrivals.hyperexponential(10.0, 145.0, 50, seed=2, exact=True)
    with raises(UserError, "at least 1"):
        arrivals.hyperexponential(10.0, 0.5, 50, seed=2)


@pytest.mark.parametrize(("c2", "burst_s"), [(5.0, 0.5), (20.0, 2.0)])
def test_interrupted_poisson_has_c2_and_rate(c2: float, burst_s: float) -> None:
    times = arrivals.interrupted_poisson(40.0, c2, burst_s, 1_500_000, seed=3)
    gaps = np.diff(times)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(1 / 40, rel=0.03)
    assert arrivals.scv(gaps) == pytest.approx(c2, rel=0.05)


def test_requests_are_sequential_and_read_as_asked() -> None:
    block = arrivals.requests(
        np.arange(20_000.0), size=8192, read_share=0.7, sequential_share=0.4, seed=5
    )
    follows = block.offset[1:] == block.offset[:-1] + 8192
    assert follows.mean() == pytest.approx(0.4, abs=0.02)
    assert block.read.mean() == pytest.approx(0.7, abs=0.02)
    for n, reads in ((1000, 600), (7, 4), (1, 1)):
        times = np.arange(float(n))
        exact = arrivals.requests(times, size=4096, read_share=0.6, seed=3, exact=True)
        assert exact.read.sum() == reads
        assert n < 1000 or 0.3 < exact.read[:500].mean() < 0.9, "in no order"
    with raises(UserError, "multiple of 512"):
        arrivals.requests(np.arange(3.0), size=100, read_share=0.5)


def work(block: RequestBlock) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the work on a disk: 6 ms unless sequential, 150 MB/s."""
    follows = np.append(False, block.offset[1:] == block.offset[:-1] + block.size[:-1])
    return np.where(follows, 0.0, 0.006) + block.size / 150e6


def wire(block: RequestBlock) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.where(block.read, 200 + 1.1 * block.size, 200 + 0.025 * block.size)


@pytest.mark.slow
@pytest.mark.parametrize("label", [label for label in standins.TABLE2 if label != "L"])
def test_stand_ins_meet_table_2(label: str) -> None:
    made = standins.make(label, work, wire, 125e6, seconds=60, seed=1)
    row, block = made.row, made.block
    seconds = float(block.time_ns[-1] - block.time_ns[0]) / 1e9
    assert 0.99 * 60 < seconds < 60 + 1e-6, "a cut at what was asked for leaves all"
    assert row.network_load is not None
    assert wire(block).sum() / seconds / 125e6 == pytest.approx(row.network_load, rel=0.005)
    stated = standins.TABLE2[label].network_load
    assert row.network_load == pytest.approx(stated, rel=0.02)
    if row.storage_load is not None:
        assert work(block).sum() / seconds == pytest.approx(row.storage_load, rel=0.005)
    assert arrivals.scv(np.diff(block.time_ns).astype(float)) == pytest.approx(row.c2, rel=0.01)


def test_a_copy_is_all_of_a_file_and_keeps_its_device_busy() -> None:
    made = standins.make("L", work, wire, 125e6, seconds=30)
    assert not made.block.read.any()
    assert work(made.block).sum() == pytest.approx(30, rel=0.1)
    block = arrivals.file_copy(10_500, 4096, 1000.0)
    assert block.size.tolist() == [4096, 4096, 2308]
    assert block.offset.tolist() == [0, 4096, 8192]
    assert block.time_ns.tolist() == [0, 4_096_000_000, 8_192_000_000]
