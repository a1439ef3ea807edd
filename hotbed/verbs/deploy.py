"""`hotbed deploy`: bring the spec's store to a testbed, or take it away."""

from __future__ import annotations

from typing import Annotated

import typer

from hotbed.options import flag
from hotbed.output import JsonFlag, emit


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def deploy(
        testbed: Annotated[
            str | None, typer.Argument(help="May be left out if there is one.")
        ] = None,
        remove: Annotated[bool, flag("--remove", "Take the store and its data away.")] = False,
        packages: Annotated[bool, flag("--packages", "With --remove: the packages too.")] = False,
        wipe: Annotated[
            bool, flag("--wipe", "Destroy what other use left on the devices.")
        ] = False,
        no_snapshot: Annotated[bool, flag("--no-snapshot", "Do not freeze that state.")] = False,
        as_json: JsonFlag = False,
    ) -> None:
        """Deploy the store by Ansible; repeat it to resume. Ends with a snapshot `deployed`."""
        from hotbed.progress import progress
        from testbed import deployment
        from testbed.choose import choose_ready

        site, found = choose_ready(testbed)
        with progress(f"{'remove from' if remove else 'deploy'} {found.name}") as report:
            if remove:
                result = deployment.take_away(site, found, report, packages=packages)
            else:
                result = deployment.bring(site, found, report, wipe=wipe, snapshot=not no_snapshot)
        emit(result, as_json, result.sentence)
