"""The project's own role `ceph` as a deployer: what `testbed.deploy` does."""

from __future__ import annotations

import importlib.util

from testbed.checks import Finding
from testbed.deploy import deploy, remove
from testbed.deployers.contract import Deployed, Plan
from testbed.deployers.store_status import read_status
from testbed.sites.contract import Progress, Site, Testbed, silent
from testbed.spec import TestbedSpec


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
        return Plan(
            self.kind,
            "of the nodes' distribution",
            (
                "check every machine, then install missing packages",
                "scratch file systems and fio's files",
                "monitors, managers, OSDs on raw devices, pools, gateways",
                "the control plane on the admin node",
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
