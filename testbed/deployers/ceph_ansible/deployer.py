"""ceph-ansible as a deployer: site.yml between our own preparation and adoption, and its purge."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from schemas.errors import RemoteError
from testbed.ansible_processes import ansible_folder
from testbed.checks import Finding
from testbed.deploy import save_spec, unshaped
from testbed.deployers import foreign
from testbed.deployers.ceph_ansible import environment, sources, tasks, variables
from testbed.deployers.cephadm.commands import as_root
from testbed.deployers.contract import Deployed, Plan
from testbed.deployers.store_status import read_status
from testbed.inventory import cluster_id
from testbed.playbook_run import FORKS, Ansible, DeployError, play, private_data
from testbed.reach import shell_to
from testbed.sites.contract import Node, Progress, Site, Testbed, silent
from testbed.spec import TestbedSpec

PURGE = "infrastructure-playbooks/purge-cluster.yml"
CONF = "/etc/ceph/ceph.conf"
LOOK_S = 60.0
END_OF_LIFE = "2026-10-31"
_FOLDER = "ceph-ansible"


class CephAnsible:
    """See the module's text."""

    kind = "ceph-ansible"

    def usable(self) -> Finding:
        """See `Deployer.usable`: what is not there yet is made by the first deployment."""
        python = environment.python()
        made = environment.Environment(environment.environment_folder()).complete
        found = (
            "no Python 3.10 to 3.12"
            if python is None
            else f"ready (ceph-ansible {sources.COMMIT[:12]})"
            if made
            else "its Ansible is made at the first deployment (0.5 GB)"
        )
        return Finding(
            "deployer-ceph-ansible",
            "deployer ceph-ansible",
            python is not None,
            found,
            "install python3.12 beside this Python",
            needed=False,
        )

    def plan(self, spec: TestbedSpec) -> Plan:
        """See `Deployer.plan`."""
        spec.ceph()
        return Plan(
            self.kind,
            "19 (squid)",
            (
                "check every machine (also: a kernel with LVM), then install missing packages",
                "name the machines as the spec does; scratch file systems and fio's files",
                "a volume group over each OSD device",
                f"ceph-ansible's site.yml ({sources.BRANCH}, commit {sources.COMMIT[:12]})",
                "settings, racks and pools, the control plane on the admin node",
            ),
            (
                f"Squid's last release line ended on {END_OF_LIFE}",
                "ceph-ansible's own project recommends cephadm for new clusters",
            ),
        )

    def deploy(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        site: Site | None = None,
        wipe: bool = False,
    ) -> dict[str, int]:
        """See `Deployer.deploy`."""
        save_spec(testbed, spec)
        made = variables.inventory(testbed, spec)
        ansible = tool(testbed, foreign.part(progress, 0.0, 0.1))
        known = sources.variables_known(ansible.root)
        variables.check_names(variables.deployer_of(spec.ceph()), known)
        extra = {"validate_wipe": wipe, "validate_ceph_packages": foreign.packages(of_ceph=False)}
        ours = foreign.inventory(testbed, spec, self.kind, extra)
        with private_data(testbed) as folder, unshaped(testbed, site):
            ready = foreign.prepare(testbed, folder, ours, foreign.part(progress, 0.1, 0.25))
            brought = play(
                testbed,
                folder,
                "site.yml",
                made,
                foreign.part(progress, 0.25, 0.85),
                ansible=ansible,
                tasks=tasks.names_of(ansible.root, "site.yml"),
            )
            taken = foreign.adopt(
                testbed, spec, folder, ours, foreign.part(progress, 0.85, 1.0), settings={}
            )
        return _of_nodes(testbed, foreign.added(ready, brought, taken))

    def remove(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        packages: bool = False,
        site: Site | None = None,
    ) -> dict[str, int]:
        """See `Deployer.remove`. The purge takes Ceph's packages along in any case.

        It takes any Ceph off a machine, so it goes to those alone whose ceph.conf is the cluster's.
        What it leaves is taken away also where it failed; its failure is raised then.
        """
        ours = foreign.inventory(testbed, spec, self.kind, {"remove_packages": packages})
        with private_data(testbed) as folder, unshaped(testbed, site):
            first, rest = foreign.part(progress, 0.0, 0.7), foreign.part(progress, 0.7, 1.0)
            counts = foreign.every(
                lambda: _purge(testbed, spec, folder, first),
                lambda: foreign.take_away(testbed, folder, ours, rest),
            )
        return _of_nodes(testbed, counts)

    def status(self, testbed: Testbed) -> Deployed:
        """See `Deployer.status`."""
        return read_status(self.kind, testbed)


