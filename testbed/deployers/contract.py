"""What every deployer offers: it brings a Ceph cluster to nodes, and takes it away again.

Whichever did it, the result is the same store: hotbed-agent on the admin node, cephx for it and for
the clients, the spec's pools, fio's files, and OSDs known by node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from testbed.checks import Finding
from testbed.sites.contract import Progress, Site, Testbed, silent
from testbed.spec import TestbedSpec


@dataclass(frozen=True)
class Plan:
    """What a deployment would be, for people and programs.

    `release` is of the `store` that it brings, `steps` what happens in order, `notes` what is worth
    knowing before.
    """

    deployer: str
    release: str
    steps: tuple[str, ...]
    notes: tuple[str, ...] = ()
    store: str = "Ceph"

    def sentences(self) -> str:
        """Lines for people."""
        steps = [f"  {number}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(
            [
                f"{self.deployer}: {self.store} {self.release}",
                *steps,
                *(f"  note: {n}" for n in self.notes),
            ]
        )


@dataclass(frozen=True)
class Deployed:
    """A deployed store as its agent tells it: `osds` are numbers by node, `health` is Ceph's."""

    deployer: str
    version: str
    health: str
    osds: dict[str, tuple[int, ...]]


@runtime_checkable
class Deployer(Protocol):
    """Brings a store to machines. Every call is synchronous and safe to repeat.

    Errors are `schemas.errors.UserError` (spec, or machines that are not fit for it) and
    `testbed.playbook_run.DeployError` (a step failed; the message says where and why).
    """

    kind: str

    def usable(self) -> Finding:
        """Whether this machine has what the deployer needs, and how to get it."""

    def plan(self, spec: TestbedSpec) -> Plan:
        """Dry run. UserError when the spec cannot be deployed so."""

    def deploy(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        site: Site | None = None,
        wipe: bool = False,
    ) -> dict[str, int]:
        """Bring the store; returns changes by node. Repeating it resumes and changes nothing."""

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

    def status(self, testbed: Testbed) -> Deployed:
        """The store as it is now. UserError when there is none."""
