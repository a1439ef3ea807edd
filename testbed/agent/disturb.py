"""Disturbance of nodes by a plan: load units start and stop at planned times.

It runs on the admin node as the transient unit ``hotbed-disturb``. A plan is a list of steps {t_s,
node, name, argv or null, rate_iops or null}. At `t_s` the load unit `name` is started with `argv`
on `node`, or stopped if argv is null. Steps at or before 0 are done at once. Later steps count from
the start. In a plan that waits, they count from the time that `disturb-go` gives (the benchmark's
first second), so that every controller meets the same moves.

However the unit ends (its time, a signal, kill -9), systemd's ExecStopPost stops every planned load
unless the unit has done so itself. `disturb-stop` and the next `disturb-start` stop them once more.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from schemas.durable import write_file
from schemas.errors import HotbedError, RemoteError, UserError
from testbed.agent import units
from testbed.agent.contract import (
    AGENT_ROOT,
    STATE,
    UNIT_PREFIX,
    AgentConfig,
    UnitResult,
    load_config,
    node_of,
)
from testbed.agent.reach import every, on_each, reach, use_control_dir
from testbed.agent.steady import SteadyClock
from testbed.agent.units import LOAD_PREFIX, STOP_S
from testbed.ssh import Shell

FOLDER = Path(STATE) / "disturb"
UNIT = f"{UNIT_PREFIX}disturb.service"
_POLL_S = 0.1
_READY_S = 60.0  # every first load runs by then, or the start has failed
_SIGMAS = 4.0
_PARTS = 2  # number of one-second windows to compare

# Bytes read by the unit's processes, summed, three times, a second apart. The kernel counts them
# for the process that submits the I/O (Documentation/filesystems/proc, /proc/PID/io).
_RATES = f"""
unit=/{UNIT_PREFIX}$1.service
for turn in 1 2 3; do
    [ $turn = 1 ] || sleep 1
    read -r now _ < /proc/uptime
    total=0 found=
    # One process a turn, because the load's node has little CPU time.
    for process in $(grep -ls "$unit" /proc/[0-9]*/cgroup); do
        while read -r name bytes; do
            [ "$name" = read_bytes: ] && total=$((total + bytes)) && found=1
        done 2>/dev/null < "${{process%cgroup}}io"
    done
    [ -n "$found" ] && echo "$now $total"
