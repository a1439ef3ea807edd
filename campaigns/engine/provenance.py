"""Provenance of a run: code, tools, machines."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from schemas.run import Provenance
from testbed.closure import ROOT
from testbed.spec import CephSpec, TestbedSpec


@dataclass(frozen=True)
class Facts:
    """Facts about a deployed testbed: a run's provenance, and part of its identity."""

    site: str
    versions: Mapping[str, str]
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    signal: str | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)
    osd_count: int | None = None


def provenance(facts: Facts, awake: bool | None = None) -> Provenance:
    """Return the record of `facts` and of the running code. Unknown values are None. `awake`: True
    if the machine's processors are kept awake meanwhile."""
    commit, dirty = code_state()
    return Provenance(
        commit=commit,
        dirty=dirty,
        hotbed_version=hotbed_version(),
        versions={**facts.versions, "python": platform.python_version()},
        hosts={node: dict(values) for node, values in facts.hosts.items()},
        site=facts.site,
        signal=facts.signal,
        calibration=dict(facts.calibration),
        awake=awake,
    )


def calibration(spec: TestbedSpec) -> dict[str, Any]:
    """Return shares, links and disks by group of nodes, the store's pools, and racks and the
    network's requirements if there are any."""
    groups = {
        group.name: group.model_dump(mode="json", exclude={"name", "roles"})
        for group in spec.groups
    }
    ceph = spec.store if isinstance(spec.store, CephSpec) else None
    pools = [pool.model_dump() for pool in ceph.pools] if ceph else []
    found: dict[str, Any] = {"spec": spec.name, "groups": groups, "pools": pools}
    if ceph is not None and ceph.objectstore != "bluestore":
        found["objectstore"] = ceph.objectstore
    if spec.racks is not None:
        found["racks"] = spec.racks.model_dump(mode="json")
    if spec.network is not None:
        found["network"] = spec.network.model_dump(mode="json")
    return found


def deployer(spec: TestbedSpec) -> dict[str, str]:
    """Return the deployer of a testbed's store, for the versions. Hotbed's own deployer is omitted,
    as in the identity of earlier runs."""
    kind = spec.store.deployer.kind if isinstance(spec.store, CephSpec) else "own"
    return {} if kind == "own" else {"deployer": kind}


def hotbed_version() -> str:
    """Return the installed package's version."""
    try:
        return metadata.version("hotbed")
    except metadata.PackageNotFoundError:
        return "unknown"


def code_state() -> tuple[str | None, bool | None]:
    """Return the commit, and True if files differ from it; None outside a git clone."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return commit, None if changed is None else bool(changed)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "-c", "core.fsmonitor=false", *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
