"""Checks that this machine has all that a testbed needs, for `hotbed doctor` and for every command
before it starts. A missing thing is reported in a sentence, not by a failure half-way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from schemas.errors import UserError
from testbed.checks import CHECKS, HOUSE_BYTES, Finding, Need
from testbed.deploy import deployers
from testbed.machine import Machine, ThisMachine
from testbed.sites import open_site
from testbed.sites.contract import State
from testbed.sites.requirements import LOCAL_SITE, requirements, state_folder
from testbed.spec import TestbedSpec


def examine(
    names: Iterable[str], need: Need | None = None, machine: Machine | None = None
) -> list[Finding]:
    """Return the findings of the checks called `names`, in the order of `names`.

    Args:
        names: keys of `testbed.checks.CHECKS`; an unknown key raises KeyError.
        need: requirement for `disk` and `memory`; by default zero.
        machine: the machine to examine; by default this one.
    """
    asked = machine or ThisMachine()
    wanted = need or Need()
    return [CHECKS[name](asked, wanted) for name in names]


def need_of(spec: TestbedSpec) -> Need:
    """Return the space that `spec` and Hotbed need here; zero if the nodes are other machines.

    Raises:
        UserError: the site cannot make such a testbed at all.
    """
    site = open_site(spec.site.kind, spec.site.options)
    cost = site.plan(spec)
    state = state_folder(spec.site.kind)
    if state is None:
        return Need()
    if site.status(spec.name).state is not State.ABSENT:
        return Need(state=str(state))  # it has taken its space already
    return Need(cost.disk_bytes + HOUSE_BYTES, cost.memory_bytes, str(state))


def diagnose(spec: TestbedSpec | None = None, machine: Machine | None = None) -> list[Finding]:
    """Check all that `spec` needs of this machine; without a spec, a local testbed of any size."""
    if spec is None:
        here = examine((n for n in LOCAL_SITE if n not in {"disk", "memory"}), None, machine)
        return [*here, *deployers.findings()]
    found = examine(requirements(spec.site.kind), need_of(spec), machine)
    chosen = deployers.choose(spec)
    # The checks that every testbed needs already cover the project's own deployer.
    return found if chosen.kind == "own" else [*found, replace(chosen.usable(), needed=True)]


def lacking(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that keep a testbed from working."""
    return [finding for finding in findings if finding.needed and not finding.ok]


def require(*names: str, spec: TestbedSpec | None = None, machine: Machine | None = None) -> None:
    """Raise an error unless the checks called `names` (none: all that `spec` needs) pass.

    Raises:
        UserError: names the first missing thing, how to get it, and how many more are missing.
    """
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
