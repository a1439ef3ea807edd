"""Checks that this machine has all that a testbed needs, for `hotbed doctor` and for every command
before it starts, and that only a testbed's nodes can reach the back ends of its store.

A missing thing is reported in a sentence, not by a failure half-way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from schemas.errors import RemoteError, UserError
from testbed.checks import (
    DISK_SHARE,
    HOUSE_BYTES,
    MARGIN,
    MEMORY_SHARE,
    CheckResult,
    EngineMachine,
    Need,
    check,
)
from testbed.deploy import deployers, ports
from testbed.deploy.roles import spec_of
from testbed.reach import shell_to
from testbed.sites import open_site
from testbed.sites.contract import Node, State, Testbed
from testbed.sites.requirements import LOCAL_SITE, requirements, state_folder
from testbed.spec import TestbedSpec


def examine(
    names: Iterable[str], need: Need | None = None, machine: EngineMachine | None = None
) -> list[CheckResult]:
    """Return the findings of the checks called `names`, in the order of `names`. `names`: `disk`,
    `memory`, or keys of `testbed.checks.CHECKS`; others raise KeyError. `need`: requirement for
    `disk` and `memory`; by default zero. `machine`: the machine to examine; by default this one."""
    asked = machine or EngineMachine()
    wanted = need or Need()
    return [check(name, asked, wanted) for name in names]


def need_of(spec: TestbedSpec) -> Need:
    """Return the space that `spec` and Hotbed need here; zero if the nodes are other machines.
    UserError: the site cannot make such a testbed at all."""
    site = open_site(spec.site.kind, spec.site.options)
    cost = site.plan(spec)
    state = state_folder(spec.site.kind)
    if state is None:
        return Need()
    if site.status(spec.name).state is not State.ABSENT:
        return Need(state=str(state))  # it has taken its space already
    disk, memory = DISK_SHARE * cost.disk_bytes, MEMORY_SHARE * cost.memory_bytes
    return Need(round(MARGIN * (disk + HOUSE_BYTES)), round(MARGIN * memory), str(state))


def diagnose(
    spec: TestbedSpec | None = None, machine: EngineMachine | None = None
) -> list[CheckResult]:
    """Check all that `spec` needs of this machine; without a spec, a local testbed of any size."""
    if spec is None:
        here = examine((n for n in LOCAL_SITE if n not in {"disk", "memory"}), None, machine)
        return [*here, *deployers.findings()]
    found = examine(requirements(spec.site.kind), need_of(spec), machine)
    chosen = deployers.choose(spec)
    # The checks that every testbed needs already cover the project's own deployer.
    return found if chosen.kind == "own" else [*found, replace(chosen.usable(), needed=True)]


def lacking(findings: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the findings that keep a testbed from working."""
    return [finding for finding in findings if finding.needed and not finding.ok]


def require(
    *names: str, spec: TestbedSpec | None = None, machine: EngineMachine | None = None
) -> None:
    """Raise an error unless the checks called `names` (none: all that `spec` needs) pass.
    UserError: names the first missing thing, how to get it, and how many more are missing."""
    if names:
        findings = examine(names, need_of(spec) if spec else None, machine)
    else:
        findings = diagnose(spec, machine)
    missing = lacking(findings)
    if not missing:
        return
    first, more = missing[0], len(missing) - 1
    others = f" ({more} more missing: `hotbed doctor` lists all)" if more else ""
    raise UserError(
        f"this needs {first.what}, and there is: {first.found}. To get it: {first.how}.{others}"
    )


ABSENT = "nothing is deployed"
LOOK = (
    f"test -d /etc/hotbed || {{ echo {ABSENT}; exit; }}; "
    "nft list table inet hotbed_peers | grep -q 'dport.*drop' && cat /etc/hotbed/peers.nft"
)
"""Print the rules that the role base loaded, if they are in force."""


def peer_findings(testbed: Testbed) -> dict[str, CheckResult]:
    """Return a finding by node, for every node with ports that only nodes may reach."""
    spec = spec_of(testbed)
    closed = {node.name: ports.for_peers(spec, node.name) for node in testbed.nodes}
    nodes = [node for node in testbed.nodes if closed[node.name]]
    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        found = pool.map(lambda node: _finding(testbed, node, closed[node.name]), nodes)
        return {node.name: one for node, one in zip(nodes, found, strict=True)}


def _finding(testbed: Testbed, node: Node, closed: Sequence[str]) -> CheckResult:
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
    return CheckResult("peers", what, ok, found, f"hotbed deploy {testbed.name}")
