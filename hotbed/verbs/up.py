"""`hotbed up`: bring a testbed up, or go on where an interrupted one stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hotbed.output import JsonFlag, emit


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def up(
        spec: Annotated[Path, typer.Argument(help="A spec file, such as testbed/specs/dlr.yaml.")],
        name: Annotated[str | None, typer.Option(help="Another name than the spec's.")] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Bring a testbed up until every node answers ssh; repeat it to resume or repair."""
        from hotbed.progress import progress
        from hotbed.views import nodes_table
        from testbed.deploy import save_spec
        from testbed.doctor import require
        from testbed.sites import open_site
        from testbed.spec import load_spec, renamed

        loaded = load_spec(spec)
        wanted = renamed(loaded, name) if name else loaded
        site = open_site(wanted.site.kind, wanted.site.options)
        require(spec=wanted)
        with progress(f"up {wanted.name}") as report:
            testbed = site.provision(wanted, report)
        save_spec(testbed, wanted)
        emit(testbed, as_json, lambda: nodes_table(testbed))
