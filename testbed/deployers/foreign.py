"""What deployers of others have in common: the machines before them, and the store after them."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from testbed.deploy import control_plane
from testbed.deployers.settings import LATER, Settings
from testbed.inventory import build_inventory, cluster_id
from testbed.playbook_run import PLAYBOOKS, Ansible, DeployError, play
from testbed.sites.contract import Node, Progress, Testbed
from testbed.spec import TestbedSpec

OURS = Ansible(PLAYBOOKS, PLAYBOOKS / "ansible.cfg", refusing=("validate", "validate_volumes"))
VOLUME = "osd"
Step = Callable[[], dict[str, int]]
"""Returns changes by node."""


def volume_group(testbed: Testbed, place: int) -> str:
    """The volume group over a node's OSD device number `place`: the same at every deployment."""
    return f"hotbed-{cluster_id(testbed)[:8]}-{place}"


def volumes(testbed: Testbed, node: Node) -> list[dict[str, str]]:
    """Group, volume and device of each of a node's OSDs."""
    return [
        {"vg": volume_group(testbed, place), "lv": VOLUME, "device": device}
        for place, device in enumerate(node.osd_devices)
    ]


def network_of(testbed: Testbed) -> str:
    """The smallest network that holds every node's address, as 10.0.0.0/24.

    Raises:
        UserError: an address is a name, or they are of both families.
    """
    addresses = []
    for node in testbed.nodes:
        try:
            addresses.append(ipaddress.ip_address(node.address))
        except ValueError as error:
            raise UserError(
                f"node {node.name} has the address {node.address!r}, and Ceph's network follows "
                "from numbers: give its IP address."
            ) from error
    first = addresses[0]
    if any(address.version != first.version for address in addresses):
        raise UserError("the nodes' addresses are of IPv4 and IPv6: give all of one family.")
    network = ipaddress.ip_network(f"{first}/{first.max_prefixlen}")
    while not all(address in network for address in addresses):
        network = network.supernet()
    return str(network)


def inventory(
    testbed: Testbed, spec: TestbedSpec, deployer: str, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The inventory of prepare.yml, adopt.yml and leftovers.yml.

    OSDs are volumes instead of numbered devices: numbers are the deployer's to give out.

    Raises:
        UserError: see `build_inventory`.
    """
    made = build_inventory(testbed, spec, extra)
    hosts, everywhere = made["all"]["hosts"], made["all"]["vars"]
    for node in testbed.with_role("osd"):
        variables = hosts[node.name]
        del variables["hotbed_osds"]
        variables["hotbed_volumes"] = volumes(testbed, node)
        if "validate_osd_min_bytes" in variables:
            variables["hotbed_osd_min_bytes"] = variables["validate_osd_min_bytes"]
    everywhere |= {
        "hotbed_deployer": deployer,
        "hotbed_wipe": bool(extra.get("validate_wipe", False)),
        "ceph_osd_count": testbed.osds,
    }
    return made


def packages(of_ceph: bool, *more: str) -> str:
    """The list of packages that the role `base` brings, for each machine by its groups.

    Args:
        of_ceph: librados and the command `ceph` on admin node and clients too.
        more: everywhere.
    """
    ceph = "['ceph-common', 'python3-rados']" if of_ceph else "[]"
    return (
        f"{{{{ {json.dumps(['fio', *more])}"
        " + (['lvm2'] if 'osds' in group_names else [])"
        f" + ({ceph} if 'clients' in group_names or 'admins' in group_names else [])"
        " + (['python3-numpy', 'python3-scipy'] if 'admins' in group_names else []) }}"
    )


def prepare(
    testbed: Testbed, folder: Path, made: dict[str, Any], progress: Progress
) -> dict[str, int]:
    """Check the machines and make them ready. `RefusedError` where they are not fit."""
    return play(testbed, folder, "prepare.yml", made, progress, ansible=OURS)


def adoption(
    testbed: Testbed, spec: TestbedSpec, folder: Path, settings: Settings
) -> dict[str, Any]:
    """Variables of adopt.yml beside the inventory's; the control plane's archive is in `folder`.

    Args:
        settings: for the monitors' configuration database, where they are not in ceph.conf.
    """
    variables = control_plane(testbed, spec, folder)
    store = spec.ceph()
    merged = {section: dict(values) for section, values in settings.items()}
    for section, values in LATER.items():
        merged.setdefault(section, {}).update(values)
    return variables | {
        "adopt_agent_config": variables["agent_config"],
        "adopt_settings": merged,
        "adopt_pools": [pool.model_dump() for pool in store.pools],
        "adopt_failure_domain": store.failure_domain,
    }


def adopt(
    testbed: Testbed,
    spec: TestbedSpec,
    folder: Path,
    made: dict[str, Any],
    progress: Progress,
    *,
    settings: Settings,
) -> dict[str, int]:
    """Make the project's store of a cluster that runs; see `adoption`."""
    made["all"]["vars"] |= adoption(testbed, spec, folder, settings)
    return play(testbed, folder, "adopt.yml", made, progress, ansible=OURS)


def take_away(
    testbed: Testbed, folder: Path, made: dict[str, Any], progress: Progress
) -> dict[str, int]:
    """What is left when the deployer has removed its cluster: devices, names, and our own.

    Raises:
        DeployError: see `every`.
    """

    def book(name: str) -> Step:
        return lambda: play(testbed, folder, name, made, progress, ansible=OURS)

    return every(book("leftovers.yml"), book("remove.yml"))


def every(*steps: Step) -> dict[str, int]:
    """Take all steps of a removal, also those after one that failed; changes by node.

    Raises:
        DeployError: the failures of all steps. Where one names no node it may be any's, and none
            are named.
    """
    done: list[dict[str, int]] = []
    failed: list[DeployError] = []
    for step in steps:
        try:
            done.append(step())
        except DeployError as error:
            failed.append(error)
    if not failed:
        return added(*done)
    message = " ".join(dict.fromkeys(str(error) for error in failed))
    known = all(error.failures for error in failed)
    raise DeployError(message, tuple(f for e in failed for f in e.failures) if known else ())


def added(*counts: Mapping[str, int]) -> dict[str, int]:
    """Changes by node of several runs together."""
    total: dict[str, int] = {}
    for count in counts:
        for node, number in count.items():
            total[node] = total.get(node, 0) + number
    return total


def part(progress: Progress, begin: float, end: float) -> Progress:
    """`progress` of one step among several: its own 0 to 1 is `begin` to `end` of the whole."""

    def report(phase: str, share: float) -> None:
        progress(phase, begin + share * (end - begin))

    return report
