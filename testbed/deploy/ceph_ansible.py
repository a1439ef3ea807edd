"""ceph-ansible as a deployer of Reef and Squid: its site.yml and its purge.

With `osds: raw` it deploys no OSD: monitors, managers and gateways are its own, and osds.yml adds
OSDs on raw devices.

Its sources come from a clone of its repository: the user's ($HOTBED_CEPH_ANSIBLE), or a clone that
is made if this machine reaches the network. Only committed files of the pinned commit count. It
needs ansible-core below 2.17 and Hotbed has a later one, so an environment is made once in the
cache, from PyPI; its collection comes from git, or from $HOTBED_CONFIG_TEMPLATE, a folder with the
sources, for machines that do not reach opendev.org.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from schemas.errors import HotbedError, RemoteError, UserError, nearest
from schemas.locks import held
from testbed.checks import CheckResult
from testbed.deploy import foreign
from testbed.deploy.contract import DeploymentPlan
from testbed.deploy.foreign import (
    DAEMON_BYTES,
    VOLUME,
    Bring,
    ForeignDeployer,
    Settings,
    memory_target,
    network_of,
    quiet_settings,
    volume_group,
)
from testbed.deploy.inventory import build_inventory, cluster_id
from testbed.deploy.lifecycle import stop_store
from testbed.deploy.parts import cache_folder
from testbed.deploy.playbook import FORKS, Ansible, DeployError, ansible_folder, play
from testbed.deploy.ports import GATEWAY_PORT
from testbed.deploy.roles import OURS
from testbed.reach import shell_to
from testbed.sites.contract import Node, Progress, Testbed, silent
from testbed.spec import CephSpec, TestbedSpec
from testbed.spec.stores import TOLERATED, CephAnsibleDeployer
from testbed.ssh import last_line


@dataclass(frozen=True)
class CephRelease:
    """A release of Ceph: its major version, ceph-ansible's branch with the pinned commit, and the
    date when the Ceph project ended support."""

    major: int
    branch: str
    commit: str
    end_of_life: str


RELEASES = {
    "reef": CephRelease(18, "stable-8.0", "1a613004e3fb3804f26a60369cec32ef9255bd2d", "2026-03-31"),
    "squid": CephRelease(
        19, "stable-9.0", "aeec95c82b01cbab93c6f2140bb47fe24df6e21a", "2026-10-31"
    ),
}
ADDRESS = "https://github.com/ceph/ceph-ansible"
SOURCES = "HOTBED_CEPH_ANSIBLE"
PURGE = "infrastructure-playbooks/purge-cluster.yml"
CONF = "/etc/ceph/ceph.conf"
LOOK_S = 60.0
EXTRA: dict[str, object] = {
    # Its playbooks ask for these, and a prompt sees nothing else.
    "yes_i_know": True,
    "ireallymeanit": "yes",
    # remove.yml removes packages if this is wanted. The purge would also take HAProxy.
    "ceph_packages": [],
    "purge_all_packages": False,
}
"""Variables on the command line, which win over those of playbooks and roles."""
PRESENT: dict[str, object] = {
    "debian_ceph_pkgs": ["ceph-common"],
    "ceph_mgr_packages": ["ceph-mgr"],
}
"""Like EXTRA, if the role base installs what each machine needs: ceph-ansible would install all
daemons on all machines, and manager modules that Debian does not have."""
PACKAGES = ("ansible==9.13.0", "netaddr==1.3.0")
COLLECTION = "openstack.config_template"
COLLECTION_ADDRESS = "https://opendev.org/openstack/ansible-config_template"
COLLECTION_VERSION = "3.0.1"
TEMPLATE = "HOTBED_CONFIG_TEMPLATE"
CRASHES: Settings = {"mgr": {"mgr/crash/warn_recent_interval": "0"}}
"""ceph-crash, which the project's role does not run, must not change health; see osds.yml."""
OLDEST, NEWEST = (3, 10), (3, 12)
"""Pythons that ansible-core 2.16 runs on."""
_FOLDER, _MARK, _COMPLETE = "ceph-ansible", ".commit", ".complete"
_RUN_S = 1200.0
_GROUPS = {"mon": "mons", "mgr": "mgrs", "osd": "osds", "rgw": "rgws"}


