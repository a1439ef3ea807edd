"""Ursa's plans applied to a real Ceph: no byte is lost.

Objects of several sizes are written to every placement group. The store's own actions apply a plan
for made-up loads: swaps, then moves. Every object is read and compared after each phase and after
the return to the start. In between, every replica in turn becomes primary, so that the bytes of
each replica are read.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from controllers.ursa.check import check
from controllers.ursa.instance import Instance, MigrationPlan, Racks, Timer
from controllers.ursa.plan import plan
from testbed.agent.openloop.plan import names_for
from testbed.client import AgentClient, agent_client
from testbed.reach import shell_to
from testbed.sites.contract import Testbed
from testbed.stores.contract import Action, ClearUpmap, MoveReplica, SwapPrimary, action_to_json

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

SIZES = (0, 1, 4096, 700_001)
CLEAN_S = 180.0
OBJECTS = """
import json, random, sys, rados
names, sizes = json.load(sys.stdin)
cluster = rados.Rados(conffile="/etc/ceph/ceph.conf"); cluster.connect(timeout=10)
ioctx = cluster.open_ioctx("bench")
def content(name, number):
    return random.Random(name).randbytes(sizes[number % len(sizes)])
"""
WRITE = (
    OBJECTS
    + """
for number, name in enumerate(names):
    ioctx.write_full(name, content(name, number))
"""
)
VERIFY = (
    OBJECTS
    + """
wrong = []
for number, name in enumerate(names):
    wanted = content(name, number)
    if ioctx.stat(name)[0] != len(wanted) or ioctx.read(name, 2 * len(wanted) + 1) != wanted:
        wrong.append(name)
print(json.dumps(wrong))
"""
)
STORE = """
import json, os, sys
from testbed.agent.contract import load_config
from testbed.agent.sense import open_store
from testbed.stores.contract import OSDS, PGS, action_from_json
store = open_store(load_config(), None)
"""
SENSE = (
    STORE
    + """
seen = store.sense(frozenset({OSDS, PGS}))
print(json.dumps({
    "pgs": {pg.id: [pg.up, pg.acting, pg.upmap] for pg in seen.pgs},
    "osds": {osd.id: osd.node for osd in seen.osds},
}), flush=True)
os._exit(0)
"""
)
ACT = (
    STORE
    + """
