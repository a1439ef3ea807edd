"""Commands on nodes as transient systemd units: start, wait, stop, list.

A unit ``hotbed-<name>`` runs a small shell script in ``/var/lib/hotbed/units/<name>``. The script
keeps the command's output, exit code, times on the node's own clocks and processor time. So the
result outlives the engine, the ssh connection and the unit itself, with any version of systemd.
systemd ends the unit after its time, so that no load outlives a lost engine.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from schemas.errors import RemoteError, UserError, not_allowed
from testbed.agent.contract import AGENT_ROOT, STATE, UNIT_PREFIX, AgentConfig, UnitResult
from testbed.agent.reach import every, reach
from testbed.agent.verbs import needed
from testbed.ssh import LocalShell, Shell

LOAD_PREFIX = "load-"  # units with this prefix load the testbed: a run starts with none
LOAD_PROGRAMS = ("fio", "rados", "hotbed-replay", "hotbed-cosdrive")
UNITS = f"{STATE}/units"
STOP_S = 15  # fio takes up to a second to print its summary after SIGTERM
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_ALREADY, _TIMED_OUT, _UNKNOWN = 76, 75, 77  # exit codes of the scripts below

# A unit with a killed command is no longer active but may take seconds to end. Until then, it
# neither disappears nor can be started again.
_ENDED = """case $(systemctl show --property=ActiveState "$unit") in
    *=active | *=activating | *=deactivating) systemctl stop "$unit" || : ;;
esac"""

# KillMode=mixed: only the script is signalled, and signals its command. A job of fio before 3.35
# never ends if a signal comes while it waits for its last reads (axboe/fio pull request 1556).
_START = f"""
set -eu
name=$1 max=$2 unit={UNIT_PREFIX}$1.service dir={UNITS}/$1
systemctl is-active -q "$unit" && exit {_ALREADY}
{_ENDED}
systemctl reset-failed "$unit" 2>/dev/null || :
rm -rf "$dir"
mkdir -p -m 0755 "$dir"
cat > "$dir/run"
exec systemd-run --quiet --collect --unit="$unit" --description="Hotbed: $name" \
    --property=RuntimeMaxSec="$max" --property=TimeoutStopSec={STOP_S} --property=KillMode=mixed \
    /bin/sh "$dir/run"
"""

CLOCK = "clock() { read -r now _ < /proc/uptime; now=${now%.*}; }"
"""Shell function that sets `now`, in seconds on a monotonic clock."""

# Waits for the file that the script leaves, and checks periodically that systemd still knows the
# unit: a killed script leaves no file.
_WAIT = f"""
{CLOCK}
clock
unit={UNIT_PREFIX}$1.service dir={UNITS}/$1 end=$(( now + $2 )) turn=0
[ -d "$dir" ] || exit {_UNKNOWN}
while [ ! -e "$dir/exit" ]; do
    turn=$(( turn + 1 ))
    if [ $(( turn % 8 )) = 1 ]; then
        clock
        [ "$now" -gt "$end" ] && exit {_TIMED_OUT}
        systemctl is-active -q "$unit" || break
    fi
    if [ "$turn" -le 20 ]; then sleep 0.05; else sleep 0.25; fi
done
"""

_STOP = f"""
unit={UNIT_PREFIX}$1.service dir={UNITS}/$1
{_ENDED}
[ -d "$dir" ] || exit {_UNKNOWN}
"""

# The output is forgotten once it is sent. If the connection is gone, it stays. One reader takes the
# folder: after Ctrl-C a unit is stopped while the reading that waited for it may be under way.
_FETCH = f"""
trap '' PIPE
taken=$dir.$$
mv -T "$dir" "$taken" 2>/dev/null && cd "$taken" || exit {_UNKNOWN}
for file in started ended exit times; do
    printf '%s %s\\n' "$file" "$(cat "$file" 2>/dev/null | tr '\\n' ' ')"
done
for file in stdout stderr; do
    [ -e "$file" ] || : > "$file"
    printf '%s %s\\n' "$file" "$(wc -c < "$file")"
