"""`hotbed cosbench run`: with the embedded driver here or on a testbed, or a real COSBench."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hotbed import cosbench_views
from hotbed.alone import alone
from hotbed.output import JsonFlag, emit
from hotbed.views import TestbedOption

if TYPE_CHECKING:
    from testbed.sites.contract import Progress, Testbed
    from testbed.ssh import Shell
    from workloads.cosbench.archive import Archive
    from workloads.cosbench.credentials import Credentials
    from workloads.cosbench.driver import DriveOptions, DriverResult
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
        from workloads.cosbench import driver
        from workloads.cosbench.credentials import filled, found_in, read_xml

        options = _drive_options(open_loop, seed, only_stage)
        on_testbed = node is not None or testbed is not None
        if controller is not None:
            _check_real(archive, testbed, node or tenant, options)
        elif archive is not None or login is not None:
            raise UserError(
                "--archive and --login are a real COSBench's", do="give --controller too"
            )
        elif tenant is not None and not on_testbed:
            raise UserError(
                "--tenant is one of a testbed's store", do="give --node or --testbed too"
            )
        xml, given = read_xml(workload), found_in(credentials)
        folder = out or Path("artifacts") / f"cosbench-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        if folder.exists():
            raise UserError("is there already: results are never overwritten", where=folder)
        make_folder(folder.parent)
        with progress("cosbench") as report, _kept(folder):
            if controller is not None:
                source = _source(archive or "", testbed)
                text = filled(xml, given.values, str(workload))
                found = _real(controller, source, login, text, folder, report)
            else:
                if on_testbed:
                    place = _client(testbed, node)
                    text = filled(xml, place.values(tenant, given), str(workload))
                    done = place.run(text, options, folder, report)
                else:
                    text = filled(xml, given.for_cosdrive(), str(workload))
                    done = driver.run_here(text, str(workload), folder, options, report)
                warn(done.warnings)
                found = done.archive
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

    rate, _, words = (open_loop or "").partition(":")
    arrivals: Literal["poisson", "constant"] = "constant" if words == "constant" else "poisson"
    try:
        if words not in ("", "poisson", "constant"):
            raise ValueError
        per_second = None if open_loop is None else float(rate)
        return DriveOptions(per_second, arrivals, seed, tuple(only_stage or ()))
    except ValueError as error:
        raise UserError(
            "write operations a second, such as 200 or 200:constant",
            where=f"--open-loop {open_loop}",
        ) from error


def warn(warnings: Sequence[str]) -> None:
    """Print each warning on standard error."""
    for warning in warnings:
        typer.echo(f"hotbed: {warning}", err=True)


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Print the folder of the results if the run does not finish."""
    try:
        yield
    except BaseException:
        if folder.exists():
            typer.echo(f"hotbed: what was measured until then is in {folder}", err=True)
        raise


def _check_real(
    archive: str | None, testbed: str | None, node: str | None, options: DriveOptions
) -> None:
    """Raise UserError if an option does not fit --controller."""
    from schemas.errors import UserError

    if archive is None:
        raise UserError(
            "a controller leaves its results in files alone", do="give its --archive folder too"
        )
    if node is not None:
        raise UserError("--controller has drivers of its own", do="leave --node and --tenant out")
    if testbed is not None and not _node_of(archive)[0]:
        raise UserError("--testbed goes with an archive on one of its nodes: --archive NODE:FOLDER")
    if options.flags():
        raise UserError(
            "--open-loop, --seed and --only-stage are the embedded driver's: a real COSBench "
            "has none of them"
        )


def _node_of(archive: str) -> tuple[str, str]:
    """Split NODE:FOLDER into (node or nothing, folder); a folder of this machine has no node."""
    node, colon, path = archive.partition(":")
    return (node, path) if colon and path.startswith("/") and "/" not in node else ("", archive)


def _source(archive: str, testbed: str | None) -> ArchiveSource:
    from testbed.agent.reach import LocalShell
    from testbed.choose import choose_ready, select
    from testbed.reach import shell_to
    from workloads.cosbench.real import ArchiveSource

    node, path = _node_of(archive)
    if not node:
        return ArchiveSource(LocalShell("this machine"), path)
    _, found = choose_ready(testbed)
    return ArchiveSource(shell_to(found, select(found, node)[0]), path)


def _real(
    controller: str,
    source: ArchiveSource,
    login: Path | None,
    xml: str,
    folder: Path,
    report: Progress,
) -> Archive:
    from workloads.cosbench.credentials import from_file
    from workloads.cosbench.real import LOGIN, ControllerClient, run

    client = ControllerClient(controller, LOGIN if login is None else from_file(login))
    source.sizes()  # fail before submitting anything if the archive is missing
    return run(client, source, xml, folder, report)


@dataclass(frozen=True)
class _ClientNode:
    """Client node of a running testbed."""

    testbed: Testbed
    name: str

    def _shell(self, node: str) -> Shell:
        from testbed.reach import shell_to

        return shell_to(self.testbed, self.testbed.node(node))

    def values(self, tenant: str | None, given: Credentials) -> dict[str, str]:
        """Return the given credentials, with those of a tenant of the testbed's store on top."""
        from workloads.cosbench import driver

        values = given.for_cosdrive()
        if tenant is not None:
            values |= driver.tenant(self._shell(self.name), tenant).for_cosdrive()
        return values

    def run(self, xml: str, options: DriveOptions, folder: Path, report: Progress) -> DriverResult:
        """Run a workload to its end."""
        from testbed.client import agent_client
        from workloads.cosbench import driver
        from workloads.cosbench.credentials import planned_seconds

        longest = driver.LONGEST_S + sum(planned_seconds(xml).values())
        load = driver.ClientWorkload("cli", self.name, xml, longest, options)
        with alone(self.testbed):
            client = agent_client(self.testbed)
            return driver.run_on(client, self._shell, [load], folder, report)[load.name]


def _client(testbed: str | None, node: str | None) -> _ClientNode:
    from schemas.errors import UserError
    from testbed.choose import choose_ready

    _, found = choose_ready(testbed)
    clients = [one.name for one in found.with_role("client")]
    name = node or next(iter(clients), "")
    if name not in clients:
        listed = ", ".join(clients) or "none"
        raise UserError(
            f"has no client node {name!r}; client nodes: {listed}", where=f"testbed {found.name}"
        )
    return _ClientNode(found, name)
