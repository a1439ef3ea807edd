"""Deployers of a testbed's store: the project's own roles (the default), ceph-ansible and cephadm.

docs/another-ceph.md helps to choose.
"""

from __future__ import annotations

import json

from schemas.durable import write_file
from schemas.errors import UserError, unknown
from schemas.mistakes import checked
from testbed.checks import CheckResult
from testbed.deploy.contract import Deployer
from testbed.deploy.playbook import LOG, ansible_folder
from testbed.sites.contract import Testbed
from testbed.spec import CephSpec, TestbedSpec
from testbed.spec.stores import KINDS

_RECORD = "deployer.json"
UNFROZEN = "unfrozen"
"""Marks a testbed that is being deployed, until its state is frozen if its site can do that."""


def deployer(kind: str) -> Deployer:
    """Return the deployer `kind`; UserError if it is unknown."""
    if kind == "own":
        from testbed.deploy.roles import Own

        return Own()
    if kind == "ceph-ansible":
        from testbed.deploy.ceph_ansible import CephAnsible

        return CephAnsible()
    if kind == "cephadm":
        from testbed.deploy.cephadm import Cephadm

        return Cephadm()
    raise unknown("deployer", kind, KINDS)


def choose(spec: TestbedSpec) -> Deployer:
    """Return the deployer of a spec; every store but Ceph has only the project's own."""
    return deployer(spec.store.deployer.kind if isinstance(spec.store, CephSpec) else "own")


def with_kind(spec: TestbedSpec, kind: str) -> TestbedSpec:
    """Return `spec` with another deployer; its options are kept if it names that one already.
    UserError: no such deployer, or it cannot deploy this spec."""
    deployer(kind)
    if not isinstance(spec.store, CephSpec):
        if kind == "own":
            return spec
        name = spec.store.kind if spec.store else "none"
        raise UserError(
            f"it deploys Ceph, and testbed {spec.name} has the store {name}",
            where=f"--deployer {kind}",
            do="leave the option out",
        )
    if spec.store.deployer.kind == kind:
        return spec
    body = spec.model_dump(mode="json")
    body["store"]["deployer"] = {"kind": kind}
    return checked(TestbedSpec, body, f"--deployer {kind}")


def claim(testbed: Testbed, kind: str) -> str | None:
    """Note that `kind` deploys this testbed; return the deployer before, for `disclaim`. UserError:
    another deployer's store is on it."""
    other = _deployed_by(testbed)
    if other not in (None, kind):
        raise UserError(
            f"was deployed by {other}",
            where=f"testbed {testbed.name}",
            do=f"remove that store first (`hotbed deploy --remove`), then deploy it by {kind}",
        )
    _note(testbed, kind)
    return other


def disclaim(testbed: Testbed, back_to: str | None = None) -> None:
    """Note that nothing is deployed, or that `back_to` is after a deployment that did nothing."""
    _note(testbed, back_to)


def as_deployed(testbed: Testbed, spec: TestbedSpec) -> TestbedSpec:
    """Return `spec` with the deployer that brought the present store."""
    kind = _deployed_by(testbed)
    return spec if kind is None else with_kind(spec, kind)


def begun(testbed: Testbed) -> bool:
    """Return True if a deployment may have changed the machines: its checks did not refuse it, and
    it was not removed since."""
    if (testbed.directory / UNFROZEN).exists() or _deployed_by(testbed) is not None:
        return True
    # Deployed before there was a choice, and cut off before it had a log.
    recorded = (testbed.directory / _RECORD).exists()
    return not recorded and ansible_folder(testbed.directory).exists()


def _deployed_by(testbed: Testbed) -> str | None:
    try:
        kind: str | None = json.loads((testbed.directory / _RECORD).read_text())["kind"]
    except FileNotFoundError:
        # Deployed before there was a choice, if at all.
        return "own" if (testbed.directory / LOG).exists() else None
    return kind


def _note(testbed: Testbed, kind: str | None) -> None:
    write_file(testbed.directory / _RECORD, json.dumps({"kind": kind}) + "\n")


def findings() -> list[CheckResult]:
    """Check which deployers this machine can use, for `hotbed doctor`."""
    return [deployer(kind).usable() for kind in KINDS]
