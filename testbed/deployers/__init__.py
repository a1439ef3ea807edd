"""Who deploys a testbed's store: one interface, and which of them a spec asks for.

Deployers are the project's own role (the default), ceph-ansible and cephadm; docs/deployers.md
tells which to choose.
"""

from __future__ import annotations

import json

from schemas.durable import write_file
from schemas.errors import UserError
from testbed.ansible_processes import ansible_folder
from testbed.checks import Finding
from testbed.deployer_spec import KINDS
from testbed.deployers.contract import Deployer
from testbed.playbook_run import LOG
from testbed.sites.contract import Testbed
from testbed.spec import CephSpec, TestbedSpec

__all__ = [
    "KINDS",
    "Deployer",
    "as_deployed",
    "begun",
    "choose",
    "claim",
    "deployer",
    "disclaim",
    "findings",
    "with_kind",
]

_RECORD = "deployer.json"
UNFROZEN = "unfrozen"
"""A mark beside a testbed that is being deployed, until its state is frozen where a site can."""


def deployer(kind: str) -> Deployer:
    """The deployer called `kind`; UserError names those there are."""
    if kind == "own":
        from testbed.deployers.own import Own

        return Own()
    if kind == "ceph-ansible":
        from testbed.deployers.ceph_ansible.deployer import CephAnsible

        return CephAnsible()
    if kind == "cephadm":
        from testbed.deployers.cephadm.deployer import Cephadm

        return Cephadm()
    raise UserError(f"there is no deployer {kind!r}: there are {', '.join(KINDS)}.")


def choose(spec: TestbedSpec) -> Deployer:
    """The deployer that a spec asks for; every store but Ceph has the project's own alone."""
    return deployer(spec.store.deployer.kind if isinstance(spec.store, CephSpec) else "own")


def with_kind(spec: TestbedSpec, kind: str) -> TestbedSpec:
    """`spec` with another deployer; its options are kept where it names that one already.

    Raises:
        UserError: no such deployer, or one that cannot deploy this spec; one sentence.
    """
    deployer(kind)
    if not isinstance(spec.store, CephSpec):
        if kind == "own":
            return spec
        name = spec.store.kind if spec.store else "none"
        raise UserError(
            f"--deployer {kind}: it deploys Ceph, and testbed {spec.name} has the store {name}: "
            "leave the option out."
        )
    if spec.store.deployer.kind == kind:
        return spec
    body = spec.model_dump(mode="json")
    body["store"]["deployer"] = {"kind": kind}
    try:
        return TestbedSpec.model_validate(body)
    except ValueError as error:
        from pydantic import ValidationError

        from testbed.spec import explain

        assert isinstance(error, ValidationError)
        raise explain(error, f"--deployer {kind}") from error


def claim(testbed: Testbed, kind: str) -> str | None:
    """Note that `kind` deploys this testbed; returns whose store was on it, for `disclaim`.

    Raises:
        UserError: another one's store is on it.
    """
    other = _deployed_by(testbed)
    if other not in (None, kind):
        raise UserError(
            f"testbed {testbed.name} was deployed by {other}: remove that store first (`hotbed "
            f"deploy --remove`), then deploy it by {kind}."
        )
    _note(testbed, kind)
    return other


def disclaim(testbed: Testbed, back_to: str | None = None) -> None:
    """Note that nothing is deployed any more, or what was before a deployment that did nothing."""
    _note(testbed, back_to)


def as_deployed(testbed: Testbed, spec: TestbedSpec) -> TestbedSpec:
    """`spec` with the deployer that brought what is there now, whatever it says itself."""
    kind = _deployed_by(testbed)
    return spec if kind is None else with_kind(spec, kind)


def begun(testbed: Testbed) -> bool:
    """Whether a deployment may have changed the machines: not one that its checks refused, nor one
    that was removed since."""
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


def findings() -> list[Finding]:
    """Which deployers this machine can use, for `hotbed doctor`."""
    return [deployer(kind).usable() for kind in KINDS]
