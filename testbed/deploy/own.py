"""The project's own roles as a deployer: see `testbed.deploy.roles`."""

from __future__ import annotations

import importlib.util

from testbed.checks import Finding
from testbed.deploy.contract import Deployer, Plan
from testbed.deploy.roles import deploy, remove
from testbed.sites.contract import Progress, Site, Testbed, silent
from testbed.spec import TestbedSpec

_OF_PACKAGES = "of the nodes' distribution"
_STORES: dict[str | None, tuple[str, str, tuple[str, ...]]] = {
    "ceph": (
        "Ceph",
        _OF_PACKAGES,
        (
            "scratch file systems and fio's files",
            "monitors, managers, OSDs on raw devices, pools, gateways",
        ),
    ),
    "nfs": ("NFS", _OF_PACKAGES, ("exports, and the servers that enforce rates before them",)),
    "twochoice": (
        "two-choice",
        "of Hotbed's own",
        ("disks for objects, and an agent on each node",),
    ),
    "swift": ("Swift", "of its own environment", ("disks, rings, servers and proxies",)),
    None: ("no store,", "only load generators and control plane", ()),
}
"""Name, source and parts of each store; None is a spec without a store."""


class Own(Deployer):
    """Deployer of every store, also of stores other than Ceph."""

    kind = "own"

    def usable(self) -> Finding:
        """See `Deployer.usable`."""
        wanted = ("ansible", "ansible_runner")
        missing = [name for name in wanted if importlib.util.find_spec(name) is None]
        found = f"missing: {', '.join(missing)}" if missing else "ready"
        return Finding("deployer-own", "deployer own", not missing, found, "make setup")

    def plan(self, spec: TestbedSpec) -> Plan:
        """See `Deployer.plan`."""
        store, release, brings = _STORES[spec.store.kind if spec.store else None]
        first = "check every machine, then install missing packages"
        last = "the control plane on the admin node"
        return Plan(self.kind, release, (first, *brings, last), store=store)

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
        return deploy(testbed, spec, progress, site=site, wipe=wipe)

    def remove(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        packages: bool = False,
        site: Site | None = None,
    ) -> dict[str, int]:
        """See `Deployer.remove`."""
        return remove(testbed, spec, progress, packages=packages, site=site)
