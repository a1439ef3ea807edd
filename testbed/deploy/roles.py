"""Deployment and removal of a testbed's store by the project's own roles.

The playbooks are playbooks/site.yml and remove.yml. ansible-runner runs Ansible and writes only
below the testbed's directory. Ansible's full output is kept there in ``deploy.log``.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from schemas.durable import write_file
from schemas.errors import UserError
from testbed.checks import CheckResult
from testbed.deploy import bundle, twochoice_variables
from testbed.deploy.contract import Deployer, DeploymentPlan
from testbed.deploy.inventory import agent_config, build_inventory
from testbed.deploy.playbook import (
    LOG,
    PLAYBOOKS,
    Ansible,
    DeployError,
    RefusedError,
    play,
    private_data,
)
from testbed.sites.contract import Progress, ShapingSite, Site, Testbed, silent
from testbed.spec import TestbedSpec

__all__ = ["LOG", "PLAYBOOKS", "DeployError", "RefusedError", "deploy", "remove", "spec_of"]

OURS = Ansible(PLAYBOOKS, PLAYBOOKS / "ansible.cfg", refusing=("validate", "validate_volumes"))
SPEC_FILE = "spec.json"
"""File in a testbed's folder: the spec that the testbed was brought up from."""


def deploy(
    testbed: Testbed,
    spec: TestbedSpec,
    progress: Progress = silent,
    *,
    site: Site | None = None,
    wipe: bool = False,
) -> dict[str, int]:
    """Bring the store, the load generators' files and the control plane to the nodes; return
    changed tasks by node. A second run resumes an interrupted deployment and changes nothing on a
    finished one. With a `site` that shapes, disks are filled at full speed. `wipe` takes devices
    that hold other data, and destroys the data. UserError: the spec cannot be deployed, or a node
    is not fit for it (`RefusedError`). DeployError: a task failed."""
    save_spec(testbed, spec)
    with private_data(testbed) as folder:
        extra = {**control_plane(testbed, spec, folder), "validate_wipe": wipe}
        inventory = build_inventory(testbed, spec, extra)
        with unshaped(testbed, site):
            return play(testbed, folder, "site.yml", inventory, progress, ansible=OURS)


def control_plane(testbed: Testbed, spec: TestbedSpec, folder: Path) -> dict[str, Any]:
    """Return the variables of the role `agent`, and write its archive into `folder`. UserError: a
    node lacks what the spec asks of it."""
    archive = folder / "bundle.tar"
    digest = bundle.write(archive)
    return {
        "agent_bundle": str(archive),
        "agent_bundle_mark": f".bundle-{digest[:16]}",
        "agent_known_hosts": str(testbed.known_hosts),
        "agent_config": json.loads(json.dumps(asdict(agent_config(testbed, spec)))),
    }


def remove(
    testbed: Testbed,
    spec: TestbedSpec,
    progress: Progress = silent,
    *,
    packages: bool = False,
    site: Site | None = None,
) -> dict[str, int]:
    """Remove everything that `deploy` brought, also after a failed or interrupted deployment.
    `packages`: also remove Ceph's and fio's packages. DeployError: a task failed."""
    with private_data(testbed) as folder:
        inventory = build_inventory(testbed, spec, {"remove_packages": packages})
        with unshaped(testbed, site):
            return play(testbed, folder, "remove.yml", inventory, progress, ansible=OURS)


def remove_agents(
    testbed: Testbed, spec: TestbedSpec, progress: Progress = silent, *, site: Site | None = None
) -> dict[str, int]:
    """Remove the two-choice scheduler's agents, with their data, pools and keys; the store stays,
    and the next `deploy` of the same spec brings the agents again. UserError: the spec asks for
    none. DeployError: a task failed."""
    if twochoice_variables.asked(spec.store) is None:
        raise UserError(
            "has no agents of the two-choice scheduler: its spec asks for none",
            where=f"testbed {testbed.name}",
        )
    with private_data(testbed) as folder:
        inventory = build_inventory(testbed, spec)
        with unshaped(testbed, site):
            return play(testbed, folder, "remove-twochoice.yml", inventory, progress, ansible=OURS)


def save_spec(testbed: Testbed, spec: TestbedSpec) -> None:
    """Keep the spec in the testbed's folder, for commands that get only the testbed's name."""
    write_file(testbed.directory / SPEC_FILE, spec.model_dump_json(indent=1))


def spec_of(testbed: Testbed) -> TestbedSpec:
    """Return the spec that the testbed was brought up from. UserError: it was not kept, or is
    another version's."""
    path = testbed.directory / SPEC_FILE
    try:
        return TestbedSpec.model_validate_json(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read",
            where=f"testbed {testbed.name}",
            do="run `hotbed up SPEC` again",
        ) from error


@contextmanager
def unshaped(testbed: Testbed, site: Site | None) -> Iterator[None]:
    """Run disks and links at full speed inside this context, if the site shapes them."""
    if site is None or not isinstance(site, ShapingSite):
        yield
        return
    site.shape(testbed.name, False)
    try:
        yield
    finally:
        site.shape(testbed.name, True)


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

    def usable(self) -> CheckResult:
        """See `Deployer.usable`."""
        wanted = ("ansible", "ansible_runner")
        missing = [name for name in wanted if importlib.util.find_spec(name) is None]
        found = f"missing: {', '.join(missing)}" if missing else "ready"
        return CheckResult("deployer-own", "deployer own", not missing, found, "make setup")

    def plan(self, spec: TestbedSpec) -> DeploymentPlan:
        """See `Deployer.plan`."""
        store, release, brings = _STORES[spec.store.kind if spec.store else None]
        first = "check every machine, then install missing packages"
        last = "the control plane on the admin node"
        return DeploymentPlan(self.kind, release, (first, *brings, last), store=store)

    deploy = staticmethod(deploy)
    remove = staticmethod(remove)
