"""The ground `local`, and any other with real nodes: a deployed testbed of object servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from campaigns.engine.lock import alone
from campaigns.papers.dlr.services import Facts
from campaigns.papers.dlr.steps.facts import read_facts, require_current
from campaigns.papers.twochoice.live.rados import RadosServers
from campaigns.papers.twochoice.live.servers import Reached, Servers, Stats, places_of
from schemas.errors import HotbedError
from testbed.deploy.roles import spec_of
from testbed.spec import CephSpec, ObjectsSpec

Tell = Callable[[str], None]


@runtime_checkable
class DisksSite(Protocol):
    """A site that reports its disks' counters."""

    def disks_stats(self, name: str, node: str) -> Sequence[Stats]:
        """Return the counters of each of a node's disks."""


@contextmanager
def open_servers(testbed: str, spec_file: Path, *, tell: Tell) -> Iterator[tuple[Facts, Servers]]:
    """Open the object servers of a testbed that is up and deployed, on files or OSDs, and lock the
    testbed meanwhile. Restore the deployed settings at the end.

    Args:
        testbed: the testbed's name.
        spec_file: the campaign's spec; the testbed must have been made from it.
        tell: reports a process that the command waits for.

    Raises:
        UserError: the testbed is missing, does not match the spec, or is not deployed.
    """
    from testbed.choose import choose_ready
    from testbed.client import agent_client
    from testbed.reach import shell_to

    site, found = choose_ready(testbed)
    spec = spec_of(found)
    places = places_of(found, spec, spec_file)
    require_current(found)
    assert isinstance(spec.store, (CephSpec, ObjectsSpec))
    reached = Reached(
        site=site,
        testbed=found,
        store=spec.store,
        servers=places,
        client=found.with_role("client")[0],
        agent=agent_client(found),
        shell_to=lambda name: shell_to(found, found.node(name)),
        disks=(lambda node: site.disks_stats(testbed, node))
        if isinstance(site, DisksSite)
        else None,
    )
    servers = (RadosServers if isinstance(spec.store, CephSpec) else Servers)(reached)
    with alone(found, tell):
        try:
            yield read_facts(site, found, reached.agent), servers
        finally:
            with suppress(HotbedError):  # the failing step has already reported the lost node
                servers.restore()
