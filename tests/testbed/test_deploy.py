"""Real runs of Ansible through ansible-runner, on this machine with the connection `local`."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import pytest
import yaml

import testbed.deploy.roles as module
from schemas.errors import UserError
from testbed import reach
from testbed.agent.contract import AgentConfig
from testbed.deploy import playbook
from testbed.deploy.roles import LOG, DeployError, deploy, save_spec, spec_of
from testbed.sites.contract import Testbed
from tests.errors import raises
from tests.testbed.plain_specs import CEPH_ROLES, plain_spec

SPEC = plain_spec("t", admin=CEPH_ROLES, store={})
INVENTORY = {
    "all": {
        "hosts": {"osd0": {}, "osd1": {}},
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
    }
}


def task(name: str, *argv: str, **more: object) -> dict[str, Any]:
    return {
        "name": name,
        "ansible.builtin.command": {"argv": list(argv)},
        "changed_when": False,
        **more,
    }


@pytest.fixture(autouse=True)
def no_connections_left(tmp_path):
    """Remove a testbed's folder of connections under /run, as a site's release would."""
    yield
    for folder in (tmp_path / "bed", tmp_path):
        reach.hang_up("t", folder, folder / "known_hosts")
        assert not reach.control_dir("t", folder).exists()


@pytest.fixture
def bed(tmp_path):
    folder = tmp_path / "bed"
    folder.mkdir()
    return Testbed("t", "s", (), folder / "key", folder / "known_hosts", folder, "h")


@pytest.fixture
def play(tmp_path, bed):
    """Return a function that runs tasks, of `role` if given, on two nodes that are this machine."""
    books = tmp_path / "playbooks"

    def run(
        *tasks: dict[str, Any],
        role: str = "",
        progress: Any = lambda phase, share: None,
        **of_ansible: Any,
    ) -> dict[str, int]:
        body: dict[str, Any] = {"name": "A play", "hosts": "all", "gather_facts": False}
        if role:
            (books / "roles" / role / "tasks").mkdir(parents=True)
            (books / "roles" / role / "tasks" / "main.yml").write_text(yaml.safe_dump(list(tasks)))
            body["roles"] = [role]
        else:
            body["tasks"] = list(tasks)
        books.mkdir(exist_ok=True)
        (books / "x.yml").write_text(yaml.safe_dump([body]))
        folder = bed.directory / "ansible"
        folder.mkdir(exist_ok=True)
        ours = replace(module.OURS, root=books, **of_ansible)
        return playbook.play(bed, folder, "x.yml", INVENTORY, progress, ansible=ours)

    return run


@pytest.mark.slow
def test_a_run_has_its_own_ansibles_environment_and_leaves_nothing_in_the_users_home(
    play, bed, tmp_path, monkeypatch
):
    """ceph-ansible's Ansible runs in the same folder after Hotbed's."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HOTBED_CACHE", str(tmp_path / "cache"))
    said = {"msg": "{{ lookup('env', 'WHOSE') }} {{ more | default('none') }}"}
    tell = {"name": "Tell", "ansible.builtin.debug": said}
    needs_files = {"name": "A module that needs files", "ansible.builtin.ping": {}}
    found = []
    for environment, extra in ({"WHOSE": "hers"}, {"more": "much"}), ({"WHOSE": "his"}, {}):
        play(tell, needs_files, environment=environment, extra=extra)
        (words,) = set(re.findall(r'"msg": "(.*)"', (bed.directory / LOG).read_text()))
        found.append(words)
    assert found == ["hers much", "his none"]
    # Only Ansible's folder on the managed machine, here this one, may remain.
    assert {path.name for path in home.iterdir()} <= {".ansible"}
    assert {path.name for path in (home / ".ansible").glob("*")} <= {"tmp"}


@pytest.mark.slow
def test_a_failure_is_a_sentence_with_the_way_to_the_log(play, bed):
    with pytest.raises(DeployError) as error:
        play(task("Start the OSDs", "sh", "-c", "echo no such disk >&2; exit 1"))
    assert str(error.value) == (
        f'"Start the OSDs" failed on node osd0 and 1 more: no such disk. '
        f"Full log: {bed.directory / LOG}"
    )
    assert (bed.directory / LOG).stat().st_mode & 0o777 == 0o600
    assert not isinstance(error.value, UserError)
    assert {failure.node for failure in error.value.failures} == {"osd0", "osd1"}


SCRIPT = """
import json, sys
given = [*sys.argv[1:], sys.stdin.read()]
if not given[0]:
    sys.exit("it has nothing to do")
print(json.dumps({"changed": given == ["first", "geheim ü"]}))
"""


@pytest.mark.slow
def test_a_script_on_a_node_gets_words_and_input_and_says_what_it_changed(play, tmp_path):
    (tmp_path / "say.py").write_text(SCRIPT)

    def say(word: str, name: str) -> dict[str, Any]:
        given = {"script": str(tmp_path / "say.py"), "argv": [word], "stdin": "geheim ü"}
        return {"name": name, "node_script": given}

    changed = play(say("first", "One that changes"), say("second", "One that does not"))
    assert {node: count for node, count in changed.items() if count} == {"osd0": 1, "osd1": 1}
    with raises(DeployError, '"Fail" failed on node osd0 and 1 more: it has nothing to do.'):
        play(say("", "Fail"))


class Shaper:
    """Site that shapes disks, as far as `deploy` needs."""

    kind = "fake"
    capabilities = frozenset[object]()

    def __init__(self) -> None:
        self.said: list[bool] = []

    def shape(self, name: str, on: bool) -> None:
        self.said.append(on)

    def __getattr__(self, name: str) -> Any:
        if name in {"plan", "provision", "status", "find", "folder", "names", "extend", "release"}:
            return lambda *_: None
        raise AttributeError(name)


def test_disks_are_filled_at_full_speed_and_shaped_again_after_a_failure(bed, monkeypatch):
    site = Shaper()

    def fail(*_: object, **more: object) -> dict[str, int]:
        assert site.said == [False]
        raise DeployError("no")

    monkeypatch.setattr(module, "play", fail)
    monkeypatch.setattr(module, "build_inventory", lambda *_: {})
    config = AgentConfig("t", "ceph", ())
    monkeypatch.setattr(module, "agent_config", lambda *_: config)
    with pytest.raises(DeployError):
        deploy(bed, SPEC, site=site)  # type: ignore[arg-type]
    assert site.said == [False, True]


def test_the_spec_is_kept_with_the_testbed(bed):
    with raises(UserError, do="hotbed up SPEC"):
        spec_of(bed)
    save_spec(bed, SPEC)
    assert spec_of(bed) == SPEC
