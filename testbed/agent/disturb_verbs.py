"""The verbs disturb-start, disturb-go, disturb-stop, disturb-status and disturb-log."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.durable import write_file
from schemas.errors import RemoteError, UserError
from testbed.agent import disturb, units
from testbed.agent.contract import UNIT_PREFIX, AgentConfig, UnitResult
from testbed.agent.disturb import FOLDER, UNIT, Start, Stop
from testbed.agent.reach import every, on_each, reach
from testbed.ssh import Shell

_SIGMAS = 4.0
_PARTS = 2  # windows of a second that are compared

# Bytes that the unit's processes have read, summed, three times, a second apart. The kernel
# counts them for the process that submits the I/O (Documentation/filesystems/proc, /proc/PID/io).
_RATES = f"""
unit=/{UNIT_PREFIX}$1.service
for turn in 1 2 3; do
    [ $turn = 1 ] || sleep 1
    read -r now _ < /proc/uptime
    total=0 found=
    for process in /proc/[0-9]*; do
        grep -q "$unit" "$process/cgroup" 2>/dev/null || continue
        bytes=$(sed -n 's/^read_bytes: //p' "$process/io" 2>/dev/null)
        [ -n "$bytes" ] && total=$((total + bytes)) && found=1
    done
    [ -n "$found" ] && echo "$now $total"
done
exit 0
"""


def start_on(config: AgentConfig) -> Start:
    """Starts a load unit on a node of `config`."""

    def start(node: str, name: str, argv: Sequence[str], max_s: float) -> None:
        units.start(reach(config, node), name, argv, max_s=max(1.0, max_s))

    return start


def stop_on(config: AgentConfig) -> Stop:
    """Stops a load unit on a node of `config`."""

    def stop(node: str, name: str) -> UnitResult | None:
        return units.stop(reach(config, node), name)

    return stop


def clean_loads(config: AgentConfig) -> int:
    """Stop every load that the plan in the folder names and that still runs; returns how many.

    A node that cannot be reached does not keep the others from being cleaned; it is raised last.
    """
    try:
        plan = json.loads((FOLDER / "plan.json").read_text())
    except FileNotFoundError:
        return 0
    names: dict[str, set[str]] = {}
    for step in disturb.steps_from_json(plan["plan"]):
        names.setdefault(step.node, set()).add(step.name)

    def clean(node: str) -> int:
        shell = reach(config, node)
        running = set(units.live(shell)) & names[node]
        for name in running:
            units.stop(shell, name)
        return len(running)

    stopped = on_each(names, clean)
    state = disturb.read_state() or {}
    gone = {"hot_nodes": [], "loads": [], "since": time.time()}
    write_file(FOLDER / "state.json", json.dumps(state | gone), sync=False)
    for answer in stopped.values():
        if isinstance(answer, RemoteError):
            raise answer
    return sum(count for count in stopped.values() if isinstance(count, int))


def _alive() -> bool:
    return subprocess.run(["systemctl", "is-active", "-q", UNIT], check=False).returncode == 0


def disturb_start(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Verb: {plan, max_s, wait_for_go?} -> the state once every load at or before 0 runs.

    What an earlier plan left running is stopped first."""
    steps = disturb.check_plan(config, payload)
    disturb_stop(config, {})
    shutil.rmtree(FOLDER, ignore_errors=True)
    plan = {
        "plan": payload["plan"],
        "max_s": payload["max_s"],
        "wait_for_go": bool(payload.get("wait_for_go", False)),
    }
    disturb.start_unit(config, plan, float(payload["max_s"]))
    try:
        disturb.wait_until_running(sum(1 for step in steps if step.t_s <= 0), _alive)
    except RemoteError:
        disturb_stop(config, {})
        raise
    return disturb.read_state() or {}


def disturb_go(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, float]:
    """Verb: {at?} (epoch, now when left out) -> {at}: the plan's times count from here."""
    if not _alive():
        raise UserError("no disturbance is running: start one by disturb-start.")
    at = float(payload.get("at") or time.time())
    disturb.write_go(at)
    return {"at": at}


def disturb_stop(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, int]:
    """Verb: {} -> {loads}: ends the plan and every load of it; safe to repeat.

    `loads` counts those that the ended plan had left running (0 unless it was killed)."""
    if _alive():
        subprocess.run(["systemctl", "stop", UNIT], check=False, capture_output=True)
    return {"loads": clean_loads(config)}


def disturb_log(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Verb: {} -> {state, events, outputs}: what was done when, and what every load printed."""
    paths = sorted((FOLDER / "outputs").glob("*.json"))
    return {
        "state": disturb.read_state(),
        "events": disturb.read_events(),
        "outputs": [json.loads(path.read_text()) for path in paths],
    }


def disturb_status(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Verb: {} -> {running, steady, hot_nodes, since, go, loads: [...]}; takes two seconds.

    Each load says its rate (`iops` in 4 KiB reads, over two seconds), whether it is `steady`
    (null: cannot be told) and whether it is `alive`, else what it `said` last. The whole is
    steady when every load is.
    """
    state = disturb.read_state()
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
    """One load's status, see `disturb_status`."""
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
    # What a load that ended by itself left on standard error.
    done = shell.run(["tail", "-n", "1", f"{units.UNITS}/{name}/stderr"], check=False)
    return done.text.strip()[:200]


def rates_of(text: str, block: int = 4096) -> list[float]:
    """Reads of `block` bytes per second between the lines ``time bytes`` of `_RATES`."""
    points = [tuple(float(word) for word in line.split()) for line in text.splitlines()]
    return [
        (after[1] - before[1]) / block / (after[0] - before[0])
        for before, after in itertools.pairwise(points)
        if after[0] > before[0]
    ]


def is_steady(rates: Sequence[float], offered: float | None) -> bool | None:
    """Whether a load has reached its rate; None when its counters cannot be read.

    Two windows of a second agree within a quarter or four standard deviations of a Poisson count,
    whichever is more; with an offered rate their mean must also reach it, within the same.
    """
    if len(rates) < _PARTS:
        return None
    first, second = rates[-2:]
    if first <= 0 or second <= 0:
        # A small offered load may well have an empty second.
        return offered is not None and offered < _SIGMAS**2 and first + second > 0
    mean = (first + second) / 2
    agree = abs(first - second) <= max(mean / 4, _SIGMAS * math.sqrt(2 * mean))
    if offered is None:
        return agree
    return agree and mean >= offered - max(offered / 4, _SIGMAS * math.sqrt(offered / 2))