done
exit 0
"""


@dataclass(frozen=True)
class DisturbanceStep:
    """One change at `t_s`: `argv` starts the load `name` on `node`, None stops the load.

    `rate_iops` is the rate that the load must keep, None for a load without a limit."""

    t_s: float
    node: str
    name: str
    argv: tuple[str, ...] | None
    rate_iops: float | None = None


Start = Callable[[str, str, Sequence[str], float], None]  # node, name, argv, max_s
Stop = Callable[[str, str], UnitResult | None]  # node, name


def steps_from_json(data: Any) -> tuple[DisturbanceStep, ...]:
    """Return a checked plan by time, stops before starts. Raises UserError on a bad step."""
    if not isinstance(data, list):
        raise UserError("a disturbance plan is a list of steps {t_s, node, name, argv}")
    steps = []
    for index, item in enumerate(data):
        try:
            argv = item["argv"]
            rate = item.get("rate_iops")
            step = DisturbanceStep(
                t_s=float(item["t_s"]),
                node=str(item["node"]),
                name=str(item["name"]),
                argv=None if argv is None else tuple(str(word) for word in argv),
                rate_iops=None if rate is None else float(rate),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"disturbance plan, step {index}: {error!r}; t_s, node, name and argv are needed"
            ) from error
        if not step.name.startswith(LOAD_PREFIX):
            raise UserError(
                f"disturbance plan, step {index}: the name {step.name!r} must begin with "
                f"{LOAD_PREFIX!r}"
            )
        steps.append(step)
    return tuple(sorted(steps, key=lambda step: (step.t_s, step.argv is not None)))


class Disturber:
    """Runner of a plan that keeps `state.json` and `events.jsonl` in `folder`.

    State: `hot_nodes` are the nodes with a running load. `since` is the epoch of the last change.
    `go` is the epoch from which the plan's times count (null before it is known).
    """

    def __init__(
        self,
        steps: Sequence[DisturbanceStep],
        start: Start,
        stop: Stop,
        folder: Path,
        *,
        max_s: float,
    ) -> None:
        self._steps = tuple(steps)
        self._start, self._stop = start, stop
        self._folder = folder
        self.clock = SteadyClock()
        self._ends_at = self.clock() + max_s
        self._running: dict[tuple[str, str], DisturbanceStep] = {}
        self._outputs = 0
        self.go: float | None = None
        self._state()

    def at_once(self) -> None:
        """Carry out the steps at or before 0."""
        self.carry_out([step for step in self._steps if step.t_s <= 0])

    def later(self) -> list[tuple[float, list[DisturbanceStep]]]:
        """Return the steps after 0, grouped by time."""
        after = (step for step in self._steps if step.t_s > 0)
        return [(t_s, list(steps)) for t_s, steps in itertools.groupby(after, lambda s: s.t_s)]

    def begin(self, go: float) -> None:
        """Let the plan's times count from `go` (epoch)."""
        self.go = go
        self._state()

    def finish(self) -> None:
        """Stop everything that runs."""
        stops = [DisturbanceStep(math.inf, node, name, None) for node, name in self._running]
        self.carry_out(stops, planned=False)

    def carry_out(self, steps: Sequence[DisturbanceStep], *, planned: bool = True) -> None:
        """Carry out `steps`: first all stops, then all starts, each in parallel over nodes."""
        for starts in (False, True):
            by_node: dict[str, list[DisturbanceStep]] = {}
            for step in steps:
                if (step.argv is not None) is starts:
                    by_node.setdefault(step.node, []).append(step)
            done = every(by_node, partial(self._on_node, by_node))
            for node, todo in by_node.items():
                for step, event in zip(todo, done[node], strict=True):
                    if not starts:
                        self._running.pop((step.node, step.name), None)
                    elif event["ok"]:
                        self._running[(step.node, step.name)] = step
                    self._event(event | {"planned_t_s": step.t_s if planned else None})
            if by_node:
                self._state()

    def _on_node(
        self, by_node: Mapping[str, Sequence[DisturbanceStep]], node: str
    ) -> list[dict[str, Any]]:
        return [self._one(step) for step in by_node[node]]

    def _one(self, step: DisturbanceStep) -> dict[str, Any]:
        """Carry out one step; return its event, also of a failure."""
        event: dict[str, Any] = {
            "node": step.node,
            "name": step.name,
            "action": "stop" if step.argv is None else "start",
            "ok": True,
            "error": None,
            "output": None,
        }
        try:
            if step.argv is None:
                result = self._stop(step.node, step.name)
                event["output"] = None if result is None else asdict(result)
            else:
                self._start(step.node, step.name, step.argv, self._ends_at - self.clock())
        except HotbedError as error:
            event |= {"ok": False, "error": str(error)}
        return event | {"at": self.clock()}

    def _event(self, event: dict[str, Any]) -> None:
        output = event.pop("output")
        event["t_s"] = None if self.go is None else event["at"] - self.go
        if output is not None:
            self._outputs += 1
            path = self._folder / "outputs" / f"{self._outputs:04d}.json"
            path.parent.mkdir(exist_ok=True)
            write_file(path, json.dumps(output), sync=False)
        with (self._folder / "events.jsonl").open("a") as log:
            log.write(json.dumps(event) + "\n")

    def _state(self) -> None:
        state = {
            "hot_nodes": sorted({node for node, _ in self._running}),
            "since": self.clock(),
            "go": self.go,
            "loads": [
                {"node": step.node, "name": step.name, "rate_iops": step.rate_iops}
                for _, step in sorted(self._running.items())
            ],
        }
        write_file(self._folder / "state.json", json.dumps(state), sync=False)


def follow(
    disturber: Disturber,
    *,
    find_go: Callable[[], float | None],
    ended: threading.Event,
) -> None:
    """Carry the plan out until `ended`; finally stop everything."""
    try:
        disturber.at_once()
        go = find_go()
        while go is None and not ended.wait(_POLL_S):
            go = find_go()
        if go is None:
            return
        disturber.begin(go)
        for t_s, steps in disturber.later():
            if ended.wait(max(0.0, go + t_s - disturber.clock())):
                return
            disturber.carry_out(steps)
        ended.wait()
    finally:
        disturber.finish()


