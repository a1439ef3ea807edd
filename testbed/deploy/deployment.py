"""Work of `hotbed deploy`: deploy and freeze, or remove, given only a testbed's name."""

from __future__ import annotations

import time
from dataclasses import dataclass

from schemas.errors import UserError
from testbed.deploy import deployers
from testbed.deploy.lifecycle import DEPLOYED, save_snapshot
from testbed.deploy.playbook import LOG, RefusedError
from testbed.deploy.roles import save_spec, spec_of
from testbed.sites.contract import Progress, Site, SnapshotSite, Testbed, silent
from testbed.spec import TestbedSpec

_CHECKS = frozenset({"validate", "validate_volumes"})
"""Roles that run first and only check. (ceph-ansible's own check comes after ours.)"""
_DEPLOY_SHARE = 0.85  # of the time; the rest is for the snapshot and the restart


@dataclass(frozen=True)
class DeploymentResult:
    """Summary of the action, for people and programs. Times in seconds; `changed` counts tasks."""

    testbed: str
    action: str
    changed: int
    seconds: float
    snapshot: str | None = None
    snapshot_seconds: float | None = None

    def sentence(self) -> str:
        """Return one line for people."""
        said = f"{self.testbed}: {self.action} in {self.seconds:.0f} s, {self.changed} changes"
        if self.snapshot is not None and self.snapshot_seconds is not None:
            said += f"; snapshot {self.snapshot!r} in {self.snapshot_seconds:.0f} s"
        return said


def asked(site: Site, testbed: Testbed, deployer: str | None) -> TestbedSpec:
    """Return the testbed's spec, with `deployer` in place of its own deployer if given. UserError:
    there is no such deployer, or it cannot deploy this spec on this site."""
    spec = spec_of(testbed)
    if deployer is not None:
        spec = deployers.with_kind(spec, deployer)
        site.plan(spec)
    return spec


def bring(
    site: Site,
    testbed: Testbed,
    progress: Progress = silent,
    *,
    wipe: bool = False,
    snapshot: bool = True,
    deployer: str | None = None,
) -> DeploymentResult:
    """Deploy the spec that the testbed was brought up from, and freeze it as `deployed`.

    The store is stopped cleanly before the snapshot, and serves again at the end. An existing
    snapshot is left alone if nothing has changed. A `deployer` in place of the spec's is kept with
    the testbed, unless the deployment was refused before it changed anything. UserError,
    DeployError: see `Deployer.deploy`. StoreError: the store is not healthy after it was frozen."""
    kept, spec = spec_of(testbed), asked(site, testbed, deployer)
    chosen = deployers.choose(spec)
    before = deployers.claim(testbed, chosen.kind)
    freezes = snapshot and isinstance(site, SnapshotSite)

    def first(phase: str, share: float) -> None:
        progress(phase, share * (_DEPLOY_SHARE if freezes else 1.0))

    # The mark stays if a command is cut off between the change and the snapshot.
    unfrozen = testbed.directory / deployers.UNFROZEN
    again = unfrozen.exists()
    unfrozen.touch()
    start, log = time.monotonic(), _last_play(testbed)
    try:
        changed = sum(chosen.deploy(testbed, spec, first, site=site, wipe=wipe).values())
    except UserError as error:
        if _did_nothing(error, played=_last_play(testbed) != log):
            # The next deployer need not remove this one first, and the testbed keeps its old spec.
            deployers.disclaim(testbed, before)
            save_spec(testbed, kept)
            if not again:
                unfrozen.unlink()
        raise
    deployed = time.monotonic()
    label = None
    if snapshot and isinstance(site, SnapshotSite):
        label = freeze(site, testbed, progress, again=again or changed > 0)
        unfrozen.unlink()
    return DeploymentResult(
        testbed.name,
        "deployed",
        changed,
        deployed - start,
        label,
        time.monotonic() - deployed if label else None,
    )


def _last_play(testbed: Testbed) -> int:
    """Return the time when the last playbook's log was written (ns); 0 for never."""
    log = testbed.directory / LOG
    return log.stat().st_mtime_ns if log.exists() else 0


def _did_nothing(error: UserError, *, played: bool) -> bool:
    """Return True if a deployment ended before it changed any machine."""
    if isinstance(error, RefusedError):
        return all(failure.role in _CHECKS for failure in error.failures)
    return not played


def freeze(site: SnapshotSite, testbed: Testbed, progress: Progress, *, again: bool) -> str | None:
    """Freeze the deployed state under a free label, and return the label; None if not needed."""
    taken = site.snapshots(testbed.name)
    if DEPLOYED in taken and not again:
        return None
    label = DEPLOYED
    number = 2
    while label in taken:
        label, number = f"{DEPLOYED}-{number}", number + 1
    rest = 1.0 - _DEPLOY_SHARE
    save_snapshot(
        site, testbed, label, lambda phase, share: progress(phase, _DEPLOY_SHARE + rest * share)
    )
    return label


def take_away(
    site: Site, testbed: Testbed, progress: Progress = silent, *, packages: bool = False
) -> DeploymentResult:
    """Remove the store, its data and the control plane. UserError, DeployError: see
    `testbed.deploy.contract.Deployer.remove`."""
    start = time.monotonic()
    spec = deployers.as_deployed(testbed, spec_of(testbed))
    chosen = deployers.choose(spec)
    done = chosen.remove(testbed, spec, progress, packages=packages, site=site)
    deployers.disclaim(testbed)
    (testbed.directory / deployers.UNFROZEN).unlink(missing_ok=True)
    return DeploymentResult(testbed.name, "removed", sum(done.values()), time.monotonic() - start)
