"""Adding and removing storage nodes and disks while tenants work, and passes of the replicators."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.agent.reach import every, reach
from testbed.ssh import Shell
from testbed.stores.contract import Effect
from testbed.stores.swift.cluster import State
from testbed.stores.swift.confs import DEVICES, ETC, VENV
from testbed.stores.swift.store import SwiftStore

_PASS_S = 300.0
_PASSES = 4
_SLOW_S = 60.0
_REPLICATE = f"""
logs=/run/hotbed-swift
mkdir -p $logs && chown hotbed-swift: $logs
failed=
for daemon in object-replicator container-replicator account-replicator object-updater \\
        container-updater; do
    {VENV}/bin/python -s {VENV}/bin/swift-$daemon {ETC}/${{daemon%-*}}-$1.conf once -v \\
        > $logs/$daemon.log 2>&1 || failed="$failed $daemon"
done
[ -z "$failed" ] || {{ echo "these failed:$failed (see $logs)" >&2; exit 1; }}
"""
_COUNT = f"find {DEVICES} -name '*.data' -o -name '*.db' | wc -l"


class StorageChanges:
    """Changes of the rings of one store; `shell_to` reaches a node by its name."""

    def __init__(self, store: SwiftStore, shell_to: Callable[[str], Shell] | None = None) -> None:
        self._store = store
        self._shell = shell_to or (lambda node: reach(store.config, node))

    def add(self, node: str, microstore: str, disks: Sequence[str] | None = None) -> Effect:
        """Give a storage node, or more of its disks, to the microstores that share `microstore`'s
        storage. Partitions that it gets follow by a pass of the replicators; until then a reader
        finds them where they were."""

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
        """Empty a storage node, or some of its disks, and take it out of the rings. It goes on
        serving what it holds until that is elsewhere.

        The effect fails, and the node stays in the rings without partitions, when the replicators
        do not come to an end.
        """

        def work() -> str:
            now = self._store.state()
            storage = next((one for one, nodes in now.members.items() if node in nodes), "")
            if not storage:
                raise UserError(f"node {node} is in no ring.")
            left = {name: held for name, held in now.members[storage].items() if name != node}
            if disks:
                rest = tuple(disk for disk in now.members[storage][node] if disk not in disks)
                if rest:
                    left = {**now.members[storage], node: rest}
            if len(left) < self._store.cluster.replicas:
                raise UserError(
                    f"without {node} there are {len(left)} storage nodes for "
                    f"{self._store.cluster.replicas} replicas: add another one first."
                )
            whole = node not in left
            if whole:
                self.put_rings(now, storage, emptied=(node,))
                self.empty(now, storage, node)
            after = replace(now, members={**now.members, storage: left})
            self.put_rings(after, storage)
            if not whole:
                self.replicate(after, storage)
            self._store.share(now, after)
            return f"{node} is out of the rings" if whole else f"disks of {node} are"

        with self._store.locked():
            return self._store.timed(work)

    def empty(self, state: State, storage: str, node: str) -> None:
        """Passes of the replicators until a node that has no partitions holds no object.

        Raises:
            StoreError: it still holds some.
        """
        for _ in range(_PASSES):
            self.replicate(state, storage)
            left = int(self._shell(node).run(["sh", "-c", _COUNT]).text)
            if not left:
                return
        raise StoreError(
            f"node {node} still holds {left} objects and databases after {_PASSES} passes."
        )

    def replicate(self, state: State, storage: str) -> float:
        """A pass of all replicators and updaters on every node of a set; seconds."""
        began = time.monotonic()
        first = next(
            name
            for name in self._store.cluster.microstores
            if self._store.cluster.set_of(name) == storage
        )

        def one(node: str) -> str:
            argv = ["sh", "-c", _REPLICATE, "replicate", first]
            return self._shell(node).run(argv, timeout_s=_PASS_S).text

        every(state.members[storage], one)
        return time.monotonic() - began

    def replicated(self) -> Effect:
        """`replicate` for everything, as an effect."""

        def work() -> str:
            state = self._store.state()
            for storage in state.members:
                self.replicate(state, storage)
            return "every replicator has made a pass"

        return self._store.timed(work)

    def put_rings(
        self, state: State, storage: str, emptied: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        """Build a set's rings and bring them to every server, storage nodes first."""
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