def start_unit(config: AgentConfig, plan: Mapping[str, Any], max_s: float) -> None:
    """Write the plan and start ``hotbed-disturb`` on this (the admin) node."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_file(FOLDER / "plan.json", json.dumps(plan), sync=False)
    python = f"/usr/bin/env PYTHONPATH={AGENT_ROOT} python3 -m testbed.agent.disturb"
    # A unit that ended as it should has stopped its loads. (systemd sets this from version 232 on.)
    clean = f"""/bin/sh -c '[ "$SERVICE_RESULT" = success ] || exec {python} clean'"""
    units.start_module(
        config,
        UNIT,
        *("testbed.agent.disturb", "run"),
        about="disturbance plan",
        max_s=max_s,
        stop_s=2 * STOP_S + 30,
        # systemd must signal only the main process, which stops its loads in order.
        properties=(f"ExecStopPost={clean}", "KillMode=mixed"),
    )


def wait_until_running(first: int, alive: Callable[[], bool]) -> None:
    """Wait until the `first` steps (those at or before 0) are done. RemoteError: the unit died, a
    load could not be started, or it takes too long."""
    deadline = time.monotonic() + _READY_S
    while True:
        events = read_events(FOLDER)
        failed = [event for event in events if not event["ok"]]
        if failed:
            raise RemoteError(
                f"load {failed[0]['name']} on node {failed[0]['node']}: {failed[0]['error']}"
            )
        if len(events) >= first:
            return
        if not alive():
            raise RemoteError(
                "the disturbance ended at once; `journalctl -u hotbed-disturb` on the admin node "
                "says why."
            )
        if time.monotonic() > deadline:
            raise RemoteError(f"the disturbance did not start within {_READY_S:g} s.", retry=True)
        time.sleep(_POLL_S)


def write_go(at: float) -> None:
    """Let the times of the waiting plan count from `at` (epoch)."""
    monotonic_s = time.monotonic() + at - time.time()
    write_file(FOLDER / "go", repr(monotonic_s), sync=False)


def read_go(clock: SteadyClock) -> float | None:
    """Return the start that `write_go` wrote, on `clock`; None before."""
    try:
        return clock.at(float((FOLDER / "go").read_text()))
    except FileNotFoundError:
        return None


def read_state(folder: Path = FOLDER) -> dict[str, Any] | None:
    """Return the state of a running or ended disturber; None if there never was one."""
    try:
        state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    except FileNotFoundError:
        return None
    return state


def read_events(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return every change with its actual time (epoch `at`, and `t_s` since go), in order."""
    try:
        lines = (folder / "events.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("}")]


def clean_loads(config: AgentConfig) -> int:
    """Stop every running load that the plan in the folder names; return their number.

    An unreachable node does not stop the cleaning of other nodes; its error is raised afterwards.
    """
    try:
        plan = json.loads((FOLDER / "plan.json").read_text())
    except FileNotFoundError:
        return 0
    names: dict[str, set[str]] = {}
    for step in steps_from_json(plan["plan"]):
        names.setdefault(step.node, set()).add(step.name)

    def clean(node: str) -> int:
        shell = reach(config, node)
        running = set(units.live(shell)) & names[node]
        for name in running:
            units.stop(shell, name)
        return len(running)

    stopped = on_each(names, clean)
    state = read_state() or {}
    gone = {"hot_nodes": [], "loads": [], "since": time.time()}
    write_file(FOLDER / "state.json", json.dumps(state | gone), sync=False)
    for answer in stopped.values():
        if isinstance(answer, RemoteError):
            raise answer
    return sum(count for count in stopped.values() if isinstance(count, int))


_alive = partial(units.active, UNIT)