done
echo
cat stdout stderr && rm -rf "$taken" && exit 0
mv -T "$taken" "$dir"
exit 1
"""

_LIST = (
    "systemctl list-units --plain --no-legend --type=service "
    f"--state=active,activating,deactivating '{UNIT_PREFIX}{LOAD_PREFIX}*'"
)

STRAYS = f"""
for process in /proc/[0-9]*; do
    read -r comm 2>/dev/null < "$process/comm" || continue
    case $comm in {"|".join(LOAD_PROGRAMS)}) ;; *) continue ;; esac
    grep -q '/{UNIT_PREFIX}[^/]*\\.service' "$process/cgroup" 2>/dev/null && continue
    command=$(tr '\\0' ' ' 2>/dev/null < "$process/cmdline") || continue
    [ -n "$command" ] && printf '%s %.200s\\n' "${{process#/proc/}}" "$command"
done
exit 0
"""


def unit_script(name: str, argv: Sequence[str]) -> str:
    """Return the shell script of the unit `name`. If systemd stopped the command (or its time ran
    out), the script leaves ``stopped`` in place of an exit code."""
    return f"""cd {UNITS}/{name} || exit 1
stopped=
date +%s.%N > started
read -r began _ < /proc/uptime
{shlex.join(argv)} > stdout 2> stderr < /dev/null &
child=$!
# Not before the child is there: a signal that comes earlier ends this script, as it should.
trap 'stopped=1; kill -TERM "$child" 2>/dev/null' TERM INT
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    code=$?
done
read -r ended _ < /proc/uptime
echo "$began $ended" > ended
times > times
[ -n "$stopped" ] && code=stopped
echo "$code" > exit.new && mv exit.new exit
[ "$code" = stopped ] || exit "$code"
"""


def parse_result(node: str, name: str, raw: bytes, now: float) -> UnitResult:
    """Parse the output of `_FETCH`. Missing times (of a killed unit) become `now`.

    The end is the start plus a duration on a monotonic clock.
    """
    head, _, body = raw.partition(b"\n\n")
    values: dict[str, str] = {}
    for line in head.decode().splitlines():
        key, _, value = line.partition(" ")
        values[key] = value.strip()
    out_bytes = int(values["stdout"])
    code = values["exit"]
    started_at = float(values["started"] or now)
    began, _, ended = values["ended"].partition(" ")
    return UnitResult(
        node=node,
        unit=name,
        exit_code=int(code) if code.lstrip("-").isdigit() else None,
        started_at=started_at,
        ended_at=started_at + float(ended) - float(began) if ended else max(now, started_at),
        stdout=body[:out_bytes].decode(errors="replace"),
        stderr=body[out_bytes:].decode(errors="replace"),
        cpu_s=_children_cpu_s(values["times"]),
    )


def _children_cpu_s(times: str) -> float | None:
    # The builtin `times`: user and system time of the shell, then of its children.
    found = re.findall(r"(\d+)m([\d.]+)s", times)
    if len(found) != 4:
        return None
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in found[2:])


def _sh(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "hotbed-units", *arguments]


def start(shell: Shell, name: str, argv: Sequence[str], *, max_s: float) -> None:
    """Start `argv` as the unit ``hotbed-<name>`` on the shell's node. UserError: a unit of this
    name is running, or the name or command is invalid. RemoteError: the node cannot be reached or
    systemd refused."""
    _check_name(name)
    if not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
        raise UserError("the command must be a list of one or more words", where=f"unit {name}")
    if not 0 < max_s < float("inf"):
        raise not_allowed(f"unit {name}: max_s", max_s, "a positive number of seconds")
    done = shell.run(
        _sh(_START, name, f"{max_s:.3f}"), input=unit_script(name, argv).encode(), check=False
    )
    if done.returncode == _ALREADY:
        raise UserError(f"unit {name} is already running on node {shell.node}", do="stop it first")
    if done.returncode != 0:
        raise RemoteError(
            f"unit {name} cannot be started on node {shell.node}: "
            f"{done.stderr.decode(errors='replace').strip()[-300:] or 'no message'}"
        )


def wait(shell: Shell, name: str, *, timeout_s: float) -> UnitResult:
    """Wait for the unit to end, return its output and forget the unit. UserError: there is no unit
    of this name. RemoteError: the unit still runs after `timeout_s`, or the node cannot be reached.
    """
    _check_name(name)
    done = shell.run(
        _sh(_WAIT + _FETCH, name, str(max(0, round(timeout_s)))),
        timeout_s=timeout_s + 30,
        check=False,
    )
    if done.returncode == _TIMED_OUT:
        raise RemoteError(
            f"unit {name} on node {shell.node} still runs after {timeout_s:g} s.", retry=True
        )
    if done.returncode == _UNKNOWN:
        raise UserError(f"there is no unit {name} on node {shell.node}")
    return _take(shell, name, done.stdout, done.returncode)


def stop(shell: Shell, name: str) -> UnitResult | None:
    """Stop the unit and return its output; None if there is none."""
    _check_name(name)
    done = shell.run(_sh(_STOP + _FETCH, name), timeout_s=STOP_S + 30, check=False)
    if done.returncode == _UNKNOWN:
        return None
    return _take(shell, name, done.stdout, done.returncode)


def _take(shell: Shell, name: str, raw: bytes, code: int) -> UnitResult:
    if code != 0:
        raise RemoteError(f"the result of unit {name} cannot be read on node {shell.node}.")
    return parse_result(shell.node, name, raw, time.time())


def live(shell: Shell) -> list[str]:
    """Return names (without ``hotbed-``) of the load units that run on the shell's node."""
    names = []
    for line in shell.run(_sh(_LIST)).text.splitlines():
        unit = line.split()[0] if line.split() else ""
        name = unit.removeprefix(UNIT_PREFIX).removesuffix(".service")
        if name.startswith(LOAD_PREFIX):
            names.append(name)
    return sorted(names)


