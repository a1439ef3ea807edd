"""`hotbed pm apply`: a plan on a running testbed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hotbed.alone import alone
from hotbed.exit_codes import EXIT_MISSED
from hotbed.options import flag
from hotbed.output import JsonFlag, emit
from hotbed.pm_verbs import ModeOption, PolicyOption
from hotbed.views import TestbedOption


def add_apply(group: typer.Typer) -> None:
    """Add the verb to `hotbed pm`."""

    @group.command()
    def apply(
        topology: Annotated[
            Path | None, typer.Argument(help="Its hosts are called as the testbed's nodes.")
        ] = None,
        testbed: TestbedOption = None,
        policy: PolicyOption = "pm",
        mode: ModeOption = "hold",
        depth: Annotated[
            int | None, typer.Option(help="Requests at a device at a time; 0: any number.")
        ] = None,
        no_network: Annotated[bool, flag("--no-network", "Enforce at the devices alone.")] = False,
        check: Annotated[
            bool, flag("--check", "Look whether what was applied is in force.")
        ] = False,
        remove: Annotated[
            bool, flag("--remove", "Default parameters, a network left alone.")
        ] = False,
        as_json: JsonFlag = False,
    ) -> None:
        """Put a plan into force on a testbed with NFS servers, and check that it is.

        Proxies get their priorities and token buckets without dropping a connection; every host
        gets token buckets, priorities and DSCP for what it sends. --check exits with 1 when
        something differs. Exit code 3: the plan is in force and misses an SLO.
        """
        from campaigns.papers.prioritymeister import apply as work
        from schemas.errors import UserError
        from testbed.choose import choose_ready
        from testbed.deploy.roles import spec_of

        if (topology is not None) + check + remove != 1:
            raise UserError("give one of a topology, --check and --remove", where="hotbed pm apply")
        _, found = choose_ready(testbed)
        if remove:
            with alone(found):
                work.remove(found)
            done = {"testbed": found.name, "removed": True}
            emit(done, as_json, lambda: f"{found.name}: nothing of a plan is in force; checked")
            return
        if topology is None:
            result = work.check(found)
        else:
            with alone(found):
                result = work.apply(
                    found,
                    spec_of(found),
                    topology,
                    policy=policy,
                    mode=mode,
                    depth=depth,
                    network=not no_network,
                    tell=lambda text: typer.echo(f"hotbed: {text}.", err=True),
                )
        emit(result, as_json, result.sentence)
        if result.differences:
            raise typer.Exit(1)
        if result.met is False:
            raise typer.Exit(EXIT_MISSED)
