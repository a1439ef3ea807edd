"""What ceph-ansible's playbooks will do, in order: names of tasks, for telling how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

_INCLUDES = ("import_tasks", "include_tasks")
_ROLES = ("import_role", "include_role")


def names_of(root: Path, playbook: str) -> list[str]:
    """Names of a playbook's tasks, roles and files followed as far as they are named plainly.

    Tasks that are left out at the time are in it too: a run passes over them.
    """
    names: list[str] = []
    for play in yaml.safe_load((root / playbook).read_text()):
        for block in ("pre_tasks", "tasks", "post_tasks"):
            names += _expand(play.get(block, ()), root, root)
    return names


def _expand(tasks: Iterable[Mapping[str, Any]], root: Path, folder: Path) -> list[str]:
    names: list[str] = []
    for task in tasks or ():
        if "block" in task:
            names += _expand(task["block"], root, folder)
            continue
        role = _value(task, _ROLES)
        if role is not None:
            entry = str(role.get("tasks_from", "main")).removesuffix(".yml")
            names += _file(root, root / "roles" / str(role.get("name")) / "tasks" / f"{entry}.yml")
            continue
        included = _value(task, _INCLUDES)
        if included is not None:
            path = included.get("file") if isinstance(included, Mapping) else included
            names += _file(root, folder / str(path))
        elif task.get("name"):
            names.append(str(task["name"]))
    return names


def _value(task: Mapping[str, Any], modules: tuple[str, ...]) -> Any:
    for module in modules:
        for name in (module, f"ansible.builtin.{module}"):
            if name in task:
                return task[name]
    return None


def _file(root: Path, path: Path) -> list[str]:
    if not path.is_file():  # its name is made up at the time
        return []
    return _expand(yaml.safe_load(path.read_text()) or (), root, path.parent)
