"""`hotbed doctor`: what this machine has, what is missing and how to get it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.output import JsonFlag, emit

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.checks import Finding


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def doctor(
        spec: Annotated[
            Path | None, typer.Option(help="Also check the disk and memory that this spec needs.")
        ] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Check that this machine has everything; exit 1 when something needed is missing."""
        from testbed.doctor import diagnose, lacking
        from testbed.spec import load_spec

        findings = diagnose(load_spec(spec) if spec else None)
        emit(findings, as_json, lambda: _table(findings))
        if lacking(findings):
            raise typer.Exit(1)


def _table(findings: list[Finding]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "needed", "found", "how to get it", box=box.SIMPLE_HEAD, pad_edge=False)
    for finding in findings:
        bad = "[red]missing[/]" if finding.needed else "[yellow]short[/]"
        table.add_row(
            "[green]ok[/]" if finding.ok else bad,
            escape(finding.what),
            escape(finding.found),
            "" if finding.ok else escape(finding.how),
        )
    return table