class CephAnsible(ForeignDeployer):
    """Deployer of Ceph by ceph-ansible. The first deployment makes all that is missing."""

    kind = "ceph-ansible"

    def usable(self) -> CheckResult:
        """See `Deployer.usable`."""
        program = python()
        found = "its Ansible is made at the first deployment (0.5 GB)"
        if program is None:
            found = "no Python 3.10 to 3.12"
        elif (environment_folder() / _COMPLETE).exists():
            found = f"ready ({', '.join(release.branch for release in RELEASES.values())})"
        return CheckResult(
            "deployer-ceph-ansible",
            "deployer ceph-ansible",
            program is not None,
            found,
            "install python3.12 next to this Python",
            needed=False,
        )

    def plan(self, spec: TestbedSpec) -> DeploymentPlan:
        """See `Deployer.plan`."""
        lvm, name = spec.ceph().on_lvm, _deployer_of(spec.ceph()).release
        release = RELEASES[name]
        site = f"ceph-ansible's site.yml ({release.branch}, commit {release.commit[:12]})"
        return DeploymentPlan(
            self.kind,
            f"{release.major} ({name})",
            (
                f"check every machine{' (also: a kernel with LVM)' if lvm else ''}, then install "
                "missing packages",
                "name the machines as the spec does; scratch file systems and fio's files",
                *(
                    ("a volume group over each OSD device", site)
                    if lvm
                    else (f"{site} without OSDs", "OSDs on raw devices by the role ceph")
                ),
                "settings, racks and pools, the control plane on the admin node",
            ),
            (
                f"the Ceph project ended support for {name} on {release.end_of_life}",
                "ceph-ansible ends with Squid; its project recommends cephadm for new clusters",
            ),
        )

    def variables(self, spec: TestbedSpec) -> dict[str, Any]:
        """See `ForeignDeployer.variables`. ceph-ansible brings Ceph's packages unless OSDs are
        raw."""
        if spec.ceph().on_lvm:
            return {"validate_ceph_packages": foreign.packages(of_ceph=False)}
        release = RELEASES[_deployer_of(spec.ceph()).release]
        return {"validate_ceph_majors": [release.major]}

    def ready(self, testbed: Testbed, spec: TestbedSpec, progress: Progress) -> Bring:
        """See `ForeignDeployer.ready`."""
        made = inventory(testbed, spec)
        ansible = tool(testbed, spec, progress)
        check_names(_deployer_of(spec.ceph()), variables_known(ansible.root))

        def bring(folder: Path, progress: Progress) -> tuple[dict[str, int], Settings]:
            if spec.ceph().on_lvm:
                return play(testbed, folder, "site.yml", made, progress, ansible=ansible), {}
            first, last = foreign.part(progress, 0.0, 0.8), foreign.part(progress, 0.8, 1.0)
            others = play(testbed, folder, "site.yml", made, first, ansible=ansible)
            ours = foreign.inventory(testbed, spec, self.kind, self.variables(spec))
            # A refusal would say that nothing was changed.
            late = replace(OURS, refusing=())
            osds = play(testbed, folder, "osds.yml", ours, last, ansible=late)
            return foreign.added(testbed, others, osds), CRASHES

        return bring

    def tear_down(
        self, testbed: Testbed, spec: TestbedSpec, folder: Path, progress: Progress
    ) -> dict[str, int]:
        """See `ForeignDeployer.tear_down`. The purge removes any Ceph from a machine, so it runs
        only on machines with the cluster's ceph.conf."""
        holders = nodes_with_its_conf(testbed)
        if not holders:
            return {}
        ansible = tool(testbed, spec, foreign.part(progress, 0.0, 0.15))
        made = _of_nodes(inventory(testbed, spec), holders)
        # It would only unload their kernel modules, and fail on a kernel without any.
        del made["all"]["children"]["clients"]
        last = foreign.part(progress, 0.15, 1.0)
        if not spec.ceph().on_lvm:
            # The purge does not know these OSDs and refuses machines where a Ceph runs.
            with suppress(HotbedError):
                stop_store(testbed)
        try:
            return play(testbed, folder, PURGE, made, last, ansible=ansible)
        except DeployError as error:
            raise DeployError(
                f"ceph-ansible's purge failed ({error}) Devices, data and keys are taken away "
                "without it.",
                error.failures,
            ) from error


