"""Check that only a testbed's nodes can reach the back ends of its store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from schemas.errors import RemoteError
from testbed.checks import Finding
from testbed.deploy import ports
from testbed.deploy.roles import spec_of
from testbed.reach import shell_to
from testbed.sites.contract import Node, Testbed

ABSENT = "nothing is deployed"
LOOK = (
    f"test -d /etc/hotbed || {{ echo {ABSENT}; exit; }}; "
    "nft list table inet hotbed_peers | grep -q 'dport.*drop' && cat /etc/hotbed/peers.nft"
)
"""Print the rules that the role base loaded, if they are in force."""


def findings(testbed: Testbed) -> dict[str, Finding]:
    """Return a finding by node, for every node with ports that only nodes may reach."""
    spec = spec_of(testbed)
    closed = {node.name: ports.for_peers(spec, node.name) for node in testbed.nodes}
    nodes = [node for node in testbed.nodes if closed[node.name]]
    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        found = pool.map(lambda node: _finding(testbed, node, closed[node.name]), nodes)
        return {node.name: one for node, one in zip(nodes, found, strict=True)}


def _finding(testbed: Testbed, node: Node, closed: Sequence[str]) -> Finding:
    try:
        said = shell_to(testbed, node).run(["sh", "-c", LOOK], check=False).text
    except RemoteError as error:
        said = why = str(error)
    else:
        lacking = {*closed, *(one.address for one in testbed.nodes)}
        lacking -= set(said.replace(",", " ").split())
        why = f"no rule for {', '.join(sorted(lacking))}" if lacking else ""
    ok = said.strip() == ABSENT or not why
    what = f"ports {', '.join(closed)} for the testbed's nodes alone"
    found = ABSENT if said.strip() == ABSENT else why or "closed to others"
    return Finding("peers", what, ok, found, f"hotbed deploy {testbed.name}")
