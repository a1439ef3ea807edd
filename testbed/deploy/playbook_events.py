"""Progress of a playbook and reasons of its failure, from ansible-runner's events.

An event is a mapping with ``event`` (its kind) and ``event_data``, as ansible-runner 2.4 passes it
to an event handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Event = Mapping[str, Any]

SECONDS = {  # measured on nine nodes and two cores; unnamed tasks take `OTHER_S`
    "Look at the machine": 3.3,
    "Name all machines in /etc/hosts": 2.1,
    "Make the state directory": 2.2,
    "Make the scratch file system": 1.8,
    "Write the mount unit": 3.2,
    "Mount the scratch file system, now and at every boot": 4.4,
    "Start to lay out fio's files": 2.3,
    "Write ceph.conf": 5.5,
    "Make the first monitor": 2.4,
    "Start the monitors": 4.7,
    "Register OSDs, keys and places with the monitors": 3.1,
    "Write the manager's keyring": 2.7,
    "Start the managers": 3.3,
    "Make the OSDs' stores": 11.0,
    "Start the OSDs": 5.3,
    "Make the pools": 3.0,
    "Let the admin node in": 2.8,
    "Wait until fio's files are whole": 4.0,
    "Remove daemons, data, keys and units": 9.0,
}
OTHER_S = 0.5
_MESSAGE_CHARACTERS = 400


@dataclass(frozen=True)
class Failure:
    """One task that failed on one node. `role` may be empty."""

    node: str
    role: str
    task: str
    message: str
    unreachable: bool = False


def playbook_tasks(playbook: Path) -> list[str]:
    """Return the names of a playbook's tasks in order, including roles and static imports."""
    roles = playbook.parent / "roles"
    names: list[str] = []
    for play in _load(playbook):
        for role in play.get("roles", ()):
            names += _tasks(roles / (role["role"] if isinstance(role, dict) else role), "main")
        names += _expand(play.get("tasks", ()), roles, playbook.parent)
    return names


def _load(path: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(path.read_text()) or []


def _tasks(role: Path, entry: str) -> list[str]:
    return _expand(_load(role / "tasks" / f"{entry}.yml"), role.parent, role / "tasks")


def _expand(tasks: Iterable[Mapping[str, Any]], roles: Path, folder: Path) -> list[str]:
    names: list[str] = []
    for task in tasks:
        included = task.get("ansible.builtin.import_tasks")
        role = task.get("ansible.builtin.import_role")
        if included is not None:
            names += _expand(_load(folder / str(included)), roles, folder)
        elif role is not None:
            names += _tasks(roles / role["name"], role.get("tasks_from", "main"))
        else:
            names.append(str(task["name"]))
    return names


class Tracker:
    """Follows a run by its events: `phase`, `share` (0 to 1 by expected time), `failures`."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = list(tasks)
        self._next = 0
        self._total = sum(map(_seconds, tasks)) or 1.0
        self._done = 0.0
        self._running = 0.0
        self.phase = "starting Ansible"
        self.share = 0.0
        self.failures: list[Failure] = []
        self.changed: dict[str, int] = {}

    def follow(self, event: Event) -> bool:
        """Process one event; return True if `phase` or `share` has changed."""
        kind = event.get("event", "")
        data = event.get("event_data", {})
        if kind in ("playbook_on_task_start", "playbook_on_handler_task_start"):
            self._start(data)
            return True
        if kind in ("runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"):
            if not data.get("ignore_errors") and kind != "runner_item_on_failed":
                self.failures.append(_failure(data, unreachable=kind == "runner_on_unreachable"))
        elif kind == "playbook_on_stats":
            self.changed = dict(data.get("changed", {}))
            self.share = 1.0
            return True
        return False

    def _start(self, data: Mapping[str, Any]) -> None:
        name = _plain_name(data)
        role = data.get("role", "")
        self.phase = f"{role}: {name}" if role else name
        if name in self._tasks[self._next :]:
            here = self._tasks.index(name, self._next)
            self._done += self._running + sum(map(_seconds, self._tasks[self._next : here]))
            self._running = _seconds(name)
            self._next = here + 1
        self.share = min(self._done / self._total, 0.99)


def _seconds(task: str) -> float:
    return SECONDS.get(task, OTHER_S)


def _plain_name(data: Mapping[str, Any]) -> str:
    name = str(data.get("task") or data.get("name") or "a task")
    if name.startswith("Validating arguments against arg spec"):
        return "checking variables"
    role = str(data.get("role", ""))
    return name.removeprefix(f"{role} : ") if role else name


def _failure(data: Mapping[str, Any], *, unreachable: bool) -> Failure:
    return Failure(
        node=str(data.get("host", "?")),
        role=str(data.get("role", "")),
        task=_plain_name(data),
        message=message_of(data.get("res", {})),
        unreachable=unreachable,
    )


def message_of(result: Mapping[str, Any]) -> str:
    """Return the line of a failed task's result that gives the reason."""
    if result.get("censored"):
        return "its output may hold secrets and is hidden"
    # The loop's own message says only that an item failed.
    for item in result.get("results") or ():
        if isinstance(item, Mapping) and item.get("failed"):
            return message_of(item)
    said = str(result.get("msg") or "").strip()
    for_people = said and not said.startswith(("non-zero return code", "MODULE FAILURE"))
    if not for_people:
        for stream in ("stderr", "module_stderr", "stdout", "module_stdout"):
            lines = [line for line in str(result.get(stream) or "").splitlines() if line.strip()]
            if lines:
                said = lines[-1]
                break
    said = " ".join(said.split()) or "it gave no reason"
    if len(said) > _MESSAGE_CHARACTERS:
        said = said[: _MESSAGE_CHARACTERS - 3] + "..."
    return said


def explain(failures: Sequence[Failure]) -> str:
    """Return one or two sentences: where, what task, why; other nodes' failures are counted."""
    # Nodes fail in any order, but the sentence must be the same every time.
    here = sorted((f for f in failures if f.task == failures[0].task), key=lambda f: f.node)
    first = here[0]
    nodes = list(dict.fromkeys(f.node for f in here))
    where = f"node {nodes[0]}" + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")
    if first.unreachable:
        return f"{where} cannot be reached by ssh: {_sentence(first.message)}"
    task = f"{first.role}: {first.task}" if first.role else first.task
    others = sum(f.message != first.message for f in here)
    more = f" ({others} more {'says' if others == 1 else 'say'} otherwise)" if others else ""
    return f'"{task}" failed on {where}{more}: {_sentence(first.message)}'


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
