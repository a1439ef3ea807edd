"""Campaigns on a Ceph store: benchmarks under a controller, simulated or on a testbed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from campaigns.engine.kind import Kind, OnStore
from campaigns.grounds.sim import CODE as SIMULATED_CODE
from campaigns.grounds.sim import KIND as SIM
from campaigns.grounds.sim import SIMULATIONS
from campaigns.grounds.testbed import open_ground
from campaigns.validate import validate
from testbed import sites
from testbed.deploy import bundle

CODE = (
    *(
        "campaigns/papers/dlr/cell.py",
        "campaigns/papers/dlr/live.py",
        *bundle.CODE,
    ),
    *(f"playbooks/roles/{name}" for name in ("base", "scratch", "fio", "ceph")),
)
"""Entry points of a cell's code on a deployed testbed (`testbed.closure`), without the controller
and the site."""

GATEWAY_CODE = (
    *(
        "campaigns/papers/dlr/gateway.py",
        "dataplane/cmd/cosdrive",
        "playbooks/roles/radosgw",
    ),
)
"""Additional entry points of cells with an object gateway."""


def code(cells: Mapping[str, Sequence[Any]], site: str) -> tuple[str, ...]:
    """Return the entry points of the code of cells on a testbed."""
    gateway = any(parameters.op == "s3" for typed in cells.values() for parameters in typed)
    of_site = sites.code_of(site) if site in sites.kinds() else ()
    return (*CODE, *(GATEWAY_CODE if gateway else ()), *of_site)


_on_testbed = partial(OnStore, code=code, validate=validate)

KIND: Kind[Any] = Kind(
    does="runs benchmarks on a Ceph store",
    grounds={
        SIM: OnStore(
            code=lambda cells, site: SIMULATED_CODE,
            open=partial(open_ground, SIM),
            validate=validate,
            same=SIMULATIONS,
        ),
        **{
            name: _on_testbed(open=partial(open_ground, name))
            for name in ("local", "chameleon", "inventory", "fake")
        },
    },
    options=frozenset({"--ground", "--testbed", "--controllers-dir", "--model", "--extend-lease"}),
    resolves=True,
)
