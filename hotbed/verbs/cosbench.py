"""`hotbed cosbench`: write, check, run, read and compare COSBench workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hotbed import cosbench_views
from hotbed.alone import alone
from hotbed.options import argument, named, option, quantity
from hotbed.output import Output, Verbs
from hotbed.progress import progress
from hotbed.views import TestbedOption
from schemas.errors import UserError

if TYPE_CHECKING:
    from testbed.sites.contract import Progress
    from testbed.ssh import Shell
    from workloads.cosbench.archive import Archive
    from workloads.cosbench.credentials import Credentials
    from workloads.cosbench.driver import DriveOptions, DriverResult
    from workloads.cosbench.real import ArchiveSource

Folder = Annotated[Path, argument("An archive, or the folder of a workload in one.")]
Which = Annotated[
    str | None, named("--workload", "The workload in the archive, such as w1, or its name.")
]


group = Verbs(help="COSBench: workloads of object stores.")


@group.command()
def xml(
    letter: Annotated[str, argument("A workload of Table 1: A, B, C or D.")],
    out: Path | None = option("New file; by default the XML is printed.", None),
    name: str | None = option("Name of the workload and of its tenant.", None),
    scale: float = option("Factor for the largest object: with 0.125, C and D have 1-16 MB.", 1.0),
    sizes: str | None = option(
        "Object size or range, such as 64KB or 1-16MB; by default Table 1's.", None
    ),
    workers: int = option("Operations in flight.", 32),
    containers: int = option("How many.", 4),
    objects: int = option("Number of objects to read, in each container.", 50),
    runtime: float = quantity(
        "--runtime", "seconds", "Duration of the main stage.", 900.0, show_default="15min"
    ),
    rampup: float = quantity(
        "--rampup", "seconds", "Duration of the ramp-up, which is not measured.", 0.0
    ),
    total_ops: int | None = option("Maximum number of operations of the main stage.", None),
    stages: str = option("Stages, separated by commas.", "init,prepare,main,cleanup,dispose"),
    storage: str = option("mock, swift, s3 or none.", "mock"),
    auth: str | None = option("none, mock, swauth or keystone.", None),
    auth_url: str | None = option("URL for authentication.", None),
    endpoint: str | None = option("Of S3.", None),
) -> Output:
    """Write a workload of Table 1 as COSBench's XML, without any credentials.

    `hotbed cosbench run --credentials FILE` fills them in.
    """
    from schemas.durable import write_file
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
        write_file(out, text, 0o600, exclusive=True)
    facts = {"name": made.name, "file": None if out is None else str(out)}
    facts["xml"] = text if out is None else None
    return Output(facts, lambda: text.rstrip("\n") if out is None else f"Written: {out}")


@group.command()
def check(
    workload: Path | None = argument("A workload of COSBench, XML.", None, show_default=False),
    release: Path | None = option("An unpacked release of COSBench to look at.", None),
    java: str | None = option("Java executable for COSBench.", None),
) -> Output:
    """Show a workload with everything inherited; or check if a release can run here.

    What is not supported is refused by its name. Exit 1 if a release cannot run.
    """
    from workloads.cosbench import driver
    from workloads.cosbench.credentials import read_xml
    from workloads.cosbench.release import examine

    if (workload is None) == (release is None):
        raise UserError("give either a workload's XML to check, or --release FOLDER")
    if workload is not None:
        plan = driver.check(read_xml(workload), str(workload))
        return Output(plan, lambda: cosbench_views.plan_table(plan))
    assert release is not None
    found = examine(release, java=java)
    return Output(found, lambda: cosbench_views.release_views(found), code=int(not found.good))


@group.command()
def run(
    workload: Annotated[Path, argument("A workload of COSBench, XML.")],
    out: Path | None = option("New folder for the archive.", None, show_default=False),
    credentials: Path | None = option("JSON with user and key, that only you can read.", None),
    open_loop: str | None = option(
        "Operations a second, whatever they take: RATE or RATE:constant.", None
    ),
    seed: int | None = option("Of what is drawn; not of COSBench.", None),
    only_stage: list[str] | None = option("Run this stage alone; may be repeated.", None),
    controller: str | None = option(
        "A real COSBench's controller: HOST or http://HOST:PORT.", None
    ),
    archive: str | None = option("That controller's archive folder: here, or NODE:FOLDER.", None),
    login: Path | None = option("JSON with the controller's user and key.", None),
    node: str | None = option("Run on this client node of a testbed.", None),
    tenant: str | None = option("With --node: credentials of this tenant of its store.", None),
    testbed: TestbedOption = None,
) -> Output:
    """Run a workload: by the embedded driver, or with --controller by a real COSBench.

    Ctrl-C ends the stage it is in; what was measured until then is kept. Exit 1 when a stage
    did not complete.
    """
    from schemas.durable import make_folder
    from workloads.cosbench import driver
    from workloads.cosbench.credentials import filled, found_in, read_xml

    options = _drive_options(open_loop, seed, only_stage)
    on_testbed = node is not None or testbed is not None
    if controller is not None:
        _check_real(archive, testbed, node or tenant, options)
    elif archive is not None or login is not None:
        raise UserError("--archive and --login are a real COSBench's", do="give --controller too")
    elif tenant is not None and not on_testbed:
        raise UserError("--tenant is one of a testbed's store", do="give --node or --testbed too")
    xml, given = read_xml(workload), found_in(credentials)
    folder = out or Path("artifacts") / f"cosbench-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    if folder.exists():
        raise UserError("is there already: results are never overwritten", where=folder)
    make_folder(folder.parent)

    def fill(values: Mapping[str, str]) -> str:
        return filled(xml, values, str(workload))

    with progress("cosbench") as report, _kept(folder):
        if controller is not None:
            source = _source(archive or "", testbed)
            found = _real(controller, source, login, fill(given.values), folder, report)
        else:
            if on_testbed:
                done = _run_on_client(testbed, node, fill, given, tenant, options, folder, report)
            else:
                text = fill(given.for_cosdrive())
                done = driver.run_here(text, str(workload), folder, options, report)
            _warn(done.warnings)
            found = done.archive
    return _archive(found, series=False, code=int(not found.finished))


def _drive_options(
    open_loop: str | None, seed: int | None, only_stage: list[str] | None
) -> DriveOptions:
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


def _warn(warnings: Sequence[str]) -> None:
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
    from testbed.choose import choose_ready, select
    from testbed.reach import shell_to
    from testbed.ssh import LocalShell
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


def _run_on_client(
    testbed: str | None,
    node: str | None,
    fill: Callable[[Mapping[str, str]], str],
    given: Credentials,
    tenant: str | None,
    options: DriveOptions,
    folder: Path,
    report: Progress,
) -> DriverResult:
    """Run a workload on a client node of a running testbed to its end. `fill` returns its XML from
    the given credentials, with those of a tenant of the testbed's store on top."""
    from testbed.choose import choose_ready
    from testbed.client import agent_client
    from testbed.reach import shell_to
    from workloads.cosbench import driver
    from workloads.cosbench.credentials import planned_seconds

    _, found = choose_ready(testbed)
    clients = [one.name for one in found.with_role("client")]
    name = node or next(iter(clients), "")
    if name not in clients:
        listed = ", ".join(clients) or "none"
        raise UserError(
            f"has no client node {name!r}; client nodes: {listed}", where=f"testbed {found.name}"
        )

    def shell(node: str) -> Shell:
        return shell_to(found, found.node(node))

    values = given.for_cosdrive()
    if tenant is not None:
        values |= driver.tenant(shell(name), tenant).for_cosdrive()
    xml = fill(values)
    longest = driver.LONGEST_S + sum(planned_seconds(xml).values())
    load = driver.ClientWorkload("cli", name, xml, longest, options)
    with alone(found):
        return driver.run_on(agent_client(found), shell, [load], folder, report)[load.name]


