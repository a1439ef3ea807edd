"""CPU shares by the speed of a core, for cells that processors limit.

A spec's cores are cores of the reference speed (`testbed.agent.speed.REFERENCE_UNITS_S`). Links and
disks are the same on every machine, cores are not. Shares are therefore multiplied by a factor, so
that the ratio of processor to link is the declared one. A block has one factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from testbed.agent.speed import REFERENCE_UNITS_S, measured_units_s
from testbed.sites.contract import CpuSharesSite, Site
from testbed.spec import CephSpec, SwiftSpec, TestbedSpec


@dataclass
class CoreShares:
    """CPU shares in force on a testbed.

    Attributes:
        factor: effective cores for each nominal core.
        record: the factor and its origin by path in a run's calibration; empty while shares are
            the spec's.
    """

    factor: float = 1.0
    record: Mapping[str, Any] = field(default_factory=dict)


def scales(site: Site, spec: TestbedSpec) -> TypeGuard[CpuSharesSite]:
    """Return True if shares follow the speed of a core: the site can change them, and processors
    limit the spec's cells. Cells on a Ceph are limited by disks."""
    return isinstance(site, CpuSharesSite) and not isinstance(spec.store, CephSpec)


def factor_of(units_s: float) -> float:
    """Return the factor of a measured speed. ValueError: it is no speed."""
    if not (math.isfinite(units_s) and units_s > 0):
        raise ValueError(f"{units_s} units of work a second are no speed")
    return REFERENCE_UNITS_S / units_s


def lacking(spec: TestbedSpec, factor: float, processors: int) -> dict[str, float]:
    """Return the effective cores of a node of each group, and of Swift's pool, if they are more
    than the processors. The kernel accepts such shares, but nobody can use them up."""
    nominal = {f"node of group {group.name}": group.cpus for group in spec.groups}
    if isinstance(spec.store, SwiftSpec):
        pool = spec.store.pool
        nominal["pool of microstores"] = pool.proxy_cores + pool.storage_cores
    needs = {name: round(cores * factor, 3) for name, cores in nominal.items()}
    return {name: cores for name, cores in needs.items() if cores > processors}


def sentence(units_s: float, factor: float, short: Mapping[str, float], processors: int) -> str:
    """Return the speed, the factor and what the machine lacks, for people."""
    found = (
        f"a core does {units_s:.0f} units of work a second (reference: {REFERENCE_UNITS_S:.0f}), "
        f"so CPU shares are {factor:.2f} times the spec's"
    )
    if not short:
        return found
    needs = ", ".join(f"a {name} needs {cores:.3g}" for name, cores in short.items())
    return f"{found}; this machine is too slow for the spec: {needs} of {processors} processors"


def warnings(site: Site, spec: TestbedSpec) -> list[str]:
    """Return a dry run's warning if this machine is now too slow for a spec; measure its speed."""
    if not scales(site, spec):
        return []
    units_s, processors = measured_units_s(), site.processors()
    factor = factor_of(units_s)
    short = lacking(spec, factor, processors)
    return [sentence(units_s, factor, short, processors)] if short else []
