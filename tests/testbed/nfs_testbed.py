"""NFS on nodes of this machine: one testbed shared by all test modules that need NFS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.deploy.roles import deploy, save_spec
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.names import LocalNames
from testbed.spec import TestbedSpec

SPEC = TestbedSpec.model_validate(
    {
        "name": "nfs-test",
        "network": {"priority_levels": 7},
        "groups": [
            {"name": "admin", "roles": ["admin"], "cpus": 1, "memory": "512MiB"},
            {
                "name": "server",
                "roles": ["nfs"],
                "cpus": 1.5,
                "memory": "512MiB",
                "network": "100Mbit",
                "disk": {"size": "2GiB", "scratch": 0, "positioning": "1ms"},
            },
            {
                "name": "client",
                "count": 2,
                "roles": ["client"],
                "memory": "512MiB",
                "network": "100Mbit",
            },
        ],
        "store": {"kind": "nfs", "depth": 4},
    }
)
NODES = SPEC.node_names()


def nfs_site() -> LocalSite:
    """Return this machine's site with its own state folder."""
    return LocalSite(
        places=LocalNames(Path("/var/lib/hotbed-tests-nfs"), LocalNames.of_environment().cache)
    )


@contextmanager
def up_and_down() -> Iterator[Testbed]:
    """Provide the testbed with its store; remove a killed run's leftovers first, all at the end."""
    site = nfs_site()
    site.release(SPEC.name)
    try:
        testbed = site.provision(SPEC)
        save_spec(testbed, SPEC)
        changed = deploy(testbed, SPEC, site=site)
        assert all(changed[node] > 0 for node in NODES)
        yield testbed
    finally:
        site.release(SPEC.name)
