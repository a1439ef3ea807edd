"""ceph-ansible: its inputs, and (with its sources available) its verdict on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml

from schemas.errors import UserError
from testbed.deploy import ceph_ansible
from testbed.deploy.ceph_ansible import PURGE, RELEASES, CephRelease, tool
from testbed.deploy.inventory import cluster_id
from testbed.deploy.playbook import LOG, Ansible, RefusedError, play, playbook_tasks
from testbed.sites.contract import Testbed, silent
from testbed.spec import TestbedSpec
from testbed.spec.stores import GENERATED, CephAnsibleDeployer
from tests.errors import raises
from tests.testbed.deployers.beds import RAW, bed_of, spec_with

SPEC = spec_with(
    {"kind": "ceph-ansible", "variables": {"crush_device_class": "hdd"}},
    config={"osd": {"osd_max_backfills": 4}, "global": {"ms_bind_ipv4": True}},
)


def test_the_groups_are_its_own_and_osds_are_on_volumes(tmp_path):
    children = ceph_ansible.inventory(bed_of(SPEC, tmp_path), SPEC)["all"]["children"]
    assert {group: list(body["hosts"]) for group, body in children.items()} == {
        "mons": ["admin"],
        "mgrs": ["admin"],
        "osds": ["osd0", "osd1", "osd2"],
        "rgws": ["gate"],
        "clients": ["admin"],
    }
    assert children["clients"]["vars"]["copy_admin_key"] is True
    assert children["rgws"]["vars"]["radosgw_address_block"] == "10.1.0.8/29"
    bed = bed_of(SPEC, tmp_path)
    hosts = ceph_ansible.inventory(bed, SPEC)["all"]["hosts"]
    group = f"hotbed-{cluster_id(bed)[:8]}-0"
    assert hosts["osd1"]["lvm_volumes"] == [{"data": "osd", "data_vg": group}]
    assert "lvm_volumes" not in hosts["admin"]
    assert hosts["osd1"]["ansible_host"] == "10.1.0.12"


def test_raw_osds_are_no_matter_of_ceph_ansible(tmp_path, monkeypatch):
    spec = spec_with(RAW)
    made = ceph_ansible.inventory(bed_of(spec, tmp_path), spec)["all"]
    assert set(made["children"]) == {"mons", "mgrs", "rgws", "clients"}
    assert set(made["hosts"]) == {"admin", "gate"}
    common = made["vars"]
    assert (common["ceph_origin"], common["ceph_stable_release"]) == ("distro", "reef")
    monkeypatch.setattr(ceph_ansible, "ensure_environment", lambda progress: tmp_path)
    exported: list[CephRelease] = []
    monkeypatch.setattr(
        ceph_ansible, "export", lambda target, release: exported.append(release) or target
    )
    (tmp_path / "ansible").mkdir()
    raw, lvm = (tool(bed_of(each, tmp_path), each).extra for each in (spec, SPEC))
    assert exported == [RELEASES["reef"], RELEASES["squid"]]
    # Roles' and playbooks' own variables give way only on the command line.
    assert raw["debian_ceph_pkgs"] == ["ceph-common"]
    assert "debian_ceph_pkgs" not in lvm
    assert raw["ceph_packages"] == lvm["ceph_packages"] == []  # `--packages` removes them


def test_the_spec_wins_over_the_settings_that_keep_a_cluster_quiet(tmp_path):
    common = ceph_ansible.group_variables(bed_of(SPEC, tmp_path), SPEC)["all"]
    settings = common["ceph_conf_overrides"]
    assert settings["osd"]["osd_max_backfills"] == "4"
    assert settings["osd"]["osd_max_scrubs"] == "0"
    assert settings["global"]["ms_bind_ipv4"] == "true"
    # Settings only for the project's own role, or contrary to ceph-ansible's own.
    for name in ("fsid", "mon_host", "mon_initial_members"):
        assert name not in settings["global"]
    assert "osd_crush_update_on_start" not in settings["osd"]
    assert common["crush_device_class"] == "hdd"
    assert common["fsid"] == cluster_id(bed_of(SPEC, tmp_path))
    written = json.dumps(ceph_ansible.group_variables(bed_of(SPEC, tmp_path), SPEC))
    assert "key" not in written.replace("copy_admin_key", "")  # no secret
    assert str(tmp_path) not in written  # and no file of the engine's


def test_variables_without_effect_are_refused_by_a_deployment():
    deployer = CephAnsibleDeployer(variables={"crush_device_clas": "hdd"})
    with raises(UserError, "crush_device_class"):
        ceph_ansible.check_names(deployer, {"crush_device_class", "devices"})
    ceph_ansible.check_names(deployer, {"crush_device_clas"})
    # Reading a spec does not refuse it: records of existing testbeds may contain it.
    deployer = CephAnsibleDeployer(variables={"radosgw_frontend_port": 8080})
    with raises(UserError, "radosgw_frontend_port", "7480"):
        ceph_ansible.check_names(deployer, {"radosgw_frontend_port"})


def test_sources_are_those_of_the_commit_whatever_lies_in_the_clone(tmp_path, monkeypatch):
    repository = tmp_path / "clone"
    repository.mkdir()

    def git(*arguments: str) -> str:
        names = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        argv = ["git", *names, "-C", str(repository), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setenv(ceph_ansible.SOURCES, str(repository))
    with raises(UserError, str(repository), RELEASES["reef"].branch):
        ceph_ansible.clone(RELEASES["reef"])  # the folder has no such commit
    git("init", "--quiet")
    (repository / "site.yml.sample").write_text("committed")
    git("add", ".")
    git("commit", "--quiet", "-m", "x")
    release = replace(RELEASES["reef"], commit=git("rev-parse", "HEAD"))
    (repository / "site.yml.sample").write_text("edited")
    root = ceph_ansible.export(tmp_path / "private", release)
    assert (root / "site.yml").read_text() == "committed"
    (root / "site.yml").write_text("kept: it is not exported again")
    assert (ceph_ansible.export(root, release) / "site.yml").read_text().startswith("kept")
    with raises(UserError, RELEASES["squid"].branch):  # another release is exported anew
        ceph_ansible.export(root, RELEASES["squid"])


# --- with ceph-ansible's own sources -------------------------------------------------------------

needs_sources = pytest.mark.skipif(
    not os.environ.get(ceph_ansible.SOURCES),
    reason=f"set {ceph_ansible.SOURCES} to a clone of ceph-ansible (docs/another-ceph.md)",
)


def tool_of(bed: Testbed, spec: TestbedSpec) -> Ansible:
    (bed.directory / "ansible").mkdir(parents=True)
    return tool(bed, spec)


VALIDATION = [
    {"import_role": {"name": "ceph-defaults"}},
    {"import_role": {"name": "ceph-validate"}},
    # A check of the role that its other tasks do not call.
    {
        "import_role": {"name": "ceph-validate", "tasks_from": "check_ipaddr_mon"},
        "when": "mon_group_name in group_names",
    },
]
# This machine cannot provide these for every node at once. A test container may also lack the
# systemd that nodes have.
FACTS = {
    "ansible_service_mgr": "systemd",
    "ansible_all_ipv4_addresses": ["{{ ansible_host }}"],
    "cacheable": True,
}


def validate(ansible: Ansible, bed: Testbed, made: dict[str, Any]) -> None:
    """Run ceph-ansible's validate role on the generated files, with this machine as every node and
    without changes."""
    for values in made["all"]["hosts"].values():
        values |= {"ansible_connection": "local", "ansible_become": False}
    assert ansible.program is not None
    made["all"]["vars"]["ansible_python_interpreter"] = str(ansible.program.parent / "python")
    book = {"hosts": "all", "gather_facts": True, "pre_tasks": [{"set_fact": FACTS}]}
    (ansible.root / "validate.yml").write_text(yaml.safe_dump([book | {"tasks": VALIDATION}]))
    play(
        bed,
        bed.directory / "ansible",
        "validate.yml",
        made,
        silent,
        ansible=ansible,
    )


def recap(bed: Testbed) -> dict[str, tuple[int, int]]:
    """Return Ansible's recap by node: unreachable tasks, failed tasks."""
    _, last = (bed.directory / LOG).read_text().split("PLAY RECAP", 1)
    line = re.compile(r"^(\S+)\s*: ok=[1-9]\d* .*unreachable=(\d+) +failed=(\d+)", re.MULTILINE)
    return {node: (int(lost), int(failed)) for node, lost, failed in line.findall(last)}


@needs_sources
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_its_validate_role_accepts_the_variables_and_finds_what_is_wrong(tmp_path):
    """The volumes do not exist here: the role refuses the OSDs' nodes for that alone."""
    bed = bed_of(SPEC, tmp_path / "bed")
    ansible = tool_of(bed, SPEC)
    made = ceph_ansible.inventory(bed, SPEC)
    with raises(RefusedError, "isn't a block") as error:
        validate(ansible, bed, made)
    assert {failure.node for failure in error.value.failures} == {"osd0", "osd1", "osd2"}
    assert recap(bed) == {node.name: (0, int("osd" in node.roles)) for node in bed.nodes}
    for playbook in ("site.yml", PURGE):
        assert len(playbook_tasks(ansible.root, playbook)) > 60
    in_site_yml_itself = {"yes_i_know"}
    assert ceph_ansible.variables_known(ansible.root) >= GENERATED - in_site_yml_itself
    made["all"]["hosts"]["admin"]["public_network"] = "10.9.0.0/24"
    with raises(RefusedError, "admin does not have any ipv4 address on 10.9.0.0/24"):
        validate(ansible, bed, made)
