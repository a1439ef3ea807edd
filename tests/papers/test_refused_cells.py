"""Cells that no campaign may have: the rules of each paper's parameters. Common rules of all kinds
are tested in tests/schemas/test_cells.py and tests/campaigns/test_kinds.py."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.cells import Cells
from schemas.cells.dlr import DLR
from schemas.cells.mos import MOS
from schemas.cells.prioritymeister import PM
from schemas.cells.twochoice import BURSTS, OBJECTS
from schemas.cells.ursa import URSA
from schemas.errors import UserError
from tests.errors import raises

NAN = float("nan")
BURST = {"experiment": "burst"}
SKEW = {"op": "open", "scenario": "skew", "rate": 24.0}
S3 = {"op": "s3", "workload": "C", "workers": 8}
SIZED = {"op": "rand", "scenario": "heterogeneity", "osds": 20}
HTOC = {"size": "20-400", "method": "htoc"}
TWO = {"size": "20-400", "scheduler": "two-choice"}

WRONG: list[tuple[Cells[Any], dict[str, Any], str]] = [
    # DLR's open-loop writes, workloads on the object gateway and stores of any size.
    (DLR, {"op": "open", "scenario": "none", "rate": 5}, "with op open; allowed: skew, single"),
    (DLR, {"op": "rand", "scenario": "skew", "rate": 5}, "with op rand; allowed: none"),
    (DLR, {"op": "open", "scenario": "skew"}, "rate"),
    (DLR, {"op": "s3", "workload": "A"}, "workers"),
    (DLR, {**S3, "scenario": "skew"}, "not allowed with op s3; allowed: none, het"),
    (DLR, {**SIZED, "osds": 20_000}, "at most 10,000"),
    (DLR, {**SIZED, "hot_share": NAN}, "hot_share"),
    (DLR, {**SIZED, "hot_share": 0.5, "hot_nodes": 3}, "keep one of them"),
    # Ursa's planner.
    (URSA, {**HTOC, "size": "2-400"}, "2"),
    (URSA, {**HTOC, "size": "20-5000M"}, "20"),
    (URSA, {**HTOC, "nodes": 10}, "nodes"),
    (URSA, {**HTOC, "selection": "random"}, "selection"),
    (URSA, {**HTOC, "program": "ilp"}, "program"),
    (URSA, {**HTOC, "racks": 500}, "racks"),
    # Two-choice: simulated bursts and object servers.
    (BURSTS, {**TWO, "size": "1K"}, "'1K' is no size such as 1K-10K (servers-processes)"),
    (BURSTS, {**TWO, "size": "1-100"}, "size: '1-100' is not allowed; allowed: servers a whole"),
    (BURSTS, {**TWO, "servers": 10}, "size already says servers and processes"),
    (OBJECTS, {**BURST, "straggler_share": 0.5}, "is of the stragglers fio"),
    (OBJECTS, {**BURST, "scheduler": "two-choice", "cache_s": 0}, "cache_s is of the schedulers"),
    (OBJECTS, {**BURST, "scheduler": "crush"}, "crush is of the experiment burst with"),
    (
        OBJECTS,
        {**BURST, "backend": "rados", "scheduler": "dlr", "maintainers": False},
        "maintainers are of the agents, and dlr has none",
    ),
    (OBJECTS, {**BURST, "interval_s": 20}, "interval_s is of the scheduler dlr"),
    # PriorityMeister.
    (PM, {"scenario": "disk", "policy": "ps", "mode": "best-effort"}, "mode belongs to policy pm"),
    (PM, {"scenario": "disk", "policy": "edf", "blocking": True}, "belongs to policy pm, mclock"),
    (PM, {"scenario": "disk", "permutation": "122"}, "permutation holds each of"),
    (PM, {"scenario": "table2"}, "the scenario table2 and the policy inputs"),
    (PM, {"scenario": "burst", "burst": "H", "sharpness": 3}, "sharpness is of sharp gaps"),
    (PM, {"scenario": "disk", "trace_load": "own"}, "trace_load is of real traces: name their f"),
    # MOS on real microstores.
    (MOS, {"experiment": "load", "setup": "favors-small"}, "not allowed; allowed: default, static"),
    (MOS, {"experiment": "disks", "ssds": 0, "hdds": 0}, "storage servers need a disk"),
]


def _id(one: object) -> str:
    """Return a short text that is the same in every process."""
    return one.members[0].__name__ if isinstance(one, Cells) else str(one)[:40]


@pytest.mark.parametrize(("cells", "values", "said"), WRONG, ids=_id)
def test_a_mistake_in_a_cell_is_one_sentence(
    cells: Cells[Any], values: dict[str, Any], said: str
) -> None:
    with raises(UserError, said, where="file: grid x"):
        cells.check(values, "file: grid x")
