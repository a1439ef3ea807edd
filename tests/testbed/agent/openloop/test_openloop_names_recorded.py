"""Placement groups of names as a real cluster reported them (``ceph osd map``)."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.agent.openloop.plan import pg_of

RECORDED = Path(__file__).resolve().parents[3] / "data" / "ceph" / "16.2.15" / "osd-map-names.json"


def test_names_hash_to_the_groups_that_ceph_says() -> None:
    pools = json.loads(RECORDED.read_text())["pools"]
    assert {pool["pg_num"] for pool in pools} == {100, 128}
    for pool in pools:
        for name, pgid in pool["pgids"].items():
            assert pg_of(name, pool["pool"], pool["pg_num"]) == pgid
        # All lengths of the last block, and more than two blocks.
        assert {len(name) for name in pool["pgids"]} >= set(range(1, 38))
