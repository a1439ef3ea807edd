"""Equality of the data plane's and the planner's estimator, through one common file.

`dataplane/estimator` tests itself against testdata/golden.json; these tests compare the file with
the Python code. HOTBED_WRITE_GOLDEN=1 rewrites its results.
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
    cases = [_with_results(c["profile"], c["requests"]) for c in json.loads(GOLDEN.read_text())]
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
