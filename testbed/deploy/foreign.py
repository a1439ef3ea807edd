"""Deployers by others: the project's own steps before and after a foreign tool does its work."""

from __future__ import annotations

import ipaddress
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from schemas.errors import UserError
from testbed.deploy.contract import Deployer
from testbed.deploy.inventory import build_inventory, cluster_id
from testbed.deploy.playbook import PLAYBOOKS, DeployError, play, private_data
from testbed.deploy.roles import OURS, control_plane, save_spec, unshaped
from testbed.sites.contract import Node, Progress, Site, Testbed, silent
from testbed.spec import CephSpec, TestbedSpec

VOLUME = "osd"
Settings = dict[str, dict[str, str]]
"""Section -> option -> value as ceph.conf writes it."""
Step = Callable[[], dict[str, int]]
"""Step of a deployment; returns changes by node."""
Bring = Callable[[Path, Progress], tuple[dict[str, int], Settings]]
"""Function that makes the cluster, with Ansible's private data in a folder. It returns changes by
node, and settings for the monitors' configuration database, if they are not in ceph.conf."""

DEFAULTS = PLAYBOOKS / "roles" / "ceph" / "defaults" / "main.yml"
DAEMON_BYTES = 939524096  # least osd_memory_target that Ceph takes
MEMORY_SHARE = 0.5  # of a machine's memory, for its OSDs
OWN_WAY = frozenset(
    {
        # OSDs place themselves when they are made, and only then: see LATER.
        "osd_crush_update_on_start",
        # ceph-volume makes what is below an OSD.
        "bluestore_block_create",
        "osd_objectstore",
        "mon_warn_on_filestore_osds",
        # The foreign tool decides who may talk to the cluster.
        "auth_cluster_required",
        "auth_service_required",
        "auth_client_required",
    }
)
"""Defaults of the role `ceph` that belong to its own way of making daemons."""
LATER: Settings = {"osd": {"osd_crush_update_on_start": "false"}}
"""For OSDs that have their places: a restart must not undo a controller's change."""


class ForeignDeployer(Deployer, Protocol):
    """Deployment by a tool of others, between the playbooks prepare.yml and adopt.yml."""

    @abstractmethod
    def ready(self, testbed: Testbed, spec: TestbedSpec, progress: Progress) -> Bring:
        """Check the spec and fetch the tool, before any machine is touched."""

    @abstractmethod
    def variables(self, spec: TestbedSpec) -> dict[str, Any]:
        """Return variables of the project's own playbooks."""

    @abstractmethod
    def tear_down(
        self, testbed: Testbed, spec: TestbedSpec, folder: Path, progress: Progress
    ) -> dict[str, int]:
        """Remove the cluster by the tool; return changes by node."""

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
        bring = self.ready(testbed, spec, part(progress, 0.0, 0.1))
        made = inventory(testbed, spec, self.kind, {"validate_wipe": wipe, **self.variables(spec)})
        with private_data(testbed) as folder, unshaped(testbed, site):
            first, last = part(progress, 0.1, 0.2), part(progress, 0.85, 1.0)
            ready = play(testbed, folder, "prepare.yml", made, first, ansible=OURS)
            brought, settings = bring(folder, part(progress, 0.2, 0.85))
            made["all"]["vars"] |= adoption(testbed, spec, folder, settings)
            taken = play(testbed, folder, "adopt.yml", made, last, ansible=OURS)
        return added(testbed, ready, brought, taken)

    def remove(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        packages: bool = False,
        site: Site | None = None,
    ) -> dict[str, int]:
        """See `Deployer.remove`. Devices, names and the project's parts go also if the tool failed;
        its failure is raised then."""
        variables = {"validate_wipe": False, **self.variables(spec), "remove_packages": packages}
        made = inventory(testbed, spec, self.kind, variables)
        with private_data(testbed) as folder, unshaped(testbed, site):
            first, rest = part(progress, 0.0, 0.6), part(progress, 0.6, 1.0)

            def book(name: str) -> Step:
                return lambda: play(testbed, folder, name, made, rest, ansible=OURS)

            return every(
                testbed,
                lambda: self.tear_down(testbed, spec, folder, first),
                book("leftovers.yml"),
                book("remove.yml"),
            )


def as_root(user: str, argv: Sequence[str]) -> list[str]:
    """Return a command for a machine that is reached as `user`."""
    return list(argv) if user == "root" else ["sudo", "-n", *argv]


def volume_group(testbed: Testbed, place: int) -> str:
    """Return the volume group over a node's OSD device number `place`, always the same."""
    return f"hotbed-{cluster_id(testbed)[:8]}-{place}"


def volumes(testbed: Testbed, node: Node) -> list[dict[str, str]]:
    """Return group, volume and device of each of a node's OSDs."""
    return [
        {"vg": volume_group(testbed, place), "lv": VOLUME, "device": device}
        for place, device in enumerate(node.osd_devices)
    ]


