"""`hotbed cosbench`: write, check, run, read and compare COSBench workloads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hotbed import cosbench_run, cosbench_views
from hotbed.options import quantity
from hotbed.output import JsonFlag, emit

Folder = Annotated[Path, typer.Argument(help="An archive, or the folder of a workload in one.")]
Which = Annotated[
    str | None,
    typer.Option("--workload", help="The workload in the archive, such as w1, or its name."),
]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(no_args_is_help=True, help="COSBench: workloads of object stores.")
    app.add_typer(group, name="cosbench")
    for verb in (_xml, _check, cosbench_run.add_run, _show, _compare):
        verb(group)


def _xml(group: typer.Typer) -> None:
    @group.command()
    def xml(
        letter: Annotated[str, typer.Argument(help="A workload of Table 1: A, B, C or D.")],
        out: Annotated[
            Path | None, typer.Option(help="New file; by default the XML is printed.")
        ] = None,
        name: Annotated[
            str | None, typer.Option(help="Name of the workload and of its tenant.")
        ] = None,
        scale: Annotated[
            float,
            typer.Option(help="Factor for the largest object: with 0.125, C and D have 1-16 MB."),
        ] = 1.0,
        sizes: Annotated[
            str | None,
            typer.Option(
                help="Object size or range, such as 64KB or 1-16MB; by default Table 1's."
            ),
        ] = None,
        workers: Annotated[int, typer.Option(help="Operations in flight.")] = 32,
        containers: Annotated[int, typer.Option(help="How many.")] = 4,
        objects: Annotated[
            int, typer.Option(help="Number of objects to read, in each container.")
        ] = 50,
        runtime: Annotated[
            float,
            quantity("--runtime", "seconds", "Duration of the main stage.", show_default="15min"),
        ] = 900.0,
        rampup: Annotated[
            float,
            quantity("--rampup", "seconds", "Duration of the ramp-up, which is not measured."),
        ] = 0.0,
        total_ops: Annotated[
            int | None, typer.Option(help="Maximum number of operations of the main stage.")
        ] = None,
        stages: Annotated[
            str, typer.Option(help="Stages, separated by commas.")
        ] = "init,prepare,main,cleanup,dispose",
        storage: Annotated[str, typer.Option(help="mock, swift, s3 or none.")] = "mock",
        auth: Annotated[str | None, typer.Option(help="none, mock, swauth or keystone.")] = None,
        auth_url: Annotated[str | None, typer.Option(help="URL for authentication.")] = None,
        endpoint: Annotated[str | None, typer.Option(help="Of S3.")] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Write a workload of Table 1 as COSBench's XML, without any credentials.

        `hotbed cosbench run --credentials FILE` fills them in.
        """
        from schemas.durable import write_file
        from schemas.errors import UserError
        from workloads.cosbench.workload import access_of, table_workload, to_xml

        made = table_workload(
            letter,
            name=name,
            scale=scale,
            sizes=sizes,
            runtime=runtime,
            rampup=rampup,
            workers=workers,
            containers=containers,
            objects=objects,
            total_ops=total_ops,
            **access_of(storage, auth, auth_url, endpoint),
        )
        text = to_xml(made, tuple(part.strip() for part in stages.split(",") if part.strip()))
        if out is not None:
            try:
                write_file(out, text, 0o600, exclusive=True)
            except FileExistsError as error:
                raise UserError("is there already", where=out, do="name another file") from error
        facts = {"name": made.name, "file": None if out is None else str(out)}
        facts["xml"] = text if out is None else None
        emit(facts, as_json, lambda: text.rstrip("\n") if out is None else f"Written: {out}")


def _check(group: typer.Typer) -> None:
    @group.command()
    def check(
        workload: Annotated[
            Path | None, typer.Argument(help="A workload of COSBench, XML.", show_default=False)
        ] = None,
        release: Annotated[
            Path | None, typer.Option(help="An unpacked release of COSBench to look at.")
        ] = None,
        java: Annotated[str | None, typer.Option(help="Java executable for COSBench.")] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Show a workload with everything inherited; or check if a release can run here.

        What is not supported is refused by its name. Exit 1 if a release cannot run.
        """
        from schemas.errors import UserError
        from workloads.cosbench import driver
        from workloads.cosbench.credentials import read_xml
        from workloads.cosbench.release import examine

        if (workload is None) == (release is None):
            raise UserError("give either a workload's XML to check, or --release FOLDER")
        if workload is not None:
            plan = driver.check(read_xml(workload), str(workload))
            emit(plan, as_json, lambda: cosbench_views.plan_table(plan))
            return
        assert release is not None
        found = examine(release, java=java)
        emit(found, as_json, lambda: cosbench_views.release_table(found))
        if not found.good:
            raise typer.Exit(1)


def _show(group: typer.Typer) -> None:
    @group.command()
    def show(
        folder: Folder,
        workload: Which = None,
        series: Annotated[
            bool, typer.Option("--series", help="Also print the series of each stage.")
        ] = False,
        as_json: JsonFlag = False,
    ) -> None:
        """Show the results in an archive of COSBench or of cosdrive."""
        from workloads.cosbench.archive import read_archive

        found = read_archive(folder, workload)
        cosbench_run.warn(found.warnings)
        data = cosbench_views.archive_facts(found, series)
        emit(data, as_json, lambda: cosbench_views.archive_table(found, series))


def _compare(group: typer.Typer) -> None:
    @group.command()
    def compare(
        first: Folder,
        second: Folder,
        first_workload: Annotated[
            str | None, typer.Option(help="The workload in the first archive.")
        ] = None,
        second_workload: Annotated[
            str | None, typer.Option(help="The workload in the second archive.")
        ] = None,
        main_only: Annotated[
            bool, typer.Option("--main-only", help="Only the measured stages.")
        ] = False,
        as_json: JsonFlag = False,
    ) -> None:
        """Compare two archives, such as a real COSBench's and cosdrive's of the same XML.

        Exit 1 if one lacks operations of the other, or their workers differ.
        """
        from workloads.cosbench.archive import read_archive
        from workloads.cosbench.tables import compare as side_by_side

        archives = read_archive(first, first_workload), read_archive(second, second_workload)
        for archive in archives:
            cosbench_run.warn(archive.warnings)
        found = side_by_side(*archives, main_only=main_only)
        facts = asdict(found) | {"same_shape": found.same_shape}
        emit(facts, as_json, lambda: cosbench_views.comparison_table(found))
        if not found.same_shape:
            raise typer.Exit(1)
