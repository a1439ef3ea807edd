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


def run(folder: Path, inventory: dict[str, Any], *plays: dict[str, Any]) -> None:
    """Run plays of the project's roles, with this machine as every node."""
    inventory["all"]["vars"] |= {"ansible_connection": "local", "ansible_become": False}
    bed = bed_of(SPEC, folder)
    root = folder / "books"
    root.mkdir()
    common = {"gather_facts": False, "any_errors_fatal": True}
    (root / "x.yml").write_text(yaml.safe_dump([common | body for body in plays]))
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
def test_the_scripts_get_what_the_spec_says(tmp_path):
    bed = bed_of(SPEC, tmp_path)
    made = foreign.inventory(bed, SPEC, "cephadm", {"validate_wipe": True})
    settings = {"osd": {"osd_max_scrubs": "0"}}
    made["all"]["vars"] |= foreign.adoption(bed, SPEC, tmp_path, settings)

    def kept(role: str, hosts: str) -> dict[str, Any]:
        """Return a play that saves a role's parameters in a file."""
        content = f"{{{{ {role}_parameters | to_json }}}}"
        copy = {"content": content, "dest": str(tmp_path / f"{role}.json"), "mode": "0600"}
        defaults = yaml.safe_load((PLAYBOOKS / "roles" / role / "defaults/main.yml").read_text())
        # A play's variables override the inventory's; a role's defaults do not.
        known = made["all"]["vars"]
        return {
            "hosts": hosts,
            "vars": {name: value for name, value in defaults.items() if name not in known},
            "tasks": [{"name": "Keep them", "ansible.builtin.copy": copy}],
        }

    run(tmp_path, made, kept("volumes", "osd1"), kept("adopt", "admins"))
    volumes = json.loads((tmp_path / "volumes.json").read_text())
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
    adopt = json.loads((tmp_path / "adopt.json").read_text())
    assert adopt["osds"] == {"osd0": 1, "osd1": 1, "osd2": 1}
    assert adopt["racks"] == {"osd0": "", "osd1": "", "osd2": ""}
    assert adopt["settings"]["osd"] == settings["osd"] | foreign.LATER["osd"]
    assert adopt["pools"] == [{"name": "bench", "pg_num": 32, "size": 2, "min_size": 1}]
    assert adopt["failure_domain"] == "host"
    assert adopt["timeout_s"] == 300
    assert adopt["agent_config"]["nodes"][0]["name"] == "admin"


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