def disturb_start(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Start a plan: {plan, max_s, wait_for_go?} -> the state once all loads at or before 0 run.

    Loads of an earlier plan are stopped first."""
    steps = steps_from_json(payload.get("plan"))
    for step in steps:
        node_of(config, step.node)
    max_s = payload.get("max_s")
    if not isinstance(max_s, (int, float)) or not 0 < max_s < math.inf:
        raise UserError(
            "the payload needs max_s, a positive number of seconds", where="disturb-start"
        )
    disturb_stop(config, {})
    shutil.rmtree(FOLDER, ignore_errors=True)
    plan = {
        "plan": payload["plan"],
        "max_s": max_s,
        "wait_for_go": bool(payload.get("wait_for_go", False)),
    }
    start_unit(config, plan, float(max_s))
    try:
        wait_until_running(sum(1 for step in steps if step.t_s <= 0), _alive)
    except RemoteError:
        disturb_stop(config, {})
        raise
    return read_state() or {}


def disturb_go(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, float]:
    """Start the plan's clock: {at?} (epoch, now by default) -> {at}: times count from `at`."""
    if not _alive():
        raise UserError("no disturbance is running", do="start one by disturb-start")
    at = float(payload.get("at") or time.time())
    write_go(at)
    return {"at": at}


def disturb_stop(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, int]:
    """End the plan and all its loads: {} -> {loads}; safe to repeat.

    `loads` counts the loads that the ended plan had left running (0 unless it was killed)."""
    units.end(UNIT)
    return {"loads": clean_loads(config)}


def disturb_log(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log: {} -> {state, events, outputs}: all changes and every load's output."""
    paths = sorted((FOLDER / "outputs").glob("*.json"))
    return {
        "state": read_state(),
        "events": read_events(),
        "outputs": [json.loads(path.read_text()) for path in paths],
    }


def disturb_status(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status: {} -> {running, steady, hot_nodes, since, go, loads}; takes two seconds.

    Each load has its rate (`iops` in 4 KiB reads, over two seconds), `steady` (null: unknown) and
    `alive`. An ended load has its last words in `said`. The whole is steady if every load is
    steady.
    """
    state = read_state()
    if state is None:
        return {"running": False, "steady": None, "hot_nodes": [], "loads": []}
    by_node = {load["node"]: load for load in state["loads"]}

    def look(node: str) -> dict[str, Any]:
        return look_at(reach(config, node), by_node[node])

    loads = list(every(by_node, look).values())
    known = [load["steady"] for load in loads]
    steady = None if None in known else all(known)
    return state | {"running": _alive(), "steady": steady, "loads": loads}


def look_at(shell: Shell, load: Mapping[str, Any]) -> dict[str, Any]:
    """Return one load's status; see `disturb_status`."""
    alive = load["name"] in units.live(shell)
    rates: list[float] = []
    if alive:
        done = shell.run(["sh", "-c", _RATES, "hotbed-rates", load["name"]], check=False)
        rates = rates_of(done.text)
    steady = is_steady(rates, load.get("rate_iops")) if alive else False
    iops = sum(rates) / len(rates) if rates else None
    said = "" if alive else _last_words(shell, str(load["name"]))
    return dict(load) | {"alive": alive, "iops": iops, "steady": steady, "said": said}


def _last_words(shell: Shell, name: str) -> str:
    # Last line on standard error of a load that ended by itself.
    done = shell.run(["tail", "-n", "1", f"{units.UNITS}/{name}/stderr"], check=False)
    return done.text.strip()[:200]


def rates_of(text: str) -> list[float]:
    """Return reads of 4096 bytes per second between the lines ``time bytes`` of `_RATES`."""
    points = [tuple(float(word) for word in line.split()) for line in text.splitlines()]
    return [
        (after[1] - before[1]) / 4096 / (after[0] - before[0])
        for before, after in itertools.pairwise(points)
        if after[0] > before[0]
    ]


def is_steady(rates: Sequence[float], offered: float | None) -> bool | None:
    """Return True if a load has reached its rate; None if its counters cannot be read.

    Two windows of a second must agree within a quarter or four standard deviations of a Poisson
    count, whichever is more. Their mean must reach an offered rate within the same tolerance.
    """
    if len(rates) < _PARTS:
        return None
    first, second = rates[-2:]
    if first <= 0 or second <= 0:
        # A small offered load may have an empty second.
        return offered is not None and offered < _SIGMAS**2 and first + second > 0
    mean = (first + second) / 2
    agree = abs(first - second) <= max(mean / 4, _SIGMAS * math.sqrt(2 * mean))
    if offered is None:
        return agree
    return agree and mean >= offered - max(offered / 4, _SIGMAS * math.sqrt(offered / 2))


def main(arguments: Sequence[str]) -> int:
    """Carry out the plan in the folder (``run``), or stop all its loads (``clean``)."""
    config = load_config()
    # systemd kills the rest of a unit. A shared ssh master that this unit had started would end all
    # other processes' connections; a master of its own would keep the unit waiting.
    use_control_dir(None)
    if list(arguments) == ["clean"]:
        clean_loads(config)
        return 0
    plan = json.loads((FOLDER / "plan.json").read_text())
    ended = units.until_signal()

    def start(node: str, name: str, argv: Sequence[str], max_s: float) -> None:
        units.start(reach(config, node), name, argv, max_s=max(1.0, max_s))

    disturber = Disturber(
        steps_from_json(plan["plan"]),
        start,
        lambda node, name: units.stop(reach(config, node), name),
        FOLDER,
        max_s=float(plan["max_s"]),
    )
    began = disturber.clock()

    def find_go() -> float | None:
        return read_go(disturber.clock) if plan["wait_for_go"] else began

    follow(disturber, find_go=find_go, ended=ended)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
