"""Swift microstores for controllers (`testbed.stores.contract.Store`).

Sensed: the counters of all nodes' daemons since the previous observation. Changed: shares, whole
machines (proxies) and the microstores of tenants. Controllers cannot ask for the other changes:
layouts, proxy processes, storage nodes and disks (`testbed.stores.swift.storage`). Standard library
only: the module runs on the admin node.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, StoreError, UserError
from schemas.locks import held
from testbed.agent.contract import AgentConfig
from testbed.stores.contract import Action, Effect, Needs, Observation
from testbed.stores.microstores import (
    MACHINES,
    MICROSTORES,
    RESOURCES,
    TENANTS,
    AssignMachine,
    MapTenant,
    Microstores,
    SetResources,
)
from testbed.stores.swift import sensing
from testbed.stores.swift.changes import Changes
from testbed.stores.swift.channels import TIMEOUT_S, Lost, NodeChannels, over_ssh
from testbed.stores.swift.cluster import (
    STATE,
    SwiftCluster,
    SwiftState,
    initial,
    load_cluster,
    state_from_json,
    state_to_json,
)

_SENSE_S = 3.0
_SLOW_S = 60.0  # restarting servers
_LEAVE_S = 2.0
"""Time from informing clients about a leaving proxy until it leaves: drivers reread their file each
second (cosdrive's proxies_file)."""


class SwiftStore:
    """Store of a testbed with Swift; see the module's docstring.

    Args:
        config: the testbed.
        cluster: its deployment.
        nodes: channels to the nodes' daemons.
        path: the file that holds the state in force.
        clock: returns seconds.
        sleep: waits for the given seconds.
    """

    def __init__(
        self,
        config: AgentConfig,
        cluster: SwiftCluster,
        nodes: NodeChannels,
        path: Path = STATE,
        clock: Callable[[], float] = time.monotonic,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config, self.cluster, self.nodes = config, cluster, nodes
        self.changes = Changes(config, cluster)
        self._path, self._clock, self._sleep = path, clock, sleep
        self._began = clock()
        self._before: dict[str, Any] = {}
        self._last: dict[str, int] = {}

    kind = "Swift"

    # -- the contract ---------------------------------------------------------------------------

    def offers(self) -> Needs:
        """See `Store.offers`. Machines if the spec's pool has machines; shares of what machines do
        not carry; tenants if another microstore sees their objects."""
        machine = self.cluster.machine
        acts = set() if machine is not None and machine.storage_cores else {RESOURCES}
        if machine is not None:
            acts.add(MACHINES)
        sets = [self.cluster.set_of(store) for store in self.cluster.microstores]
        if len(set(sets)) < len(sets):
            acts.add(TENANTS)
        return Needs(frozenset({MICROSTORES}), frozenset(acts))

    def sense(self, senses: frozenset[str]) -> Observation:
        """See `Store.sense`; the first observation's rates are 0. StoreError: no node of Swift
        answers."""
        state = self.state()
        known, intervals = bool(self._before), self.intervals(state)
        seconds = max((one.seconds for one in intervals.values()), default=0.0)
        if known and not intervals:
            raise StoreError("no node of Swift answers.")
        found = self.seen(state, intervals) if MICROSTORES in senses else None
        return Observation(
            t_s=self._clock() - self._began,
            interval_s=seconds,
            signal="microstores",
            microstores=found,
        )

    def act(self, actions: Sequence[Action]) -> Sequence[Effect]:
        """See `Store.act`. All shares at once, decreases first; then machines, then tenants.
        `detail` holds the number of requests that finished and failed meanwhile."""
        effects: dict[int, Effect] = {}
        places = list(enumerate(actions))
        with self.locked():
            shares = [(n, one) for n, one in places if isinstance(one, SetResources)]
            if shares:
                effects |= self._put_shares(shares)
            for place, action in places:
                if isinstance(action, AssignMachine):
                    effects[place] = self.timed(partial(self._assign, action))
                elif isinstance(action, MapTenant):
                    effects[place] = self.timed(partial(self._map, action))
                elif not isinstance(action, SetResources):
                    effects[place] = Effect(False, f"{action!r} is nothing that Swift can do")
        return [effects[place] for place in range(len(actions))]

    def save(self) -> Mapping[str, Any]:
        """See `Store.save`."""
        return state_to_json(self.state())

    def restore(self, saved: Mapping[str, Any]) -> Sequence[Effect]:
        """See `Store.restore`: shares, machines, processes and tenants. Rings stay as they are."""
        wanted = state_from_json(saved)
        with self.locked():
            now = self.state()
            wanted = replace(wanted, members=now.members, rings=now.rings)
            effects = [self.timed(lambda: self.put(wanted))] if wanted != now else []
            if not (effects and effects[0].ok):
                self._settle(self.state())
            return effects

    # -- what there is --------------------------------------------------------------------------

    def state(self) -> SwiftState:
        """Return the state in force."""
        try:
            return state_from_json(json.loads(self._path.read_text()))
        except FileNotFoundError:
            return initial(self.cluster)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self._path} is damaged ({error}): deploy again.") from error

    def intervals(self, state: SwiftState) -> dict[str, sensing.Interval]:
        """Return each answering node's interval since the previous call; none at the first."""
        names = [*state.proxies, *self.changes.storage_nodes(state)]
        requests = {
            name: {"op": "sense", "since": self._last.get(name, -1)}
            for name in dict.fromkeys(names)
        }
        answers, _ = self.nodes.try_ask(requests, _SENSE_S)
        self._catch_up(state, answers)
        found = {}
        for name, answer in answers.items():
            if name in self._before:
                interval = sensing.interval_of(self._before[name], answer)
                if interval is not None:
                    found[name] = interval
            self._before[name] = answer
            if answer["slots"]:
                self._last[name] = answer["slots"][-1][0]
        return found

    def seen(self, state: SwiftState, intervals: Mapping[str, sensing.Interval]) -> Microstores:
        """Return intervals as microstores."""
        return sensing.microstores(self.cluster, state, intervals)

    def counted(self) -> dict[str, dict[str, Any]]:
        """Return sums of each tenant since the proxies' daemons started."""
        state = self.state()
        requests = {node: {"op": "sense", "since": -1} for node in state.proxies}
        answers, _ = self.nodes.try_ask(requests, _SENSE_S)
        return {
            tenant: sensing.together(
                [a["tenants"][tenant] for a in answers.values() if tenant in a["tenants"]]
            )
            for tenant in self.cluster.tenants
        }

    def close(self) -> None:
        """Close the channels to the nodes."""
        self.nodes.close()

    # -- changing it ----------------------------------------------------------------------------

    def put(self, wanted: SwiftState) -> str:
        """Put shares, machines, processes and tenants of `wanted` into force."""
        now = self.state()
        self._hold(now)
        moved = [node for node in wanted.proxies if wanted.proxies[node] != now.proxies[node]]
        leaving = [node for node in moved if now.proxies[node]]
        for node in (one for one in moved if one not in leaving):
            self._give(replace(wanted, shares=now.shares), node)
        if leaving:
            without = {**wanted.proxies, **dict.fromkeys(leaving, "")}
            self._leave(replace(wanted, proxies=without))
        for node in leaving:
            self._give(replace(wanted, shares=now.shares), node)
        # Processes start within the proxies' share: change them before it shrinks, after it grows.
        other = [s for s in self.cluster.microstores if wanted.workers[s] != now.workers[s]]
        early = [s for s in other if wanted.shares[s].proxy_cores < now.shares[s].proxy_cores]
        for store in early:
            self.set_processes(wanted, store)
        self.share(now, wanted)
        for store in (one for one in other if one not in early):
            self.set_processes(wanted, store)
        # Send all once more: an interrupted change is in no file, and nodes may differ from `now`.
        self._send(self.changes.shares(wanted))
        self._send(self._processes(wanted, *wanted.shares), _SLOW_S)
        self.nodes.ask(self.changes.endpoints(wanted))
        self.write(wanted)
        return "shares, machines and tenants are as asked"

    def share(self, before: SwiftState, after: SwiftState) -> None:
        """Change the shares that differ, decreases first. A lost node gets its share when it
        returns (`_catch_up`) and does not delay the other nodes. StoreError: a node refuses, or no
        node answers."""
        for requests in self.changes.less_and_more(before, after):
            self._send(requests)

    def _send(
        self, requests: Mapping[str, Mapping[str, Any]], timeout_s: float = TIMEOUT_S
    ) -> None:
        if not requests:
            return
        answers, problems = self.nodes.try_ask(requests, timeout_s)
        refused = [f"node {n}: {why}" for n, why in problems.items() if not isinstance(why, Lost)]
        if refused or not answers:
            raise StoreError(
                refused[0] if refused else f"no node of {', '.join(requests)} answers."
            )

    def _catch_up(self, state: SwiftState, answers: Mapping[str, Any]) -> None:
        """Send shares to nodes with outdated ones: they were lost during the change."""
        behind = {}
        for node, request in self.changes.shares(state).items():
            seen = answers.get(node, {})
            if "shares" in seen and any(
                seen["shares"].get(group) != cores for group, cores in request["shares"].items()
            ):
                behind[node] = request
        if behind:
            with self.locked():
                if self.state() == state:
                    self.nodes.try_ask(behind)

    def set_processes(self, state: SwiftState, store: str) -> None:
        """Make the proxies of a microstore run `state.workers` processes."""
        self.nodes.ask(self._processes(state, store), _SLOW_S)

    @staticmethod
    def _processes(state: SwiftState, *stores: str) -> dict[str, dict[str, Any]]:
        return {
            node: {"op": "workers", "workers": state.workers[store]}
            for store in stores
            for node in state.proxies_of(store)
        }

    def _put_shares(self, wanted: Sequence[tuple[int, SetResources]]) -> dict[int, Effect]:
        began, now = self._clock(), self.state()
        shares = dict(now.shares)
        effects: dict[int, Effect] = {}
        for place, action in wanted:
            if action.microstore not in shares:
                effects[place] = Effect(False, f"there is no microstore {action.microstore!r}")
                continue
            share = action.resources
            if self.cluster.machine is not None:
                was = shares[action.microstore]
                share = replace(share, proxy_cores=was.proxy_cores, network=was.network)
            shares[action.microstore] = replace(share, ssds=0, hdds=0)
            effects[place] = Effect(True)
        after = replace(now, shares=shares, overrides={})
        problem = ""
        try:
            self.share(now, after)
            self.write(after)
        except HotbedError as error:
            problem = str(error)
        seconds = self._clock() - began
        for place, action in wanted:
            if effects[place].ok:
                said = problem or f"{action.microstore} has its share"
                effects[place] = Effect(not problem, said, seconds)
        return effects

    def _assign(self, action: AssignMachine) -> str:
        now = self.state()
        if action.machine not in now.proxies:
            raise UserError(f"node {action.machine!r} is no machine that can be handed out")
        if now.proxies[action.machine] == action.microstore:
            return f"{action.machine} stays where it is"
        after = replace(now, proxies={**now.proxies, action.machine: action.microstore})
        if now.proxies[action.machine]:
            self._leave(replace(now, proxies={**now.proxies, action.machine: ""}))
        self._give(after, action.machine)
        self.share(now, after)
        self.nodes.ask(self.changes.endpoints(after))
        self.write(after)
        return f"{action.machine} is {action.microstore or 'the pool'}'s"

    def _settle(self, state: SwiftState) -> None:
        """Send all shares and endpoints, and return machines to their owners: no file records what
        an interrupted change left on the nodes."""
        self._hold(state)
        self.nodes.try_ask(self.changes.shares(state))
        self.nodes.try_ask(self.changes.endpoints(state))

    def _hold(self, state: SwiftState) -> None:
        """Return machines to their owners: an interrupted change may have left them elsewhere."""
        if self.cluster.machine is None:
            return
        answers, _ = self.nodes.try_ask(self.changes.configure(state, [*state.proxies]), _SLOW_S)
        for node in (one for one, answer in answers.items() if answer.get("stale")):
            self._give(state, node)

    def _leave(self, state: SwiftState) -> None:
        """Update the clients first: no client may ask a proxy that leaves."""
        self.nodes.ask(self.changes.endpoints(state))
        self._sleep(_LEAVE_S)

    def _give(self, state: SwiftState, node: str) -> None:
        """Make a proxy serve another microstore, or none."""
        store = state.proxies[node]
        if store:
            rings = self.changes.build_rings(state, self.cluster.set_of(store))["rings"]
            request = self.changes.ring_requests(state, {store: rings[store]})[-1][node]
            self.nodes.ask(self.changes.configure(state, [node]), _SLOW_S)
            self.nodes.ask({node: request})
        else:
            self.nodes.ask(self.changes.configure(state, [node]), _SLOW_S)
        restart = ["hotbed-swift-proxy.service"] if store else []
        self.nodes.ask({node: {"op": "start", "restart": restart}}, _SLOW_S)

    def _map(self, action: MapTenant) -> str:
        now, cluster = self.state(), self.cluster
        if action.tenant not in cluster.tenants or action.microstore not in cluster.microstores:
            raise UserError(f"there is no tenant or microstore for {action!r}")
        home = cluster.set_of(cluster.tenants[action.tenant])
        if cluster.set_of(action.microstore) != home:
            raise StoreError(
                f"tenant {action.tenant} cannot be served by {action.microstore}: its objects are "
                "on other storage nodes."
            )
        after = replace(now, tenants={**now.tenants, action.tenant: (action.microstore,)})
        self.nodes.ask(self.changes.endpoints(after))
        self.write(after)
        return f"{action.microstore} serves {action.tenant}"

    # -- keeping it -----------------------------------------------------------------------------

    def write(self, state: SwiftState) -> None:
        """Save the state in force, atomically."""
        make_folder(self._path.parent)
        write_file(self._path, json.dumps(state_to_json(state)))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock, so that only one change runs at a time."""
        with held(self._path.with_suffix(".lock")):
            yield

    def timed(self, work: Callable[[], str]) -> Effect:
        """Run `work`; return its effect, with the requests that finished and failed meanwhile."""
        before, began = self.counted(), self._clock()
        try:
            ok, message = True, work()
        except HotbedError as error:
            ok, message = False, str(error)
        seconds = self._clock() - began
        parts = [
            sensing.difference(before.get(tenant), sums) for tenant, sums in self.counted().items()
        ]
        total = sensing.together(parts)
        detail = {"requests": float(total["requests"]), "failed": float(total["failed"])}
        return Effect(ok, message, seconds, detail)


def store_of(config: AgentConfig) -> SwiftStore:
    """Return the store of this admin node; raise UserError if the testbed has another kind."""
    if config.store != "swift":
        raise UserError(f"testbed {config.testbed} runs the store {config.store!r}, not swift")
    return SwiftStore(config, load_cluster(), NodeChannels(over_ssh(config)))
