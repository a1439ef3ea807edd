"""The testbed of the ground `local`: opening it, its files and its disks' measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from campaigns.engine.lock import alone
from campaigns.papers.dlr.services import Facts
from campaigns.papers.dlr.steps.facts import read_facts, require_current
from campaigns.papers.dlr.steps.fill import unshaped
from campaigns.papers.prioritymeister.live import replays
from campaigns.papers.prioritymeister.live.machines import machines_of, places_of, server_of
from campaigns.papers.prioritymeister.live.overhead import TAKES_S, measured_on_path
from campaigns.papers.prioritymeister.live.profiles import measured_profile, profile_path
from campaigns.papers.prioritymeister.local_ground import LocalGround, Reached
from campaigns.papers.prioritymeister.machines import Machines
from schemas.campaign import Limits
from schemas.cells.prioritymeister import PmCell
from schemas.durable import write_file
from testbed.deploy.roles import spec_of

Tell = Callable[[str], None]


def silent(_: str) -> None:
    """Ignore the message: a `Tell` without output."""


def laid_out(
    reached: Reached, tell: Tell = silent, servers: Collection[str] | None = None
) -> Machines:
    """Return the machines that traces are made for. Files are made and disks measured once in a
    testbed's life.

    Args:
        reached: the testbed.
        tell: called before a long step.
        servers: the servers that get requests; None means all.
    """
    places, testbed = reached.places, reached.testbed
    spec = spec_of(testbed)
    made = machines_of(spec, places)
    for server, size in places.servers.items():
        if servers is not None and server not in servers:
            continue
        told, clients = places.server(testbed, server), places.clients
        tell(f"laying out {len(clients)} files of {size >> 20} MiB on node {server}")
        with unshaped(reached.site, reached.testbed.name):
            replays.prepare(reached.agent, [(told, client, size) for client in clients])
        files = [f"{places.folder}/{replays.file_of(client)}" for client in clients]
        profile = measured_profile(
            testbed, reached.shell_to(server), files, size, tell, mtu=spec.mtu
        )
        _complete(profile, reached, told, size=size, link=made.link_of(server), tell=tell)
        if server == places.disk:
            made = replace(made, disk=profile)
        if server == places.ram:
            made = replace(made, ramdisk=profile)
    return made


def _complete(
    path: Path, reached: Reached, server: replays.Server, *, size: int, link: float, tell: Tell
) -> None:
    """Measure the times of requests on the live path, which fio cannot measure."""
    profile = json.loads(path.read_text())
    if "overhead" in profile:
        return
    tell(
        f"measuring what requests take through the proxy of node {server.name} for about "
        f"{TAKES_S / 60:.0f} minutes"
    )
    whole = measured_on_path(
        profile,
        server,
        size,
        clients=[reached.testbed.node(name) for name in reached.places.clients],
        link=link,
        agent=reached.agent,
        enforcement=reached.enforcement,
        shell_to=reached.shell_to,
    )
    write_file(path, json.dumps(whole, indent=1) + "\n")


def facts_of(ground: LocalGround) -> Facts:
    """Return the facts of the ground's testbed, including measured profiles, for its runs."""
    reached = ground.reached
    found = read_facts(reached.site, reached.testbed, reached.agent)
    paths = {node: profile_path(reached.testbed, node) for node in reached.places.servers}
    profiles = {node: json.loads(path.read_text()) for node, path in paths.items() if path.exists()}
    return replace(found, osd_count=None, calibration={**found.calibration, "profiles": profiles})


@contextmanager
def open_ground(
    testbed: str,
    spec_file: Path,
    *,
    cells: Sequence[PmCell] | None = None,
    limits: Limits | None = None,
    tell: Tell = silent,
) -> Iterator[LocalGround]:
    """Open the ground on a testbed that is up and deployed, and lock the testbed meanwhile.

    Args:
        testbed: the testbed's name.
        spec_file: the campaign's spec; the testbed must have been made from it.
        cells: the cells to run; only servers that they use are measured. None means all.
        limits: limits beyond which a run is spoiled.
        tell: called before a long step.

    Raises:
        UserError: the testbed is missing, does not match the spec, or is not deployed.
    """
    from testbed.choose import choose_ready
    from testbed.client import agent_client
    from testbed.deploy.enforcement import Enforcement
    from testbed.reach import shell_to

    site, found = choose_ready(testbed)
    reached = Reached(
        site=site,
        testbed=found,
        places=places_of(found, spec_of(found), spec_file),
        agent=agent_client(found),
        enforcement=Enforcement(found),
        shell_to=lambda name: shell_to(found, found.node(name)),
    )
    require_current(found)
    servers = None if cells is None else {server_of(cell, reached.places) for cell in cells}
    with alone(found, tell):
        yield LocalGround(reached, laid_out(reached, tell, servers), limits or Limits())