def nodes_with_its_conf(testbed: Testbed) -> frozenset[str]:
    """Return nodes with a ceph.conf of the testbed's cluster, without nodes that have no ceph.conf,
    another cluster's, or do not answer."""
    line = re.compile(rf"^\s*fsid\s*=\s*{cluster_id(testbed)}\s*([#;].*)?$", re.MULTILINE)

    def has(node: Node) -> bool:
        command = foreign.as_root(node.ssh_user, ["cat", CONF])
        try:
            done = shell_to(testbed, node).run(command, timeout_s=LOOK_S, check=False)
        except RemoteError:
            return False  # a later step reports it
        return line.search(done.stdout.decode(errors="replace")) is not None

    with ThreadPoolExecutor(FORKS) as pool:
        found = pool.map(has, testbed.nodes)
        return frozenset(n.name for n, there in zip(testbed.nodes, found, strict=True) if there)


def tool(testbed: Testbed, spec: TestbedSpec, progress: Progress = silent) -> Ansible:
    """Return ceph-ansible with its Ansible, ready to run for a testbed. UserError: its sources or
    its Ansible are not available."""
    made = ensure_environment(progress)
    folder = ansible_folder(testbed.directory)
    root = export(folder / _FOLDER, RELEASES[_deployer_of(spec.ceph()).release])
    config = folder / f"{_FOLDER}.cfg"
    config.write_text(configuration(root))
    return Ansible(
        root=root,
        config=config,
        program=made / "bin" / "ansible-playbook",
        environment={"ANSIBLE_COLLECTIONS_PATH": str(made / "collections")},
        refusing=("ceph-validate",),
        extra=EXTRA if spec.ceph().on_lvm else EXTRA | PRESENT,
    )


def configuration(root: Path) -> str:
    """Return ansible.cfg instead of ceph-ansible's, which trusts any host key and keeps a log and
    facts in the home folder: facts of a purged cluster can make a redeployment fail."""
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


# -- its variables, all in the inventory: the purge playbook is in another folder than site.yml ----


def _deployer_of(store: CephSpec) -> CephAnsibleDeployer:
    """Return the deployer's block of a spec; the defaults if the spec names another deployer."""
    found = store.deployer
    return found if isinstance(found, CephAnsibleDeployer) else CephAnsibleDeployer()


def check_names(deployer: CephAnsibleDeployer, known: Collection[str]) -> None:
    """Raise UserError for the first of the spec's variables that no role knows, or without effect.
    `known`: names of all variables of the roles."""
    for name in deployer.variables:
        where = f"store.deployer.variables: {name}"
        if name in TOLERATED:
            raise UserError(
                f"Hotbed sets it (gateways listen at port {GATEWAY_PORT})",
                where=where,
                do="leave it out",
            )
        if name not in known:
            raise UserError(
                f"{name} is no variable of ceph-ansible's roles",
                where=where,
                do=nearest(name, sorted(known)) or "leave it out",
            )


def group_variables(testbed: Testbed, spec: TestbedSpec) -> dict[str, dict[str, Any]]:
    """Return variables by group. UserError: the nodes' addresses make no network."""
    store = spec.ceph()
    deployer = _deployer_of(store)
    network = network_of(testbed)
    overrides = quiet_settings(store)  # ceph.conf in addition to what ceph-ansible writes
    overrides.setdefault("osd", {}).setdefault(
        "osd_memory_target", f"{{{{ hotbed_osd_memory | default({DAEMON_BYTES}) | int }}}}"
    )
    common: dict[str, Any] = {
        "cluster": "ceph",
        "fsid": cluster_id(testbed),
        "generate_fsid": False,
        "cephx": True,
        "ceph_origin": "distro" if deployer.packages == "distro" else "repository",
        "ceph_repository": "community",
        "ceph_stable_release": deployer.release,
        "containerized_deployment": False,
        "public_network": network,
        "ip_version": "ipv6" if ":" in network else "ipv4",
        "osd_objectstore": "bluestore",
        "configure_firewall": False,
        "dashboard_enabled": False,
        "ntp_service_enabled": False,  # the role base keeps the clock
        "ceph_conf_overrides": overrides,
        **deployer.variables,
    }
    if deployer.mirror is not None:
        common["ceph_mirror"] = deployer.mirror
    return {
        "all": common,
        "osds": {"devices": [], "osd_auto_discovery": False},
        "rgws": {"radosgw_address_block": network, "radosgw_frontend_port": GATEWAY_PORT},
        # Pools are made afterwards, as for every deployer; the admin node and clients administer.
        "clients": {"copy_admin_key": True, "user_config": False},
    }


