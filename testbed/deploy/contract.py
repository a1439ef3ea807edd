"""The interface of deployers: bring a store to nodes, and take it away again.

The result is the same store with every deployer: hotbed-agent on the admin node, cephx for it and
for the clients, the spec's pools, fio's files, and OSDs known by node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from testbed.checks import CheckResult
from testbed.sites.contract import Progress, Site, Testbed, silent
from testbed.spec import TestbedSpec


@dataclass(frozen=True)
class DeploymentPlan:
    """A deployment, for people and programs: the `release` of the `store` that it brings, `steps`
    in order, and `notes` to read before.
    """

    deployer: str
    release: str
    steps: tuple[str, ...]
    notes: tuple[str, ...] = ()
    store: str = "Ceph"

    def sentences(self) -> str:
        """Return lines for people."""
        return "\n".join(
            [
                f"{self.deployer}: {self.store} {self.release}",
                *(f"  {number}. {step}" for number, step in enumerate(self.steps, 1)),
                *(f"  note: {n}" for n in self.notes),
            ]
        )


@runtime_checkable
class Deployer(Protocol):
    """Deployer of a store to machines. Every call is synchronous and safe to repeat.

    Errors are `schemas.errors.UserError` (spec, or machines that are not fit for it) and
    `testbed.deploy.playbook.DeployError` (a step failed; the message says where and why).
    """

    kind: str

    def usable(self) -> CheckResult:
        """Check this machine for what the deployer needs."""

    def plan(self, spec: TestbedSpec) -> DeploymentPlan:
        """Return the plan of a deployment. UserError if the spec cannot be deployed so."""

    def deploy(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        site: Site | None = None,
        wipe: bool = False,
    ) -> dict[str, int]:
        """Bring the store; return changes by node. Repeating it resumes and changes nothing."""

    def remove(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        packages: bool = False,
        site: Site | None = None,
    ) -> dict[str, int]:
        """Take everything away, also after a crash; a deployment by any deployer works then."""
