"""House rules of the roles that ansible-lint does not cover."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = sorted(path.name for path in (Path(__file__).parents[2] / "playbooks/roles").iterdir())
# Set by tasks or Ansible, or private to a script's parameters: not for a caller.
INNER = re.compile(r"^(ceph_(first|other|registered|osd_made)$)")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def tasks_of(role: Path) -> list[dict[str, Any]]:
    files = [*(role / "tasks").glob("*.yml"), *(role / "handlers").glob("*.yml")]
    return [task for file in files for task in load(file)]


def registered(role: Path) -> set[str]:
    names = {task["register"] for task in tasks_of(role) if "register" in task}
    for task in tasks_of(role):
        names |= set(task.get("vars", {})) | set(task.get("ansible.builtin.set_fact", {}))
    return names


def documented(role: Path) -> dict[str, Any]:
    specs = load(role / "meta" / "argument_specs.yml")["argument_specs"]
    return {name: body for spec in specs.values() for name, body in spec["options"].items()}


@pytest.fixture(params=ROLES)
def role(request, root):
    return root / "playbooks" / "roles" / str(request.param)


def test_every_default_is_an_argument_or_inner(role):
    defaults = set(load(role / "defaults" / "main.yml"))
    text = (role / "defaults" / "main.yml").read_text()
    inner = text.split("# Input of the role's scripts; do not set.")
    hidden = set(yaml.safe_load(inner[1])) if len(inner) == 2 else set()
    missing = defaults - set(documented(role)) - hidden
    assert not missing, f"{role.name}: not in argument_specs: {sorted(missing)}"


def test_every_variable_used_has_an_origin(role):
    known = set(load(role / "defaults" / "main.yml")) | set(documented(role)) | registered(role)
    known |= {"validate_report", "agent_bundle_mark"} | {
        f"hotbed_{name}" for name in ("fsid", "scratch_path")
    }
    text = "\n".join(
        re.sub(r"(?m)^ *#.*$|name: .*$", "", path.read_text())
        for folder in ("tasks", "templates", "defaults", "handlers")
        for path in (role / folder).glob("*")
    )
    prefixes = "|".join(ROLES)
    # Exclude keys of mappings, strings, and words after a dot.
    word = rf"(?<![\w./'-])(?:(?:{prefixes})_[a-z_]+|hotbed_[a-z_]+)\b(?!\s*:)"
    used = set(re.findall(word, text))
    inventory = {
        *("hotbed_address", "hotbed_osds", "hotbed_rack", "hotbed_scratch_device"),
        *("hotbed_fio_file_bytes", "hotbed_memory_bytes", "hotbed_scratch_label"),
        *("hotbed_objectstore", "hotbed_scratch_path", "hotbed_fsid", "hotbed_store"),
        *("hotbed_swift_disks", "hotbed_peer_ports"),
        *("hotbed_volumes", "hotbed_engine", "hotbed_wipe", "hotbed_osd_min_bytes"),
        *("hotbed_osd_count", "hotbed_metrics", "hotbed_metrics_ports", "hotbed_testbed"),
    }
    unknown = {name for name in used if name not in known | inventory and not INNER.match(name)}
    assert not unknown, f"{role.name}: {sorted(unknown)}"


def test_only_builtin_modules_and_our_action(role):
    words = {
        *("name", "when", "register", "changed_when", "failed_when", "no_log", "vars", "loop"),
        *("notify", "run_once", "environment"),
    }
    for task in tasks_of(role):
        modules = set(task) - words
        assert len(modules) == 1, task["name"]
        module = modules.pop()
        assert module == "node_script" or module.startswith("ansible.builtin."), task["name"]


def test_tasks_that_handle_keys_log_nothing(root):
    for role in ROLES:
        for task in tasks_of(root / "playbooks" / "roles" / role):
            body = yaml.safe_dump(task)
            if re.search(r"ceph_keys|'keys'|monitor.py|ceph_register ", body):
                assert task.get("no_log") is True, task["name"]
