"""A deployed Ceph as its agent tells it, whoever deployed it."""

from __future__ import annotations

from testbed.agent.client import agent_client
from testbed.deployers.contract import Deployed
from testbed.sites.contract import Testbed


def read_status(deployer: str, testbed: Testbed) -> Deployed:
    """Version, health and OSDs.

    Raises:
        UserError: nothing is deployed.
        StoreError, RemoteError: it does not answer.
    """
    agent = agent_client(testbed)
    facts = agent.call("facts")
    return Deployed(
        deployer=deployer,
        version=str(agent.call("versions").get("ceph", "none")),
        health=str(agent.call("health")["status"]),
        osds={
            name: tuple(int(number) for number in facts[name].get("osds", ()))
            for name in sorted(facts)
            if facts[name].get("osds")
        },
    )
