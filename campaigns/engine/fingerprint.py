"""Identity of a run: a hash of everything that can change its result.

The commit is not part of the identity: a changed comment reruns nothing, a changed controller only
its cells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.run import SCHEMA_VERSION
from testbed.closure import Closure

_IDENTIFYING_TOOLS = ("ceph", "fio", "rados", "swift", "nfs", "hotbedsim", "deployer")
"""Tools with versions that are part of a run's identity; versions of Python and the kernel are only
recorded. A deployer has a version only if it is not Hotbed's own."""


@dataclass(frozen=True)
class Identity:
    """Facts that all cells of a campaign on a testbed share."""

    spec_digest: str
    ground: str
    site: str
    time_scale: float
    versions: Mapping[str, str] = field(default_factory=dict)
    code: Closure = field(default_factory=Closure)
    libraries: Mapping[str, str] = field(default_factory=dict)  # versions by name


def identifying_versions(versions: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of stores and load tools among `versions`."""
    return {name: versions[name] for name in _IDENTIFYING_TOOLS if name in versions}


def run_id(
    identity: Identity, parameters: Mapping[str, Any], *, seed: int, block: int, controller: str
) -> str:
    """Return the run's id, twelve hex digits.

    Args:
        identity: the facts that the campaign's cells share.
        parameters: the cell's parameters, as JSON.
        seed: the block's seed.
        block: number of the block, from 0.
        controller: digest of the controller's code.
    """
    body = {
        "schema": SCHEMA_VERSION,
        "spec": identity.spec_digest,
        "ground": identity.ground,
        "site": identity.site,
        "time_scale": identity.time_scale,
        "versions": identifying_versions(identity.versions),
        "code": identity.code.digest,
        "libraries": dict(identity.libraries),
        "parameters": dict(parameters),
        "seed": seed,
        "block": block,
        "controller": controller,
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
