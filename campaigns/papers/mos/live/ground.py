"""The ground `local`, and any other with real nodes: a deployed testbed of Swift microstores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from campaigns.engine.lock import alone
from campaigns.papers.dlr.services import Facts
from campaigns.papers.dlr.steps.facts import read_facts, require_current
from campaigns.papers.mos.live.swift import Reached, Swift, fitting
from schemas.errors import HotbedError
from testbed.deploy.roles import spec_of
from workloads.cosbench.driver import install

Tell = Callable[[str], None]


@contextmanager
def open_swift(testbed: str, spec_file: Path, *, tell: Tell) -> Iterator[tuple[Facts, Swift]]:
    """Open the microstores of a testbed that is up and deployed, and lock the testbed meanwhile.
    Restore the deployed layout at the end.

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
    fitting(found, spec, spec_file)
    require_current(found)
    reached = Reached(
        site=site,
        testbed=found,
        spec=spec,
        agent=agent_client(found),
        shell_to=lambda name: shell_to(found, found.node(name)),
    )
    swift = Swift(reached)
    with alone(found, tell):
        for client in dict.fromkeys(reached.clients.values()):
            install(reached.shell_to(client))
        try:
            yield read_facts(site, found, reached.agent), swift
        finally:
            with suppress(HotbedError):  # the failing step has already reported the lost node
                swift.restore()