@group.command()
def show(
    folder: Folder,
    workload: Which = None,
    series: bool = named("--series", "Also print the series of each stage.", False),
) -> Output:
    """Show the results in an archive of COSBench or of cosdrive."""
    from workloads.cosbench.archive import read_archive

    return _archive(read_archive(folder, workload), series=series)


def _archive(found: Archive, *, series: bool, code: int = 0) -> Output:
    _warn(found.warnings)
    facts = cosbench_views.archive_facts(found, series)
    return Output(facts, lambda: cosbench_views.archive_tables(found, series), code)


@group.command()
def compare(
    first: Folder,
    second: Folder,
    first_workload: str | None = option("The workload in the first archive.", None),
    second_workload: str | None = option("The workload in the second archive.", None),
    main_only: bool = named("--main-only", "Only the measured stages.", False),
) -> Output:
    """Compare two archives, such as a real COSBench's and cosdrive's of the same XML.

    Exit 1 if one lacks operations of the other, or their workers differ.
    """
    from workloads.cosbench.archive import read_archive
    from workloads.cosbench.tables import compare as side_by_side

    archives = read_archive(first, first_workload), read_archive(second, second_workload)
    for archive in archives:
        _warn(archive.warnings)
    found = side_by_side(*archives, main_only=main_only)
    facts = asdict(found) | {"same_shape": found.same_shape}
    return Output(facts, lambda: cosbench_views.comparison_views(found), int(not found.same_shape))
