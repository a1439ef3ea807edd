"""The inventory and the group variables that ceph-ansible gets.

All of it stands in the inventory: its purge playbook lies in another folder than site.yml, and does
not find variables that lie beside that.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from schemas.errors import UserError
from testbed.deployer_spec import TOLERATED, CephAnsibleDeployer
from testbed.deployers.foreign import VOLUME, network_of, volume_group
from testbed.deployers.settings import DAEMON_BYTES, memory_target, quiet_settings
from testbed.inventory import build_inventory, cluster_id
from testbed.sites.contract import Testbed
from testbed.spec import CephSpec, TestbedSpec

RELEASE = "squid"
GATEWAY_PORT = 7480  # Ceph's own
_CONNECTION = ("ansible_",)
_GROUPS = {"mon": "mons", "mgr": "mgrs", "osd": "osds", "rgw": "rgws"}
EXTRA = {"yes_i_know": True, "ireallymeanit": "yes"}
"""On the command line: its playbooks ask for them, and a prompt sees nothing else."""


def deployer_of(store: CephSpec) -> CephAnsibleDeployer:
    """The deployer's block of a spec; the defaults where the spec names another one."""
    found = store.deployer
    return found if isinstance(found, CephAnsibleDeployer) else CephAnsibleDeployer()


def check_names(deployer: CephAnsibleDeployer, known: Collection[str]) -> None:
    """Raise UserError for the first of the spec's variables that no role knows, or that would have
    no effect."""
    for name in deployer.variables:
        if name in TOLERATED:
            raise UserError(
                f"store.deployer.variables: {name} is Hotbed's to say (gateways listen at port "
                f"{GATEWAY_PORT}): leave it out."
            )
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"; {near[0]} is one" if near else ""
            raise UserError(
                f"store.deployer.variables: {name} is no variable of ceph-ansible's roles{hint}."
            )


def group_variables(testbed: Testbed, spec: TestbedSpec) -> dict[str, dict[str, Any]]:
    """Variables by group.

    Raises:
        UserError: the nodes' addresses make no network.
    """
    store = spec.ceph()
    deployer = deployer_of(store)
    network = network_of(testbed)
    common: dict[str, Any] = {
        "cluster": "ceph",
        "fsid": cluster_id(testbed),
        "generate_fsid": False,
        "cephx": True,
        "ceph_origin": "distro" if deployer.packages == "distro" else "repository",
        "ceph_repository": "community",
        "ceph_stable_release": RELEASE,
        "containerized_deployment": False,
        "public_network": network,
        "ip_version": "ipv6" if ":" in network else "ipv4",
        "osd_objectstore": "bluestore",
        "configure_firewall": False,
        "dashboard_enabled": False,
        # The role base keeps the clock, where nothing did.
        "ntp_service_enabled": False,
        "ceph_conf_overrides": _overrides(store),
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
    """ceph-ansible's inventory: its groups, how to reach the machines, and the variables.

    Raises:
        UserError: see `group_variables` and `build_inventory`.
    """
    ours = build_inventory(testbed, spec)["all"]
    variables = group_variables(testbed, spec)
    hosts = {name: _connection(values) for name, values in ours["hosts"].items()}
    for node in testbed.with_role("osd"):
        hosts[node.name] |= {
            "lvm_volumes": [
                {"data": VOLUME, "data_vg": volume_group(testbed, place)}
                for place in range(len(node.osd_devices))
            ],
            "hotbed_osd_memory": memory_target(node.memory_bytes, len(node.osd_devices)),
        }
    groups = {
        group: [node.name for node in testbed.with_role(role)] for role, group in _GROUPS.items()
    }
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


def of_nodes(made: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """An inventory with these nodes alone."""
    body = made["all"]
    children = {
        group: {**content, "hosts": {name: {} for name in content["hosts"] if name in names}}
        for group, content in body["children"].items()
    }
    hosts = {name: values for name, values in body["hosts"].items() if name in names}
    return {"all": {**body, "hosts": hosts, "children": children}}


def _connection(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name.startswith(_CONNECTION)}


def _overrides(store: CephSpec) -> dict[str, dict[str, str]]:
    """ceph.conf beside what ceph-ansible itself writes."""
    settings = quiet_settings(store)
    osd = settings.setdefault("osd", {})
    osd.setdefault(
        "osd_memory_target", f"{{{{ hotbed_osd_memory | default({DAEMON_BYTES}) | int }}}}"
    )
    return settings
