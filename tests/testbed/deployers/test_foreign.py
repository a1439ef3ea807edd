"""Steps around a foreign deployer: the roles' variables as Ansible really computes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.deploy import foreign
from testbed.deploy.inventory import cluster_id
from testbed.deploy.playbook import PLAYBOOKS, Ansible, RefusedError, play
from tests.testbed.deployers.beds import bed_of, spec_with

SPEC = spec_with("cephadm", pools=[{"name": "bench", "pg_num": 32}])


def run(folder: Path, inventory: dict[str, Any], body: dict[str, Any]) -> None:
    """Run a play of the project's roles, with this machine as every node."""
    inventory["all"]["vars"] |= {"ansible_connection": "local", "ansible_become": False}
    bed = bed_of(SPEC, folder)
    root = folder / "books"
    root.mkdir()
    common = {"gather_facts": False, "any_errors_fatal": True}
    (root / "x.yml").write_text(yaml.safe_dump([common | body]))
    ours = Ansible(
        root,
        PLAYBOOKS / "ansible.cfg",
        environment={"ANSIBLE_ROLES_PATH": str(PLAYBOOKS / "roles")},
        refusing=foreign.OURS.refusing,
    )
    private = folder / "ansible"
    private.mkdir()
    play(bed, private, "x.yml", inventory, lambda phase, share: None, ansible=ours)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_volumes_script_gets_what_the_spec_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")  # Ansible refuses it; some users have it
    bed = bed_of(SPEC, tmp_path)
    made = foreign.inventory(bed, SPEC, "cephadm", {"validate_wipe": True})
    saved = tmp_path / "volumes.json"
    copy = {"content": "{{ volumes_parameters | to_json }}", "dest": str(saved), "mode": "0600"}
    defaults = yaml.safe_load((PLAYBOOKS / "roles/volumes/defaults/main.yml").read_text())
    # A play's variables override the inventory's; a role's defaults do not.
    known = made["all"]["vars"]
    body = {
        "hosts": "osd1",
        "vars": {name: value for name, value in defaults.items() if name not in known},
        "tasks": [{"name": "Keep them", "ansible.builtin.copy": copy}],
    }
    run(tmp_path, made, body)
    volumes = json.loads(saved.read_text())
    assert volumes == {
        "node": "osd1",
        "fsid": cluster_id(bed),
        "deployer": "cephadm",
        "volumes": foreign.volumes(bed, bed.node("osd1")),
        "min_bytes": made["all"]["hosts"]["osd1"]["hotbed_osd_min_bytes"],
        "wipe": True,
        "engine": "",
    }
    assert volumes["min_bytes"] > 2**30


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_devices_are_judged_before_anything_is_changed(tmp_path):
    bed = bed_of(SPEC, tmp_path)
    made = foreign.inventory(bed, SPEC, "cephadm", {})
    for node in bed.with_role("osd"):
        made["all"]["hosts"][node.name]["hotbed_volumes"][0]["device"] = f"/dev/none-{node.name}"
    with pytest.raises(RefusedError) as error:
        run(tmp_path, made, {"hosts": "all", "roles": ["validate_volumes"]})
    for name in ("osd0", "osd1", "osd2"):
        sentence = f"The OSD device /dev/none-{name} of node {name} cannot be found"
        assert sentence in str(error.value)
    assert {failure.node for failure in error.value.failures} == {"osd0", "osd1", "osd2"}
