"""`hotbed cosbench run`: with the embedded driver here or on a testbed, or a real COSBench."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hotbed import cosbench_views
from hotbed.alone import alone
from hotbed.output import JsonFlag, emit
from hotbed.views import TestbedOption

if TYPE_CHECKING:
    from testbed.sites.contract import Progress
    from testbed.ssh import Shell
    from workloads.cosbench.archive import Archive
    from workloads.cosbench.credentials import Credentials
    from workloads.cosbench.driver import DriveOptions
    from workloads.cosbench.real import ArchiveSource


def add_run(group: typer.Typer) -> None:
    """Add the verb."""

    @group.command()
    def run(
        workload: Annotated[Path, typer.Argument(help="A workload of COSBench, XML.")],
        out: Annotated[
            Path | None, typer.Option(help="New folder for the archive.", show_default=False)
        ] = None,
        credentials: Annotated[
            Path | None, typer.Option(help="JSON with user and key, that only you can read.")
        ] = None,
        open_loop: Annotated[
            str | None,
            typer.Option(help="Operations a second, whatever they take: RATE or RATE:constant."),
        ] = None,
        seed: Annotated[int | None, typer.Option(help="Of what is drawn; not of COSBench.")] = None,
        only_stage: Annotated[
            list[str] | None, typer.Option(help="Run this stage alone; may be repeated.")
        ] = None,
        controller: Annotated[
            str | None, typer.Option(help="A real COSBench's controller: HOST or http://HOST:PORT.")
        ] = None,
        archive: Annotated[
            str | None,
            typer.Option(help="That controller's archive folder: here, or NODE:FOLDER."),
        ] = None,
        login: Annotated[
            Path | None, typer.Option(help="JSON with the controller's user and key.")
        ] = None,
        node: Annotated[
            str | None, typer.Option(help="Run on this client node of a testbed.")
        ] = None,
        tenant: Annotated[
            str | None, typer.Option(help="With --node: credentials of this tenant of its store.")
        ] = None,
        testbed: TestbedOption = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Run a workload: by the embedded driver, or with --controller by a real COSBench.

        Ctrl-C ends the stage it is in; what was measured until then is kept. Exit 1 when a stage
        did not complete.
        """
        from hotbed.progress import progress
        from schemas.durable import make_folder
        from schemas.errors import UserError
        from workloads.cosbench.credentials import filled, found_in, read_xml

        options = _drive_options(open_loop, seed, only_stage)
        _check_together(controller, archive, login, node, tenant, testbed, options)
        xml = read_xml(workload)
        given = found_in(credentials)
        folder = out or Path("artifacts") / f"cosbench-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        if folder.exists():
            raise UserError("is there already: results are never overwritten", where=folder)
        make_folder(folder.parent)
        with progress("cosbench") as report, _kept(folder):
            if controller is not None:
                assert archive is not None
                text = filled(xml, given.values, str(workload))
                found = _real(controller, archive, testbed, login, text, folder, report)
            elif node is not None or testbed is not None:
                found = _on_node(
                    testbed, node, tenant, xml, given, workload, options, folder, report
                )
            else:
                text = filled(xml, given.for_cosdrive(), str(workload))
                found = _here(text, workload, options, folder, report)
        warn(found.warnings)
        emit(
            cosbench_views.archive_facts(found, False),
            as_json,
            lambda: cosbench_views.archive_table(found, False),
        )
        if not found.finished:
            raise typer.Exit(1)


