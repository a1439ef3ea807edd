"""Objects to read, written once per testbed and object size, at full disk speed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from campaigns.papers.dlr.services import CellSetting
from schemas.cells.dlr import Bench
from testbed.agent.contract import Agent
from testbed.sites.contract import ShapingSite, Site, Testbed
from testbed.spec import DiskSpec, TestbedSpec
from workloads.prefill import (
    PrefillPlan,
    disk_bound_iops,
    plan_prefill,
    prefill,
    usable_bytes,
)


def osd_disks(spec: TestbedSpec) -> list[DiskSpec]:
    """Return the disk of every OSD."""
    return list(spec.osd_disks())


def fill_plan(setting: CellSetting, spec: TestbedSpec) -> PrefillPlan:
    """Return the plan of the objects that this cell needs."""
    parameters, disks = setting.parameters, osd_disks(spec)
    assert isinstance(parameters, Bench)
    return plan_prefill(
        object_size=parameters.object_size,
        duration_s=setting.duration_s,
        max_iops=disk_bound_iops(disks, parameters.object_size),
        usable=usable_bytes(disks, spec.ceph().pools[0].size),
        concurrency=parameters.concurrency,
    )


def fill(
    agent: Agent, site: Site, testbed: Testbed, plan: PrefillPlan, *, client: str, pool: str
) -> bool:
    """Write the missing objects; return True if any were missing."""
    with unshaped(site, testbed.name):
        return prefill(agent, client, pool, plan).written


@contextmanager
def unshaped(site: Site, name: str) -> Iterator[None]:
    """Remove the service times of disks and links inside the block, if the site can."""
    if not isinstance(site, ShapingSite):
        yield
        return
    site.shape(name, False)
    try:
        yield
    finally:
        site.shape(name, True)