def inventory(testbed: Testbed, spec: TestbedSpec) -> dict[str, Any]:
    """Return ceph-ansible's inventory: its groups, how to reach the machines, and the variables.
    UserError: see `group_variables` and `build_inventory`."""
    ours = build_inventory(testbed, spec)["all"]
    variables = group_variables(testbed, spec)
    hosts = {name: _connection(values) for name, values in ours["hosts"].items()}
    for node in testbed.with_role("osd"):
        count = len(node.osd_devices)
        hosts[node.name]["hotbed_osd_memory"] = memory_target(node.memory_bytes, count)
        hosts[node.name]["lvm_volumes"] = [
            {"data": VOLUME, "data_vg": volume_group(testbed, place)} for place in range(count)
        ]
    groups = {
        group: [node.name for node in testbed.with_role(role)] for role, group in _GROUPS.items()
    }
    if not spec.ceph().on_lvm:
        del groups["osds"]
    clients = (*testbed.with_role("admin"), *testbed.with_role("client"))
    groups["clients"] = list(dict.fromkeys(node.name for node in clients))
    used = {name for names in groups.values() for name in names}
    children = {
        group: {
            "hosts": {name: {} for name in names},
            **({"vars": variables[group]} if group in variables else {}),
        }
        for group, names in groups.items()
        if names
    }
    return {
        "all": {
            "hosts": {name: values for name, values in hosts.items() if name in used},
            "vars": _connection(ours["vars"]) | variables["all"],
            "children": children,
        }
    }


