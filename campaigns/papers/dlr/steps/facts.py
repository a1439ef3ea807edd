"""Facts of a testbed: versions, hosts, shares and disks."""

from __future__ import annotations

import json
from typing import Any

from campaigns.papers.dlr.services import Facts
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import AGENT_ROOT, Agent
from testbed.client import agent_client
from testbed.deploy import bundle
from testbed.deploy.lifecycle import wait_healthy
from testbed.deploy.roles import spec_of
from testbed.reach import shell_to
from testbed.sites.contract import Site, Testbed
from testbed.spec import CephSpec, TestbedSpec
from testbed.stores.contract import PRESSURE, Needs

FACTS_S = 60.0
SERVES_S = 30.0


def read_facts(site: Site, testbed: Testbed, agent: Agent) -> Facts:
    """Read the facts from the nodes, through the admin node.

    Raises:
        HotbedError: a node cannot be reached.
    """
    versions = agent.call("versions", {}, timeout_s=FACTS_S)
    hosts = agent.call("facts", {}, timeout_s=FACTS_S)
    for host in hosts.values():
        if "error" in host:
            raise HotbedError(
                f"the admin node does not reach the others: {host['error'].rstrip('.')}; repair "
                f"the testbed with `hotbed up SPEC` and `hotbed deploy {testbed.name}`."
            )
    for node in testbed.nodes:
        if node.facts and node.name in hosts:
            hosts[node.name]["machine"] = dict(node.facts)
    spec = spec_of(testbed)
    signals = sorted({node.signal for node in testbed.with_role("osd")})
    return Facts(
        site=site.kind,
        versions={str(name): str(version) for name, version in versions.items()} | deployer(spec),
        hosts=hosts,
        signal=",".join(signals) or None,
        calibration=calibration(spec),
        osd_count=sum(len(host.get("osds", ())) for host in hosts.values()),
    )


OFFERS = """
import json, os
from testbed.agent.config import load_config
from testbed.agent.sense import open_store
offers = open_store(load_config(), None).offers()
print(json.dumps({"senses": sorted(offers.senses), "acts": sorted(offers.acts)}), flush=True)
os._exit(0)  # a thread that hangs in librados must not keep us
"""
"""Script that asks the store on the admin node for its signals and actions."""


def read_offers(testbed: Testbed) -> Needs:
    """Return the signals and actions of the testbed's store, by its version and clients. Every
    deployed testbed has sensors for the pressure of its nodes.

    Raises:
        HotbedError: the admin node or the store does not answer.
    """
    command = ["env", f"PYTHONPATH={AGENT_ROOT}", "python3", "-B", "-c", OFFERS]
    done = shell_to(testbed, testbed.admin).run(command, timeout_s=FACTS_S)
    try:
        found = json.loads(done.text)
        return Needs(frozenset(found["senses"]) | {PRESSURE}, frozenset(found["acts"]))
    except (ValueError, KeyError, TypeError) as error:
        raise HotbedError(
            f"testbed {testbed.name} does not tell what its store offers: {done.text[:120]!r}"
        ) from error


def require_current(testbed: Testbed) -> None:
    """Raise if the admin node has other code than this machine. Controllers run there, but a run's
    identity is the hash of the code here.

    Raises:
        UserError: the testbed must be deployed again.
    """
    path = f"{AGENT_ROOT}/{bundle.HASH_FILE}"
    done = shell_to(testbed, testbed.admin).run(["cat", path], check=False)
    if done.text.strip() != bundle.digest(bundle.files()):
        what = "another version of" if done.returncode == 0 else "no"
        raise UserError(
            f"testbed {testbed.name} carries {what} Hotbed's agent and controllers: run "
            f"`hotbed deploy {testbed.name}`."
        )


def deployed(testbed: Testbed) -> bool:
    """Return True if the store serves and the admin node has the present code."""
    try:
        require_current(testbed)
        agent_client(testbed).strays()  # the admin node reaches the other nodes
        wait_healthy(testbed, timeout_s=SERVES_S)
    except HotbedError:
        return False
    return True


def deployer(spec: TestbedSpec) -> dict[str, str]:
    """Return the deployer of a testbed's store, for the versions. Hotbed's own deployer is omitted,
    as in the identity of earlier runs."""
    kind = spec.store.deployer.kind if isinstance(spec.store, CephSpec) else "own"
    return {} if kind == "own" else {"deployer": kind}


def calibration(spec: TestbedSpec) -> dict[str, Any]:
    """Return shares, links and disks by group of nodes, the store's pools, and racks and the
    network's requirements if there are any."""
    groups = {
        group.name: group.model_dump(mode="json", exclude={"name", "roles"})
        for group in spec.groups
    }
    ceph = spec.store if isinstance(spec.store, CephSpec) else None
    pools = [pool.model_dump() for pool in ceph.pools] if ceph else []
    found: dict[str, Any] = {"spec": spec.name, "groups": groups, "pools": pools}
    if spec.racks is not None:
        found["racks"] = spec.racks.model_dump(mode="json")
    if spec.network is not None:
        found["network"] = spec.network.model_dump(mode="json")
    return found


def signal_name(parameter: str, testbed: Testbed) -> str:
    """Return the name of the controller's signal, for the run's record."""
    if parameter == "osd":
        return "osd_pressure"
    if parameter == "op_r_latency":
        return "op_r_latency"
    return testbed.with_role("osd")[0].signal
