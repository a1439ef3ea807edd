"""The project's own role `ceph` as a deployer: what `testbed.deploy` does."""

from __future__ import annotations

import importlib.util

from testbed.checks import Finding
from testbed.deploy import deploy, remove
from testbed.deployers.contract import Deployed, Plan
from testbed.deployers.store_status import read_status
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
"""What each store is called, where it is from, and what is brought; None is a spec without one."""


class Own:
    """See the module's text. Also deploys the stores that are not Ceph."""

    kind = "own"

    def usable(self) -> Finding:
        """See `Deployer.usable`."""
        missing = [
            name for name in ("ansible", "ansible_runner") if importlib.util.find_spec(name) is None
        ]
        return Finding(
            "deployer-own",
            "deployer own",
            not missing,
            f"missing: {', '.join(missing)}" if missing else "ready",
            "make setup",
        )

    def plan(self, spec: TestbedSpec) -> Plan:
        """See `Deployer.plan`."""
        store, release, brings = _STORES[spec.store.kind if spec.store else None]
        return Plan(
            self.kind,
            release,
            (
                "check every machine, then install missing packages",
                *brings,
                "the control plane on the admin node",
            ),
            store=store,
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

    def status(self, testbed: Testbed) -> Deployed:
        """See `Deployer.status`."""
        return read_status(self.kind, testbed)