def _purge(testbed: Testbed, spec: TestbedSpec, folder: Path, progress: Progress) -> dict[str, int]:
    holders = nodes_with_its_conf(testbed)
    if not holders:
        return {}
    ansible = tool(testbed, foreign.part(progress, 0.0, 0.15))
    made = variables.of_nodes(variables.inventory(testbed, spec), holders)
    names, last = tasks.names_of(ansible.root, PURGE), foreign.part(progress, 0.15, 1.0)
    try:
        return play(testbed, folder, PURGE, made, last, ansible=ansible, tasks=names)
    except DeployError as error:
        raise DeployError(
            f"ceph-ansible's purge failed ({error}) Devices, data and keys are taken away without "
            "it; Ceph's packages may be left.",
            error.failures,
        ) from error


def nodes_with_its_conf(testbed: Testbed) -> frozenset[str]:
    """Nodes whose ceph.conf names the testbed's cluster: without the others, which have none,
    another cluster's, or do not answer."""
    line = re.compile(rf"^\s*fsid\s*=\s*{cluster_id(testbed)}\s*([#;].*)?$", re.MULTILINE)

    def has(node: Node) -> bool:
        command = as_root(node.ssh_user, ["cat", CONF])
        try:
            done = shell_to(testbed, node).run(command, timeout_s=LOOK_S, check=False)
        except RemoteError:
            return False  # what is done afterwards tells of it
        return line.search(done.stdout.decode(errors="replace")) is not None

    with ThreadPoolExecutor(FORKS) as pool:
        found = pool.map(has, testbed.nodes)
        return frozenset(n.name for n, there in zip(testbed.nodes, found, strict=True) if there)


def tool(testbed: Testbed, progress: Progress = silent) -> Ansible:
    """ceph-ansible with its Ansible, ready to run for a testbed.

    Raises:
        UserError: its sources or its Ansible cannot be had.
    """
    made = environment.ensure(progress)
    folder = ansible_folder(testbed.directory)
    root = sources.export(folder / _FOLDER)
    config = folder / f"{_FOLDER}.cfg"
    config.write_text(configuration(root))
    return Ansible(
        root=root,
        config=config,
        program=made.playbook,
        environment={"ANSIBLE_COLLECTIONS_PATH": str(made.collections)},
        refusing=("ceph-validate",),
        extra=variables.EXTRA,
    )


def configuration(root: Path) -> str:
    """ansible.cfg in place of ceph-ansible's, which trusts any host key, and keeps a log and facts
    in the home folder: facts of a cluster that was purged are one way a redeployment fails."""
    return f"""[defaults]
library = {root}/library
module_utils = {root}/module_utils
action_plugins = {root}/plugins/actions
callback_plugins = {root}/plugins/callback
filter_plugins = {root}/plugins/filter
roles_path = {root}/roles
forks = {FORKS}
host_key_checking = true
gathering = smart
fact_caching = memory
inject_facts_as_vars = false
force_valid_group_names = ignore
retry_files_enabled = false
timeout = 60

[ssh_connection]
pipelining = true
retries = 3
ssh_args = -o ControlMaster=auto -o ControlPersist=600s
"""


def _of_nodes(testbed: Testbed, counts: dict[str, int]) -> dict[str, int]:
    """Without localhost, which has no part in a cluster."""
    names = {node.name for node in testbed.nodes}
    return {name: count for name, count in counts.items() if name in names}