def _of_nodes(made: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return an inventory with these nodes alone."""
    body = made["all"]
    children = {
        group: {**content, "hosts": {name: {} for name in content["hosts"] if name in names}}
        for group, content in body["children"].items()
    }
    hosts = {name: values for name, values in body["hosts"].items() if name in names}
    return {"all": {**body, "hosts": hosts, "children": children}}


def _connection(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name.startswith("ansible_")}


# -- its sources -----------------------------------------------------------------------------------


def clone(release: CephRelease) -> Path:
    """Return a repository that has the release's commit, fetched first if necessary. UserError: the
    user's folder has no such commit, or it cannot be fetched."""
    given = os.environ.get(SOURCES)
    if given:
        folder = Path(given)
        if not _has_commit(folder, release):
            raise UserError(
                f"{SOURCES} is {given}, which is no git clone with ceph-ansible's commit "
                f"{release.commit[:12]} ({release.branch})",
                do=f"run `git clone {ADDRESS}` and name that folder",
            )
        return folder
    folder = cache_folder(_FOLDER) / "clone.git"
    if _has_commit(folder, release):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--bare")
    done = _git(folder, "fetch", "--quiet", "--depth", "1", ADDRESS, release.commit)
    if done.returncode != 0:
        raise UserError(
            f"ceph-ansible cannot be cloned from {ADDRESS} ({last_line(done.stderr)})",
            do=(
                "clone it on a machine that reaches it, copy the folder here and name it in "
                f"{SOURCES}"
            ),
        )
    return folder


def export(target: Path, release: CephRelease) -> Path:
    """Put a release's pinned sources into `target`, with site.yml in their root as ceph-ansible
    wants it. UserError: see `clone`."""
    mark = target / _MARK
    if mark.exists() and mark.read_text() == release.commit:
        return target
    repository = clone(release)
    done = _git(repository, "archive", "--format=tar", release.commit)
    if done.returncode != 0:
        raise UserError(
            f"the clone {repository} is damaged: {last_line(done.stderr)}", do="clone it anew"
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700, parents=True)
    # Not tarfile: Debian 12's Python 3.11.2 has no safe extraction.
    subprocess.run(["tar", "-x", "-C", str(target)], input=done.stdout, check=True)
    shutil.copyfile(target / "site.yml.sample", target / "site.yml")
    mark.write_text(release.commit)
    return target


def variables_known(root: Path) -> frozenset[str]:
    """Return names of all variables that the roles have defaults for."""
    files = sorted(root.glob("roles/*/defaults/main.yml"))
    return frozenset(name for file in files for name in yaml.safe_load(file.read_text()) or {})


def _has_commit(folder: Path, release: CephRelease) -> bool:
    return folder.is_dir() and _git(folder, "cat-file", "-e", release.commit).returncode == 0


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # A clone of another user's is read all the same: git runs nothing of it.
    safe = ["-c", "safe.directory=*", "-c", "gc.auto=0"]
    return _run(["git", *safe, "-C", str(folder), *arguments], {"GIT_TERMINAL_PROMPT": "0"})


def _run(command: list[str], more: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a program with more environment. UserError: it is missing, or does not end in time."""
    environment = {**os.environ, **more}
    try:
        return subprocess.run(
            command, capture_output=True, check=False, timeout=_RUN_S, env=environment
        )
    except FileNotFoundError as error:
        raise UserError(
            f"{command[0]} is missing, and ceph-ansible needs it", do=f"install {command[0]}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{shlex.join(command)} did not end within {_RUN_S:g} s") from error


# -- its Ansible -----------------------------------------------------------------------------------


def environment_folder() -> Path:
    """Return the folder of the environment of these packages, made or not."""
    recipe = "\n".join([*PACKAGES, COLLECTION_VERSION, sys.version.split()[0]])
    return cache_folder(_FOLDER) / f"ansible-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def python() -> Path | None:
    """Return a Python that the environment can be made with; None if there is none."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return Path(sys.executable)
    found = (shutil.which(f"python3.{minor}") for minor in range(NEWEST[1], OLDEST[1] - 1, -1))
    return next((Path(program) for program in found if program), None)


def ensure_environment(progress: Progress = silent) -> Path:
    """Return the environment's folder; make it first if necessary (a minute, 0.5 GB). UserError: no
    fitting Python, or the packages are not available; the message ends with the installer's
    words."""
    made = environment_folder()
    if (made / _COMPLETE).exists():
        return made
    program = python()
    if program is None:
        oldest, newest, here = (
            ".".join(map(str, version)) for version in (OLDEST, NEWEST, sys.version_info[:2])
        )
        raise UserError(
            f"ceph-ansible's Ansible runs on Python {oldest} to {newest}, and there is {here} "
            "alone",
            do="install one of those next to it",
        )
    with held(made.parent / ".lock"):
        if not (made / _COMPLETE).exists():
            _make(made, program, progress)
    return made


def _make(made: Path, program: Path, progress: Progress) -> None:
    shutil.rmtree(made, ignore_errors=True)
    progress("making ceph-ansible's Ansible environment", 0.0)
    _install([str(program), "-m", "venv", str(made)], "an environment cannot be made")
    pip = [str(made / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    progress("installing ceph-ansible's Ansible", 0.1)
    _install([*pip, "--disable-pip-version-check", *PACKAGES], "its packages cannot be installed")
    progress("installing ceph-ansible's collections", 0.8)
    source = os.environ.get(TEMPLATE) or f"git+{COLLECTION_ADDRESS},{COLLECTION_VERSION}"
    galaxy = [str(made / "bin" / "ansible-galaxy"), "collection", "install", source]
    _install(
        [*galaxy, "-p", str(made / "collections")],
        f"the collection {COLLECTION} cannot be installed from {source} (a folder with its sources "
        f"can be named in {TEMPLATE})",
        {"ANSIBLE_HOME": str(made / "home"), "ANSIBLE_NOCOLOR": "1"},
    )
    (made / _COMPLETE).touch()


def _install(command: list[str], failed: str, more: Mapping[str, str] | None = None) -> None:
    done = _run(command, more or {})
    if done.returncode != 0:
        raise UserError(
            last_line(done.stderr if done.stderr.strip() else done.stdout),
            where=f"ceph-ansible: {failed}",
        )
