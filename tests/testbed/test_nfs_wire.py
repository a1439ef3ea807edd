"""Real sizes of NFS requests compared with the estimators' values."""

from __future__ import annotations

import numpy as np
import pytest

from controllers.prioritymeister.estimators import NetworkCost
from controllers.prioritymeister.profiles import parse_profile
from testbed.deploy.nfs_variables import profile_of
from testbed.spec import DiskSpec
from testbed.stores.nfs.wire import frame_of, network_of, segment_of, sent

SIZES = [1, 512, 1000, *range(1024, 70_000, 1024), 1 << 18, (1 << 20) - 1, 1 << 20]


def estimated(cost: NetworkCost, size: int, *, read: bool) -> tuple[float, float]:
    kind = np.array([read])
    return float(cost.bytes_in(np.array([size]), kind)[0]), float(
        cost.bytes_out(np.array([size]), kind)[0]
    )


def test_usual_costs_are_less_than_small_requests_send() -> None:
    """Testbeds need their own costs: a bucket with the usual mean rate holds requests back."""
    for size, read in ((4096, True), (512, True), (4096, False)):
        real, said = sent(size, read=read), estimated(NetworkCost(), size, read=read)
        assert min(s / r for r, s in zip(real, said, strict=True)) < 0.8


def test_frames_and_segments_of_ethernet() -> None:
    assert (frame_of(), segment_of()) == (1538, 1448)
    assert (frame_of(9000), segment_of(9000)) == (9038, 8948)
    # Older measured profiles hold exactly these numbers.
    assert network_of() == {
        "dataConstant": 430.0,
        "dataFactor": 1.063,
        "nonDataConstant": 400.0,
        "nonDataFactor": 0.032,
    }
    assert sent(1 << 20, read=True, mtu=9000)[1] < 0.96 * sent(1 << 20, read=True)[1]


@pytest.mark.parametrize("mtu", [1280, 1500, 4470, 9000, 65520])
def test_costs_of_testbeds_are_never_below_what_is_sent(mtu: int) -> None:
    disk = DiskSpec(size=1 << 32, scratch=0, positioning=0.004, bandwidth=1.5e8, queue_depth=32)
    costs = parse_profile(profile_of(disk, mtu)).network
    assert profile_of(disk, mtu)["network"] == network_of(mtu)
    segment = segment_of(mtu)
    edges = [n * segment + d for n in (1, 2, 3) for d in range(-220, 3) if n * segment + d > 0]
    for size in [*SIZES, *edges]:
        for read in (True, False):
            pairs = zip(
                sent(size, read=read, mtu=mtu), estimated(costs, size, read=read), strict=True
            )
            for real, said in pairs:
                assert real <= said <= 1.6 * real
