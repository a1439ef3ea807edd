"""Equality of the data plane's and the planner's estimator, through one common file.

`dataplane/estimator` tests itself against testdata/golden.json; these tests compare the file with
the Python code. HOTBED_WRITE_GOLDEN=1 rewrites the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controllers.prioritymeister.estimators import STAGES, parse_profile
from workloads.traces.requests import RequestBlock

GOLDEN = Path(__file__).parents[3] / "dataplane" / "estimator" / "testdata" / "golden.json"
COUNT = 250


def _profiles() -> list[dict[str, Any]]:
    """Return one profile of each type; the table's two kinds differ in shape."""
    random = np.random.default_rng(11)

    def table(offsets: list[float], distances: list[float]) -> dict[str, Any]:
        shape = (len(offsets), len(distances))
        return {
            "offsets": offsets,
            "distances": distances,
            "base": random.uniform(0, 0.02, shape).tolist(),
            "bandwidth": random.uniform(2e7, 2e8, shape).tolist(),
        }

    sizes = [512, 4096, 65536, 1048576]
    by_size = [
        {"requestSize": s, "readBandwidth": 3e4 * s**0.6, "writeBandwidth": 2e4 * s**0.6}
        for s in sizes
    ]
    return [
        {"type": "storageSSD", "bandwidthTable": by_size},
        {
            "type": "storageConstant",
            "base": 0.004,
            "readBandwidth": 1.1e8,
            "writeBandwidth": 0.9e8,
            "network": {"dataConstant": 100, "dataFactor": 1.04, "nonDataConstant": 90},
            "overhead": {"request": 0.0003, "latency": 0.01},
        },
        {
            "type": "storageTable",
            "history": 3,
            "read": table([0, 2**30, 2**34], [-(2**34), -(2**20), 0, 2**20, 2**34]),
            "write": table([2**32], [-(2**30), 2**30]),
        },
    ]


def _requests() -> list[dict[str, Any]]:
    """Return random requests, a third of them right behind one of the last six."""
    random = np.random.default_rng(12)
    out: list[dict[str, Any]] = []
    for _ in range(COUNT):
        offset = int(random.integers(0, 2**35))
        if out and random.random() < 1 / 3:
            before = out[-int(random.integers(1, min(len(out), 6) + 1))]
            offset = before["offset"] + before["size"]
        size = int(random.choice([512, 4096, 5000, 65536, 300_000, 4 << 20]))
        out.append({"read": bool(random.random() < 0.6), "offset": offset, "size": size})
    return out


def _with_results(profile: dict[str, Any], requests: list[dict[str, Any]]) -> dict[str, Any]:
    costs = parse_profile(profile)
    block = RequestBlock(
        np.arange(len(requests), dtype=np.int64),
        np.array([r["size"] for r in requests], np.int64),
        np.array([r["read"] for r in requests], np.bool_),
        np.array([r["offset"] for r in requests], np.int64),
    )
    work = {stage: costs.work(stage, block).tolist() for stage in STAGES}
    return {
        "profile": profile,
        "requests": requests,
        "work": work["storage"],
        "network_in": work["network-in"],
        "network_out": work["network-out"],
    }


@pytest.mark.skipif(not os.environ.get("HOTBED_WRITE_GOLDEN"), reason="writes the file anew")
def test_write() -> None:
    cases = [_with_results(profile, _requests()) for profile in _profiles()]
    rows = ",\n".join(json.dumps(case) for case in cases)
    GOLDEN.write_text(f"[\n{rows}\n]\n")


def test_the_file_has_what_the_estimators_give() -> None:
    cases = json.loads(GOLDEN.read_text())
    assert [case["profile"]["type"] for case in cases] == [
        "storageSSD",
        "storageConstant",
        "storageTable",
    ]
    for case in cases:
        found = _with_results(case["profile"], case["requests"])
        assert len(found["work"]) == COUNT
        for key in ("work", "network_in", "network_out"):
            np.testing.assert_allclose(found[key], case[key], rtol=1e-13)
