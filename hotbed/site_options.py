"""Consent before a user's machines are taken: the devices that may be wiped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.options import named, names, option
from hotbed.progress import progress
from schemas.errors import UserError

if TYPE_CHECKING:
    from testbed.sites.contract import CautiousSite, Doomed, Site
    from testbed.spec import TestbedSpec

YesWipeOption = Annotated[
    list[str] | None,
    option(
        "Wipe these devices with all their data; only for machines of your own.",
        metavar="DEVICE@NODE,...",
    ),
]
AcceptHostKeysOption = Annotated[
    bool,
    named(
        "--accept-host-keys",
        "Trust the ssh host keys that your own machines present, if they are unknown.",
    ),
]
AGREE = "wipe"
"""Text to type: more than a y that was meant for another question."""


def allow(
    site: Site, spec: TestbedSpec, *, devices: list[str] | None, host_keys: bool, ask: bool
) -> None:
    """Pass on the consent from the command line; with `ask`, ask for the rest at a terminal.
    UserError: the site has no such consent, a device is not the site's, or the answer is no."""
    from testbed.sites.contract import CautiousSite

    given = names(devices or ())
    if not isinstance(site, CautiousSite):
        if given or host_keys:
            raise UserError(
                "--yes-wipe and --accept-host-keys are for machines of your own; a site of "
                f"kind {site.kind} wipes nothing that was there before"
            )
        return
    site.allow(given, host_keys=host_keys)
    if ask and _at_a_terminal():
        _ask(site, spec)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(site: CautiousSite, spec: TestbedSpec) -> None:

    with progress(f"looking at the machines of {spec.name}") as report:
        doomed = site.doomed(spec, report)
    if not doomed:
        return
    _agree(doomed)
    site.allow([one.name for one in doomed])


def _agree(doomed: Sequence[Doomed]) -> None:

    typer.echo(question(doomed), err=True)
    answer = typer.prompt(f"type {AGREE} to continue", default="", show_default=False, err=True)
    if answer.strip() != AGREE:
        raise UserError("nothing was wiped, and nothing was changed")


def wipe_leftovers(
    site: Site, testbed: str, *, wipe: bool, devices: list[str] | None, ask: bool
) -> bool:
    """Return True if `hotbed deploy` may wipe. Devices of a user's machines are wiped here, each by
    its name; elsewhere the deployment wipes all that it finds. `wipe` (``--wipe``) wipes
    everything, but on a user's machines devices must still be named (``--yes-wipe``) or, with `ask`
    at a terminal, agreed to. UserError: a device must be named, is not the testbed's, or the answer
    is no."""
    from testbed.sites.contract import CautiousSite

    given = names(devices or ())
    if not isinstance(site, CautiousSite):
        if given:
            raise UserError(
                f"--yes-wipe is for machines of your own; on a site of kind {site.kind} say --wipe"
            )
        return wipe
    if wipe and not given:
        with progress(f"looking at the devices of {testbed}") as report:
            found = site.leftovers(testbed, report)
        given = tuple(one.name for one in found)
        if found and not (ask and _at_a_terminal()):
            raise UserError(
                "these devices hold something that would be lost: "
                f"{'; '.join(one.sentence() for one in found)}",
                do=(
                    f"if it may go, say `hotbed deploy {testbed} --yes-wipe {','.join(given)}` "
                    "in place of --wipe"
                ),
            )
        if found:
            _agree(found)
    if given:
        with progress(f"wiping devices of {testbed}") as report:
            site.wipe(testbed, given, report)
    return False


def question(doomed: Sequence[Doomed]) -> str:
    """Return the question with the data that will be lost, one line per device."""
    lines = [f"  {one.sentence()}" for one in doomed]
    return "\n".join(["all data on these devices will be lost:", *lines])