def stray(shell: Shell) -> list[str]:
    """Return ``PID command`` of every load program on the node outside Hotbed's units."""
    return [line.rstrip() for line in shell.run(_sh(STRAYS)).text.splitlines()]


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is not a unit's name", allowed="1 to 80 lower-case letters, digits or -"
        )


def start_module(
    config: AgentConfig,
    unit: str,
    *program: str,
    about: str,
    max_s: float,
    stop_s: float,
    properties: Sequence[str] = (),
) -> None:
    """Start a Python module of the agent's bundle, with arguments, as `unit` on this (the admin)
    node. RemoteError: systemd refused."""
    admin = next(node.name for node in config.nodes if "admin" in node.roles)
    given = (
        f"WorkingDirectory={AGENT_ROOT}",
        f"RuntimeMaxSec={max_s:.3f}",
        f"TimeoutStopSec={stop_s}",
        *properties,
    )
    LocalShell(admin).run(
        [
            *("systemd-run", "--quiet", "--collect", f"--unit={unit}"),
            f"--description=Hotbed: {about}",
            *(f"--property={each}" for each in given),
            *(f"--setenv=PYTHONPATH={AGENT_ROOT}", "--setenv=PYTHONDONTWRITEBYTECODE=1"),
            *("python3", "-m", *program),
        ]
    )


def active(unit: str) -> bool:
    """Return True if `unit` runs on this node."""
    return subprocess.run(["systemctl", "is-active", "-q", unit], check=False).returncode == 0


def end(unit: str) -> bool:
    """Stop `unit` on this node; return True if it was running."""
    was = active(unit)
    if was:
        subprocess.run(["systemctl", "stop", unit], check=False, capture_output=True)
    return was


def until_signal() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def unit_start(config: AgentConfig, payload: Mapping[str, Any]) -> None:
    """Start a unit: {node, name, argv, max_s}."""
    node, name, argv, max_s = needed(payload, "unit-start", "node", "name", "argv", "max_s")
    start(reach(config, node), name, argv, max_s=float(max_s))


def unit_wait(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for a unit: {node, name, timeout_s} -> the fields of a UnitResult."""
    node, name, timeout_s = needed(payload, "unit-wait", "node", "name", "timeout_s")
    return asdict(wait(reach(config, node), name, timeout_s=float(timeout_s)))


def unit_stop(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Stop a unit: {node, name} -> the fields of a UnitResult, or null."""
    node, name = needed(payload, "unit-stop", "node", "name")
    result = stop(reach(config, node), name)
    return None if result is None else asdict(result)


def units(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return running load units by node: {} -> {node: names}; nodes without any are left out."""
    found = every((node.name for node in config.nodes), lambda name: live(reach(config, name)))
    return {name: names for name, names in found.items() if names}


def strays(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return stray load processes by node: {} -> {node: lines}; nodes without any are left out."""
    found = every((node.name for node in config.nodes), lambda name: stray(reach(config, name)))
    return {name: names for name, names in found.items() if names}
