"""Controller overhead, as in the DLR paper's figure 11: seconds to sense, to decide and to act.

With eight OSDs the bench uses a deployed testbed if one is free. With 1000 nodes only the transport
is a stand-in (transport.py): monitor, store and policy are real.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from frame import Row, row, show, unmeasured
from transport import Monitors, Probes, config

from controllers import remote
from controllers.decider import ChildDecider
from controllers.journal import parse_journal
from schemas.errors import HotbedError
from testbed.agent.monitor import Monitor
from testbed.agent.sense import NodeSensor
from testbed.choose import choose_ready, existing
from testbed.client import agent_client
from testbed.stores.ceph import CephStore, Connection
from testbed.stores.contract import observation_to_json
from tests.testbed.fake_store import FakeStore

TOGGLE = Path(__file__).resolve().parent / "controllers"
STEPS = 5
INTERVAL_S = 2.0


def largest(name: str, values: list[float], limit: float | None, note: str) -> Row:
    """Return a bench's result: the largest of `values` counts."""
    note = f"largest; median {statistics.median(values):.3g} s; {note}"
    return row(name, max(values), "s", limit, n=len(values), note=note)


def on_testbed() -> Row:
    """Measure sense, decide and act on a testbed; every step changes every OSD's affinity."""
    name = "sense + decide + act on a testbed"
    try:
        if not existing():
            raise HotbedError("no testbed; `hotbed up` and `hotbed deploy` make one")
        agent = agent_client(choose_ready()[1])
        if remote.status(agent)["running"]:
            raise HotbedError("a controller is running on the testbed")
        remote.start(agent, "toggle", interval_s=INTERVAL_S, controllers_dirs=[TOGGLE])
        try:
            time.sleep((STEPS + 1.5) * INTERVAL_S)
        finally:
            remote.stop(agent, "toggle")
        journal = parse_journal(remote.journal_text(agent, "toggle"), "of toggle")
        steps = [step for step in journal.steps if step["error"] is None]
        if not steps:
            raise HotbedError(f"no step came to an end: {journal.footer}")
    except HotbedError as error:
        return unmeasured(name, str(error), "s", 0.5)
    osds = len(steps[0]["observation"]["osds"])
    spans = {key: [step[key] for step in steps] for key in ("sense_s", "decide_s", "act_s")}
    totals = [sum(parts) for parts in zip(*spans.values(), strict=True)]
    parts = ", ".join(f"{key} {statistics.median(values):.3f}" for key, values in spans.items())
    return largest(f"{name}, {osds} OSDs", totals, 0.5, parts)


def at_scale(count: int) -> Row:
    """Measure sense and decide with DLR over `count` nodes."""
    nodes = config(count)
    decider = ChildDecider("dlr", {}, 0)
    probes = Probes(nodes.nodes)
    monitor = Monitor(nodes.nodes, probes.open)
    try:
        sensor = NodeSensor(nodes, monitor)
        store = CephStore(Connection(Monitors(count)), sensor)  # type: ignore[arg-type]
        values, state = [], decider.initial()
        for _ in range(STEPS):
            time.sleep(0.2)
            start = time.perf_counter()
            observation = store.sense(decider.needs.senses)
            decision = decider.decide(state, observation_to_json(observation))
            values.append(time.perf_counter() - start)
            state = decision.state
            if sensor.lost or len(decision.actions) != count // 2:
                raise HotbedError(f"{len(sensor.lost)} of {count} nodes lost")
    finally:
        monitor.close()
        probes.close()
        decider.close()
    return largest(f"sense + decide, {count} nodes", values, 2.0, "stand-in transport")


def dlr_pg(osds: int, pgs: int) -> Row:
    """Measure a decision of dlr-pg with half of the OSDs hot, its most expensive case."""
    hot = {osd: 97.0 if osd % 2 else 5.0 for osd in range(osds)}
    store = FakeStore(osds, pgs, pressures=lambda _: hot)
    decider = ChildDecider("dlr-pg", {"max_swaps": 1000, "horizon": 100}, 0)
    seen = observation_to_json(store.sense(decider.needs.senses))
    values = []
    try:
        for _ in range(STEPS):
            start = time.perf_counter()
            decision = decider.decide(decider.initial(), seen)
            values.append(time.perf_counter() - start)
    finally:
        decider.close()
    note = f"{len(decision.actions)} swaps"
    return largest(f"dlr-pg decides, {osds} OSDs, {pgs} PGs", values, None, note)


def main() -> None:
    """Print the results."""
    show([at_scale(8), at_scale(1000), dlr_pg(8, 128), dlr_pg(1000, 32768), on_testbed()])


if __name__ == "__main__":
    main()