def network_of(testbed: Testbed) -> str:
    """Return the smallest network that holds every node's address, such as 10.0.0.0/24. UserError:
    an address is a name, or the addresses are of both families."""
    addresses = []
    for node in testbed.nodes:
        try:
            addresses.append(ipaddress.ip_address(node.address))
        except ValueError as error:
            raise UserError(
                f"has the address {node.address!r}, and Ceph's network follows from numbers",
                where=f"node {node.name}",
                do="give its IP address",
            ) from error
    first = addresses[0]
    if any(address.version != first.version for address in addresses):
        raise UserError("the nodes' addresses are of IPv4 and IPv6", do="give all of one family")
    network = ipaddress.ip_network(f"{first}/{first.max_prefixlen}")
    while not all(address in network for address in addresses):
        network = network.supernet()
    return str(network)


def inventory(
    testbed: Testbed, spec: TestbedSpec, deployer: str, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the inventory of prepare.yml, osds.yml, adopt.yml and leftovers.yml. OSDs on LVM are
    volumes instead of numbered devices: the foreign tool gives out the numbers."""
    made = build_inventory(testbed, spec, extra)
    hosts, everywhere = made["all"]["hosts"], made["all"]["vars"]
    for node in testbed.with_role("osd"):
        variables = hosts[node.name]
        variables["hotbed_osd_count"] = len(node.osd_devices)
        if not spec.ceph().on_lvm:
            continue
        del variables["hotbed_osds"]
        variables["hotbed_volumes"] = volumes(testbed, node)
        if "validate_osd_min_bytes" in variables:
            variables["hotbed_osd_min_bytes"] = variables["validate_osd_min_bytes"]
    everywhere |= {
        "hotbed_deployer": deployer,
        "hotbed_lvm": spec.ceph().on_lvm,
        "hotbed_wipe": bool(extra.get("validate_wipe", False)),
        "ceph_osd_count": testbed.osds,
    }
    return made


def packages(of_ceph: bool, *more: str) -> str:
    """Return the list of packages that the role `base` brings, for each machine by its groups:
    `more` for every machine, and with `of_ceph` librados and `ceph` for admin node and clients."""
    ceph = "['ceph-common', 'python3-rados']" if of_ceph else "[]"
    return (
        f"{{{{ {json.dumps(['fio', *more])}"
        " + (['lvm2'] if 'osds' in group_names else [])"
        f" + ({ceph} if 'clients' in group_names or 'admins' in group_names else [])"
        " + (['python3-numpy', 'python3-scipy'] if 'admins' in group_names else []) }}"
    )


def adoption(
    testbed: Testbed, spec: TestbedSpec, folder: Path, settings: Settings
) -> dict[str, Any]:
    """Return the variables that make the project's store of a running cluster; the control plane's
    archive is put into `folder`.
    """
    variables = control_plane(testbed, spec, folder)
    store = spec.ceph()
    later = {section: LATER.get(section, {}) for section in (*settings, *LATER)}
    return variables | {
        "adopt_agent_config": variables["agent_config"],
        "adopt_settings": {name: settings.get(name, {}) | more for name, more in later.items()},
        "adopt_pools": [pool.model_dump() for pool in store.pools],
        "adopt_failure_domain": store.failure_domain,
    }


def every(testbed: Testbed, *steps: Step) -> dict[str, int]:
    """Take all steps of a removal, also those after a failure; return changes by node. DeployError:
    the failures of all steps. A failure without a node may be any node's, and no node is named
    then."""
    done: list[dict[str, int]] = []
    failed: list[DeployError] = []
    for step in steps:
        try:
            done.append(step())
        except DeployError as error:
            failed.append(error)
    if not failed:
        return added(testbed, *done)
    message = " ".join(dict.fromkeys(str(error) for error in failed))
    known = all(error.failures for error in failed)
    raise DeployError(message, tuple(f for e in failed for f in e.failures) if known else ())


def added(testbed: Testbed, *counts: Mapping[str, int]) -> dict[str, int]:
    """Return changes of several runs by node, without localhost."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    names = {node.name for node in testbed.nodes}
    return {name: number for name, number in total.items() if name in names}


def part(progress: Progress, begin: float, end: float) -> Progress:
    """Return the progress of a step that is `begin` to `end` of the whole."""
    return lambda phase, share: progress(phase, begin + share * (end - begin))


# -- settings that keep a cluster quiet: those of the role `ceph` ----------------------------------


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def quiet_settings(store: CephSpec) -> Settings:
    """Return the role's defaults, overridden by the spec's `config`."""
    role = yaml.safe_load(DEFAULTS.read_text())
    defaults: Mapping[str, Mapping[str, object]] = {
        **role["ceph_default_settings"],
        # The releases of foreign deployers all have mClock.
        "osd": {**role["ceph_mclock_settings"], **role["ceph_default_settings"]["osd"]},
    }
    settings: Settings = {
        section: {
            name: _text(value)
            for name, value in values.items()
            if name not in OWN_WAY and "{{" not in str(value)
        }
        for section, values in defaults.items()
    }
    for section, values in store.config.items():
        texts = {name: _text(value) for name, value in values.items()}
        settings.setdefault(section, {}).update(texts)
    return {section: values for section, values in settings.items() if values}


def memory_target(memory_bytes: int | None, osds: int) -> int:
    """Return bytes for each of a machine's `osds` OSDs, as the role gives them."""
    share = (memory_bytes or 4 * 2**30) * MEMORY_SHARE / max(osds, 1)
    return int(max(DAEMON_BYTES, share))