def _drive_options(
    open_loop: str | None, seed: int | None, only_stage: list[str] | None
) -> DriveOptions:
    from schemas.errors import UserError
    from workloads.cosbench.driver import DriveOptions

    rate, value = None, None
    arrivals = "poisson"
    if open_loop is not None:
        rate, _, words = open_loop.partition(":")
        arrivals = words or arrivals
        try:
            value = float(rate)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf") or arrivals not in ("poisson", "constant"):
            raise UserError(
                "write operations a second, such as 200 or 200:constant",
                where=f"--open-loop {open_loop}",
            )
    way: Literal["poisson", "constant"] = "constant" if arrivals == "constant" else "poisson"
    return DriveOptions(value, way, seed, tuple(only_stage or ()))


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Print the folder of the results if the run does not finish."""
    try:
        yield
    except BaseException:
        if folder.exists():
            typer.echo(f"hotbed: what was measured until then is in {folder}", err=True)
        raise


def _check_together(
    controller: str | None,
    archive: str | None,
    login: Path | None,
    node: str | None,
    tenant: str | None,
    testbed: str | None,
    options: DriveOptions,
) -> None:
    from schemas.errors import UserError

    if controller is None:
        if archive is not None or login is not None:
            raise UserError(
                "--archive and --login are a real COSBench's", do="give --controller too"
            )
        if tenant is not None and node is None and testbed is None:
            raise UserError(
                "--tenant is one of a testbed's store", do="give --node or --testbed too"
            )
        return
    if archive is None:
        raise UserError(
            "a controller leaves its results in files alone", do="give its --archive folder too"
        )
    if node is not None or tenant is not None:
        raise UserError("--controller has drivers of its own", do="leave --node and --tenant out")
    if testbed is not None and not _node_of(archive)[0]:
        raise UserError("--testbed goes with an archive on one of its nodes: --archive NODE:FOLDER")
    if options.flags():
        raise UserError(
            "--open-loop, --seed and --only-stage are the embedded driver's: a real COSBench "
            "has none of them"
        )


def _here(
    xml: str, workload: Path, options: DriveOptions, folder: Path, report: Progress
) -> Archive:
    from workloads.cosbench.driver import run_here

    done = run_here(xml, str(workload), folder, options, report)
    warn(done.warnings)
    return done.archive


def warn(warnings: Sequence[str]) -> None:
    """Print each warning on standard error."""
    for warning in warnings:
        typer.echo(f"hotbed: {warning}", err=True)


def _node_of(archive: str) -> tuple[str, str]:
    """Split NODE:FOLDER into (node or nothing, folder); a folder of this machine has no node."""
    node, colon, path = archive.partition(":")
    return (node, path) if colon and path.startswith("/") and "/" not in node else ("", archive)


def _source(archive: str, testbed: str | None) -> ArchiveSource:
    from testbed.choose import choose_ready, select
    from testbed.reach import shell_to
    from workloads.cosbench.real import LocalSource, NodeSource

    node, path = _node_of(archive)
    if not node:
        return LocalSource(Path(path))
    _, found = choose_ready(testbed)
    return NodeSource(shell_to(found, select(found, node)[0]), path)


def _real(
    controller: str,
    archive: str,
    testbed: str | None,
    login: Path | None,
    xml: str,
    folder: Path,
    report: Progress,
) -> Archive:
    from workloads.cosbench.credentials import from_file
    from workloads.cosbench.real import ControllerClient, ControllerLogin, run

    user = None
    if login is not None:
        values = from_file(login).values
        user = ControllerLogin(values.get("username", ""), values.get("password", ""))
    source = _source(archive, testbed)
    source.sizes()  # fail before submitting anything if the archive is missing
    return run(ControllerClient(controller, user), source, xml, folder, report)


def _on_node(
    testbed: str | None,
    node: str | None,
    tenant: str | None,
    xml: str,
    given: Credentials,
    workload: Path,
    options: DriveOptions,
    folder: Path,
    report: Progress,
) -> Archive:
    from schemas.errors import UserError
    from testbed.choose import choose_ready
    from testbed.client import agent_client
    from testbed.reach import shell_to
    from workloads.cosbench import driver
    from workloads.cosbench.credentials import filled, planned_seconds

    _, found = choose_ready(testbed)
    clients = [one.name for one in found.with_role("client")]
    name = node or (clients[0] if clients else None)
    if name not in clients:
        listed = ", ".join(clients) or "none"
        raise UserError(
            f"has no client node {name or ''!r}; client nodes: {listed}",
            where=f"testbed {found.name}",
        )

    def shell(each: str) -> Shell:
        return shell_to(found, found.node(each))

    values = given.for_cosdrive()
    if tenant is not None:
        values |= driver.tenant(shell(name), tenant).for_cosdrive()
    text = filled(xml, values, str(workload))
    longest = driver.LONGEST_S + sum(planned_seconds(text).values())
    load = driver.ClientWorkload("cli", name, text, longest, options)
    with alone(found):
        done = driver.run_on(agent_client(found), shell, [load], folder, report)
    warn(done[load.name].warnings)
    return done[load.name].archive
