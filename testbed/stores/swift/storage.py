"""Adding and removing storage nodes and disks under load, and passes of the replicators."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from schemas.errors import RemoteError, StoreError, UserError
from testbed.agent.reach import every, reach
from testbed.ssh import Shell
from testbed.stores.contract import Effect
from testbed.stores.swift.cluster import State
from testbed.stores.swift.passes import MOVED_BY, Passes
from testbed.stores.swift.store import SwiftStore

# Limits of a removal; none was chosen by measuring shorter or longer ones.
_PASS_S = 120.0
"""Limit of a daemon's pass on a leaving node. An interrupted pass keeps its progress. The limit
ends a hanging pass, and lets the rest be counted every few minutes."""
_WHOLE_PASS_S = 240.0
"""Limit of a daemon's pass on every node of a set: it moves what a ring change needs."""
_IDLE_PASSES = 3
"""Passes without progress after which the removal fails. One or two passes may move nothing because
the receiving nodes are busy or answer too late for Swift."""
_EMPTY_S = 420.0
"""Limit of all passes of a removal: three of the longest and a minute. A repeat resumes."""
_RELOAD_S = 16.0
"""Time until every process has read the new ring's file: Swift checks every 15 s."""
_SLOW_S = 60.0


class StorageChanges:
    """Changes of the rings of one store; `shell_to` reaches a node by its name."""

    def __init__(
        self,
        store: SwiftStore,
        shell_to: Callable[[str], Shell] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._clock, self._sleep = store, clock, sleep
        self._passes = Passes(shell_to or (lambda node: reach(store.config, node)))

    def add(self, node: str, microstore: str, disks: Sequence[str] | None = None) -> Effect:
        """Give a storage node, or more of its disks, to the microstores that share `microstore`'s
        storage. A pass of the replicators moves its partitions; until then readers find them in
        their old places."""

        def work() -> str:
            storage, now = self._set(microstore), self._store.state()
            self._is_storage(node)
            have = self._disks(node)
            given = tuple(disks or have)
            unknown = [disk for disk in given if disk not in have]
            if unknown:
                there = ", ".join(have)
                raise UserError(f"node {node} has no disk {unknown[0]!r}; it has {there}.")
            other = [one for one, nodes in now.members.items() if node in nodes and one != storage]
            if other:
                raise UserError(f"node {node} stores for {other[0]}: remove it there first.")
            members = dict(now.members[storage])
            members[node] = tuple(dict.fromkeys([*members.get(node, ()), *given]))
            after = replace(now, members={**now.members, storage: members})
            self._store.nodes.ask(self._store.changes.configure(after, [node]), _SLOW_S)
            changed = self.put_rings(after, storage)
            self._store.nodes.ask({node: {"op": "start"}}, _SLOW_S)
            self._store.share(now, after)
            return f"{node} stores for {microstore}: {changed['moved']} replicas of partitions move"

        with self._store.locked():
            return self._store.timed(work)

    def remove(self, node: str, disks: Sequence[str] | None = None) -> Effect:
        """Empty a storage node, or `disks` of it, and remove it from the rings. The node serves
        what it holds until other nodes hold it.

        The effect fails if the disks are not empty in time; they stay in the rings without
        partitions. A repeated removal resumes where it stopped.
        """

        def work() -> str:
            now = self._store.state()
            storage = next((one for one, nodes in now.members.items() if node in nodes), "")
            if not storage:
                raise UserError(f"node {node} is in no ring.")
            left = {name: held for name, held in now.members[storage].items() if name != node}
            have = now.members[storage][node]
            unknown = [disk for disk in disks or () if disk not in have]
            if unknown:
                raise UserError(
                    f"disk {unknown[0]!r} of node {node} is in no ring; {', '.join(have)} are."
                )
            if disks:
                rest = tuple(disk for disk in have if disk not in disks)
                if rest:
                    left = {**now.members[storage], node: rest}
            if len(left) < self._store.cluster.replicas:
                raise UserError(
                    f"without {node} there are {len(left)} storage nodes for "
                    f"{self._store.cluster.replicas} replicas: add another one first."
                )
            going = [disk for disk in have if disk not in left.get(node, ())]
            self.put_rings(now, storage, emptied=[(node, disk) for disk in going])
            self.empty(storage, node, going)
            after = replace(now, members={**now.members, storage: left})
            self.put_rings(after, storage)
            self._store.share(now, after)
            if node not in left:
                return f"{node} is out of the rings"
            return f"{', '.join(going)} of {node} out of the rings"

        with self._store.locked():
            return self._store.timed(work)

    def empty(self, storage: str, node: str, disks: Sequence[str]) -> None:
        """Run passes on a node until `disks`, which have no partitions, hold nothing.

        Only this node's daemons run, and only those with data to move. The disks count as empty
        only after every proxy must have read the new rings: until then, a proxy may still write
        there.

        Raises:
            StoreError: the disks still hold data after idle passes or the time limit.
        """
        began = self._clock()
        least, idle, said = math.inf, 0, ""
        while True:
            held = self._passes.held(node, disks)
            left, now = sum(held.values()), self._clock()
            settled = began + _RELOAD_S
            if not left and now >= settled:
                return
            if not left:
                self._sleep(settled - now)
                continue
            idle = 0 if left < least or now < settled else idle + 1
            least = min(least, left)
            if idle >= _IDLE_PASSES or now >= began + _EMPTY_S:
                raise StoreError(_stuck(node, disks, held, now - began, said))
            daemons = [MOVED_BY[kind] for kind, count in held.items() if count]
            try:
                said = ""
                self._passes.run(node, self._first(storage), daemons, limit_s=_PASS_S)
            except RemoteError as error:  # the remaining data decide
                said = str(error)

    def replicate(self, state: State, storage: str) -> float:
        """Run a pass of all replicators and updaters on every node of a set; return seconds.

        Raises:
            RemoteError: a daemon failed or took too long.
        """
        began, first = self._clock(), self._first(storage)
        every(
            state.members[storage],
            lambda node: self._passes.run(node, first, limit_s=_WHOLE_PASS_S),
        )
        return self._clock() - began

    def replicated(self) -> Effect:
        """Run `replicate` for everything; return an effect."""

        def work() -> str:
            state = self._store.state()
            for storage in state.members:
                self.replicate(state, storage)
            return "every replicator has made a pass"

        return self._store.timed(work)

    def put_rings(
        self, state: State, storage: str, emptied: Sequence[tuple[str, str]] = ()
    ) -> Mapping[str, Any]:
        """Build a set's rings and send them to every server, storage nodes first."""
        changes, store = self._store.changes, self._store
        built = changes.build_rings(state, storage, emptied)
        changed: list[str] = []
        for requests in changes.ring_requests(state, built["rings"]):
            for answer in store.nodes.ask(requests).values():
                changed += answer["changed"]
        if built["changed"] or changed:
            state = replace(state, rings=state.rings + 1)
        store.write(state)
        return {"changed": changed, "moved": built["moved"], "balance": built["balance"]}

    # -- inside ---------------------------------------------------------------------------------

    def _first(self, storage: str) -> str:
        """Return a microstore of a storage node set: all its microstores see the same objects."""
        return next(
            name
            for name in self._store.cluster.microstores
            if self._store.cluster.set_of(name) == storage
        )

    def _set(self, microstore: str) -> str:
        if microstore not in self._store.cluster.microstores:
            there = ", ".join(self._store.cluster.microstores)
            raise UserError(f"there is no microstore {microstore!r}; there are {there}.")
        return self._store.cluster.set_of(microstore)

    def _is_storage(self, node: str) -> None:
        names = [one.name for one in self._store.config.nodes if "storage" in one.roles]
        if node not in names:
            raise UserError(f"node {node!r} is no storage node; there are {', '.join(names)}.")

    def _disks(self, node: str) -> tuple[str, ...]:
        return self._store.cluster.disks[node]


def _stuck(
    node: str, disks: Sequence[str], held: Mapping[str, int], seconds: float, said: str
) -> str:
    what = ", ".join(f"{count} in {kind}" for kind, count in held.items() if count)
    because = f" Last pass: {said}" if said else ""
    return (
        f"disks {', '.join(disks)} of node {node} are not empty after {seconds:.0f} s ({what}): "
        f"remove again to go on.{because}"
    )
