"""Verb: an open-loop writer on a client node, as a transient unit.

The program is sent as one file: only the admin node has Hotbed's code installed.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import RemoteError, StoreError, UserError
from testbed.agent import units
from testbed.agent.contract import STATE, AgentConfig
from testbed.agent.openloop.plan import plan_from_json
from testbed.agent.reach import reach
from testbed.agent.verbs import needed
from testbed.ssh import Shell

FOLDER = f"{STATE}/open-loop"
ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "schemas/__init__.py",
    "schemas/errors.py",
    "testbed/__init__.py",
    "testbed/agent/__init__.py",
    "testbed/agent/openloop",
    "testbed/stores/__init__.py",
    "testbed/stores/ceph/pool_objects.py",
)
_MAIN = b"from testbed.agent.openloop.main import main\n\nmain()\n"
_ENDED, _TIMED_OUT = 70, 75

# The program's first output line reports that the load has started.
_STARTED = f"""
{units.CLOCK}
clock
dir={units.UNITS}/$1 end=$(( now + $2 ))
while [ ! -s "$dir/stdout" ]; do
    [ -e "$dir/exit" ] && exit {_ENDED}
    clock
    [ "$now" -gt "$end" ] && exit {_TIMED_OUT}
    sleep 0.1
done
head -n 1 "$dir/stdout"
"""


def program() -> bytes:
    """Return the program as a zip archive that python3 runs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", _MAIN)
        # Empty: the package's own file imports the whole store.
        archive.writestr("testbed/stores/ceph/__init__.py", b"")
        for part in PARTS:
            path = ROOT / part
            for file in [path] if path.is_file() else sorted(path.glob("*.py")):
                archive.writestr(file.relative_to(ROOT).as_posix(), file.read_bytes())
    return buffer.getvalue()


def start(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, float]:
    """Start a writer: {node, name, plan, max_s, wait_s} -> {started_wall}; return once it writes.

    `plan` is a `testbed.agent.openloop.plan.WritePlan`. unit-wait for `name` returns its output.
    UserError: no such node, plan, pool or PG, or a unit of this name is running. StoreError: the
    store does not accept the load's first objects. RemoteError: the load did not start within
    `wait_s`."""
    node, name, body, max_s, wait_s = needed(
        payload, "open-loop-start", "node", "name", "plan", "max_s", "wait_s"
    )
    plan, shell = plan_from_json(body), reach(config, node)
    shell.run(["mkdir", "-p", FOLDER])
    shell.put(program(), f"{FOLDER}/program.pyz")
    shell.put(json.dumps(plan.to_json()).encode(), f"{FOLDER}/plan.json")
    argv = ["python3", "-B", f"{FOLDER}/program.pyz", f"{FOLDER}/plan.json"]
    units.start(shell, name, argv, max_s=float(max_s))
    try:
        return {"started_wall": _await_start(shell, name, float(wait_s))}
    except BaseException:
        units.stop(shell, name)
        raise


def _await_start(shell: Shell, name: str, wait_s: float) -> float:
    done = shell.run(
        ["sh", "-c", _STARTED, "hotbed-open-loop", name, str(round(wait_s))],
        timeout_s=wait_s + 30,
        check=False,
    )
    if done.returncode == 0:
        return float(json.loads(done.text)["wall"])
    if done.returncode == _ENDED:
        ended = units.wait(shell, name, timeout_s=10.0)
        said = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]
        if ended.exit_code == 2:
            raise UserError(said)
        raise StoreError(f"the open-loop writer on node {shell.node} did not start: {said}")
    raise RemoteError(
        f"the open-loop writer on node {shell.node} did not start within {wait_s:g} s; "
        "it was still writing its objects a first time."
    )
