"""COSBench's workloads A to D on Ceph's object gateway: a cell's load and objects."""

from __future__ import annotations

import hashlib

from campaigns.papers.dlr.services import CellSetting
from schemas.cells.dlr import Gateway
from schemas.errors import UserError
from testbed.spec import TestbedSpec
from workloads.cosbench.workload import TABLE_1, S3Storage, Workload, scaled, to_xml

LARGE_SHARE = 1 / 8
"""Scale of C's and D's largest objects: 1 to 16 MB instead of 1 to 128 MB."""
CONTAINERS = 4
OBJECTS = {"A": 200, "B": 200, "C": 16, "D": 16}
"""Objects of each container; writes have as many separate numbers, so that the store does not grow
from cell to cell."""
RAMPUP_S = 2
PREPARE_WORKERS = 8
PREPARING = ("init", "prepare")


def workload_of(setting: CellSetting) -> Workload:
    """Return a cell's workload on the gateway, without its tenant's keys."""
    parameters = setting.parameters
    assert isinstance(parameters, Gateway)
    letter = parameters.workload
    plain = TABLE_1[letter] if letter in "AB" else scaled(TABLE_1[letter], LARGE_SHARE)
    return plain.with_(
        name=f"s3-{letter.lower()}",
        prefix=f"hotbed-{letter.lower()}-",
        workers=parameters.workers,
        containers=CONTAINERS,
        objects=OBJECTS[letter],
        runtime_s=max(1, round(setting.duration_s)),
        rampup_s=RAMPUP_S,
        interval_s=1,
        prepare_workers=PREPARE_WORKERS,
        storage=S3Storage(),
    )


def tenant_of(spec: TestbedSpec) -> str:
    """Return the tenant of the load: the first user of the gateway.

    Raises:
        UserError: the spec has no user.
    """
    tenants = spec.ceph().tenants
    if not tenants:
        raise UserError(
            f"testbed {spec.name} has no user of the object gateway: name one in store.tenants, "
            "as testbed/specs/dlr-gateway.yaml does, and deploy it."
        )
    return tenants[0]


def mark_of(workload: Workload) -> str:
    """Return the name of the RADOS object that marks a workload's objects as complete. A restore of
    the store removes it with them."""
    whole = workload.model_copy(update={"workers": 1, "runtime_s": 1})
    text = to_xml(whole, PREPARING, masked=True)
    return f"hotbed-{workload.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