effects = store.act([action_from_json(each) for each in json.load(sys.stdin)])
print(json.dumps([[effect.ok, effect.message] for effect in effects]), flush=True)
os._exit(0)
"""
)


class Store:
    """Deployed store, as the engine reaches it."""

    def __init__(self, testbed: Testbed) -> None:
        self._shell = shell_to(testbed, testbed.admin)
        self._agent: AgentClient = agent_client(testbed)
        self.names: list[str] = []

    def _python(self, code: str, data: Any = None) -> Any:
        argv = ["env", "PYTHONPATH=/opt/hotbed", "PYTHONDONTWRITEBYTECODE=1", "python3", "-c", code]
        done = self._shell.run(argv, input=json.dumps(data).encode(), timeout_s=300.0)
        return json.loads(done.text) if done.text.strip() else None

    def sense(self) -> tuple[dict[str, list[int]], dict[str, list[int]], dict[int, str]]:
        """Return up set and acting set by PG, and node by OSD."""
        seen = self._python(SENSE)
        up = {pgid: sets[0] for pgid, sets in seen["pgs"].items()}
        acting = {pgid: sets[1] for pgid, sets in seen["pgs"].items()}
        return up, acting, {int(osd): node for osd, node in seen["osds"].items()}

    def write(self, names: Sequence[str]) -> None:
        """Write every object."""
        self.names = list(names)
        self._python(WRITE, [self.names, SIZES])

    def verify(self) -> None:
        """Read every object and compare."""
        assert self._python(VERIFY, [self.names, SIZES]) == []

    def act(self, actions: Sequence[Action]) -> None:
        """Apply actions in one step, and wait until the data is where the map requires."""
        effects = self._python(ACT, [action_to_json(action) for action in actions])
        assert [message for ok, message in effects if not ok] == []
        end = time.monotonic() + CLEAN_S
        while True:
            self._agent.call("wait-clean", {"timeout_s": CLEAN_S}, timeout_s=CLEAN_S + 30)
            up, acting, _ = self.sense()
            if up == acting:
                return
            assert time.monotonic() < end, "some acting set is not its up set"


@pytest.fixture(scope="module")
def store(deployed: Testbed) -> Store:
    return Store(deployed)


def instance_of(up: Mapping[str, list[int]], nodes: Mapping[int, str]) -> Instance:
    """Return loads that keep osd.0 hot even after all its primaries are swapped away."""
    draw = random.Random(4)
    replica = np.array(list(up.values()), np.int32)
    heavy = (replica == 0).any(axis=1)
    secondary = np.array([draw.uniform(1, 2) for _ in up], np.float32) * np.where(heavy, 3, 1)
    domains = sorted(set(nodes.values()))
    total = float((secondary * (2 + replica.shape[1] - 1)).sum())
    return Instance(
        replica_node=replica,
        primary_load=(2 * secondary).astype(np.float32),
        secondary_load=secondary.astype(np.float32),
        capacity=np.full(len(nodes), 1.1 * total / len(nodes), np.float32),
        fault_domain=np.array([domains.index(nodes[osd]) for osd in sorted(nodes)], np.int32),
        distance=Racks(
            rack=np.array([osd % 2 for osd in sorted(nodes)], np.int32),
            rack_distance=np.array([[1, 5], [5, 1]], np.float32),
        ),
    )


def actions_of(
    found: MigrationPlan, pgs: Sequence[str], replica: Any
) -> tuple[list[Action], list[Action], dict[str, set[int]], dict[str, int]]:
    """Return swaps, moves, and the final members and primary of each PG."""
    columns = np.zeros(len(pgs), np.int64)
    for partition, column in zip(found.swap_partition, found.swap_replica, strict=True):
        columns[partition] = column  # the last of several swaps of one PG counts
    final = replica.copy()
    for partition, column, to in zip(
        found.move_partition, found.move_replica, found.move_to, strict=True
    ):
        final[partition, column] = to
    swaps: list[Action] = [
        SwapPrimary(pgs[n], int(replica[n, column])) for n, column in enumerate(columns) if column
    ]
    moves: list[Action] = [
        MoveReplica(pgs[n], int(replica[n, column]), int(final[n, column]))
        for n, column in zip(*np.nonzero(final != replica), strict=True)
    ]
    members = {pgid: set(row.tolist()) for pgid, row in zip(pgs, final, strict=True)}
    primaries = {pgid: int(final[n, columns[n]]) for n, pgid in enumerate(pgs)}
    return swaps, moves, members, primaries


def test_a_plan_is_carried_out_and_no_byte_is_lost(store: Store) -> None:
    before, _, nodes = store.sense()
    pgs = list(before)
    pool = int(pgs[0].split(".")[0])
    named = names_for(pgs, pool, len(pgs), len(SIZES), prefix="hotbed-kept")
    store.write([name for each in named.values() for name in each])
    store.verify()

    problem = instance_of(before, nodes)
    found = plan(problem, "alp-fast", timer=Timer(time.monotonic), seed=1)
    assert check(problem, found).violations == []
    assert len(found.still_hot) == 0
    swaps, moves, members, primaries = actions_of(found, pgs, problem.replica_node)
    assert swaps and moves

    try:
        store.act(swaps)
        up, _, _ = store.sense()
        for swap in swaps:
            assert isinstance(swap, SwapPrimary)
            assert up[swap.pg][0] == swap.osd
            assert set(up[swap.pg]) == set(before[swap.pg])  # no data moved
        store.verify()

        store.act(moves)
        up, _, _ = store.sense()
        assert {pgid: set(osds) for pgid, osds in up.items()} == members
        assert {pgid: osds[0] for pgid, osds in up.items()} == primaries
        store.verify()

        # Read every other replica's bytes too, above all the moved ones.
        for _ in range(len(up[pgs[0]]) - 1):
            up, _, _ = store.sense()
            store.act([SwapPrimary(pgid, osds[-1]) for pgid, osds in up.items()])
            store.verify()
    finally:
        # A pg-upmap may hide pg-upmap-items, and one clear removes one of them.
        for _ in range(2):
            store.act([ClearUpmap(pgid) for pgid in pgs])
    after, _, _ = store.sense()
    assert after == before
    store.verify()
