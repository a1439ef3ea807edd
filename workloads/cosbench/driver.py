"""Runs `cosdrive`, the embedded driver of COSBench workloads, here or on a testbed's client nodes.

On a node it is a systemd unit like every load (`hotbed-load-cosbench-NAME`), started through the
admin node, so that it ends after its time whatever becomes of the engine. The workload's XML, which
holds credentials, goes there over ssh into a file of mode 0600; the shell that becomes cosdrive
opens that file and removes it before cosdrive begins.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import HotbedError, UserError
from schemas.names import unpack_tar
from testbed.agent.contract import Agent, UnitResult
from testbed.sites.contract import Progress, silent
from testbed.ssh import Shell
from workloads.cosbench import program
from workloads.cosbench.archive import read_archive
from workloads.cosbench.credentials import TENANTS, Credentials, from_json
from workloads.cosbench.program import Driven, DriveOptions, event_of, told
from workloads.cosbench.results import Archive
from workloads.errors import WorkloadError

REMOTE_PROGRAM = "/usr/local/bin/hotbed-cosdrive"
FOLDER = "/var/lib/hotbed/cosbench"
UNITS = "/var/lib/hotbed/units"
UNIT = "load-cosbench"
GRACE_S = 120.0
LONGEST_S = 6 * 3600.0
"""Given to a workload beyond its planned times: stages may end by counts instead."""

POLL_S = 2.0
_INSTALL_S = 300.0
_FETCH_S = 300.0

# Opens the file with the credentials, takes its name away, and becomes the driver.
_BECOME = 'exec 3< "$0" && rm -f -- "$0" && exec "$@"'
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,50}")

ShellTo = Callable[[str], Shell]


@dataclass(frozen=True)
class Load:
    """A workload on a client node.

    Attributes:
        name: of the tenant; names the unit and the folder of its results.
        node: client node that it runs on.
        xml: the workload, secrets in plain.
        max_s: after so many seconds systemd ends it.
        options: beyond what the XML says.
    """

    name: str
    node: str
    xml: str = field(repr=False)
    max_s: float
    options: DriveOptions = field(default_factory=DriveOptions)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"{self.name!r} names no load: 1 to 51 lower-case letters, digits or -, please."
            )

    @property
    def unit(self) -> str:
        """Its systemd unit, without the prefix of all."""
        return f"{UNIT}-{self.name}"

    @property
    def folder(self) -> str:
        """Where it works on the node."""
        return f"{FOLDER}/{self.name}"


@dataclass(frozen=True)
class Drive:
    """A finished load: its archive, and what the driver told meanwhile."""

    name: str
    node: str
    archive: Archive
    driven: Driven

    def _repr_html_(self) -> str:
        return self.archive._repr_html_()


def run_here(
    xml: str,
    where: str,
    out: Path,
    options: DriveOptions | None = None,
    progress: Progress = silent,
) -> Drive:
    """Drive a workload from this machine.

    Args:
        xml: the workload, secrets in plain.
        where: its file's name, for errors.
        out: new folder for the archive.

    Raises:
        UserError: it is no workload, or asks for what is not supported.
        WorkloadError: the driver failed.
    """
    driven = program.run(xml, where, out, options, progress)
    return Drive("", "", read_archive(out), driven)


def tenant(shell: Shell, name: str) -> Credentials:
    """A tenant's credentials, from the file that the store's deployment wrote on a client node.

    Raises:
        UserError: there is no such tenant on this node.
    """
    paths = [f"{folder}/{name}.json" for folder in TENANTS]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UserError(f"{name!r} names no tenant.")
    script = 'for path in "$@"; do if [ -e "$path" ]; then exec cat -- "$path"; fi; done; exit 1'
    done = shell.run(["sh", "-c", script, "tenant", *paths], check=False)
    if done.returncode != 0:
        raise UserError(
            f"node {shell.node} has no tenant {name!r} ({' or '.join(paths)}): is it a client of a "
            "Swift, or of a Ceph with an object gateway, whose spec names this tenant?"
        )
    return from_json(done.text, f"tenant {name} on {shell.node}")


def install(shell: Shell, binary: Path = program.PROGRAM) -> bool:
    """Bring the driver to a node; False where it has this one already.

    Raises:
        HotbedError: it is not built, or the node cannot be reached.
    """
    try:
        data = binary.read_bytes()
    except OSError as error:
        raise HotbedError(f"{binary} is not built: run `make setup`.") from error
    digest = hashlib.sha256(data).hexdigest()
    there = shell.run(["sha256sum", "--", REMOTE_PROGRAM], check=False)
    if there.returncode == 0 and there.text.split()[:1] == [digest]:
        return False
    script = 'cat > "$1.new" && chmod 0755 "$1.new" && mv -f "$1.new" "$1"'
    shell.run(["sh", "-c", script, "sh", REMOTE_PROGRAM], input=data, timeout_s=_INSTALL_S)
    return True


def run_on(
    agent: Agent,
    shell_to: ShellTo,
    loads: Sequence[Load],
    out: Path,
    progress: Progress = silent,
    *,
    binary: Path = program.PROGRAM,
    poll_s: float = POLL_S,
) -> dict[str, Drive]:
    """Run loads on client nodes, all at the same time, to their ends; by name.

    They begin within the time that an ssh connection takes. When one fails, or on an interruption,
    all end, and what they wrote until then is kept in `out`.

    Args:
        agent: the testbed's admin node.
        shell_to: a shell on a node by its name.
        loads: what to run, with names of their own.
        out: folder for the archives, one a load, by its name.
        progress: gets what the loads are at, and the share of the one that is least far.
        binary: the driver.

    Raises:
        UserError: a workload is none, or asks for what is not supported.
        WorkloadError: one failed, or was stopped.
    """
    _distinct(loads, out)
    for node in dict.fromkeys(load.node for load in loads):
        install(shell_to(node), binary)
    with _laid_out(agent, shell_to, loads):
        try:
            units = _ended(agent, shell_to, loads, progress, poll_s)
        except BaseException:
            for load in loads:
                with suppress(HotbedError):
                    agent.unit_stop(load.node, load.unit)
                    fetch(shell_to(load.node), load, out)
            raise
        for load in loads:
            fetch(shell_to(load.node), load, out)
    return {
        load.name: Drive(
            load.name, load.node, read_archive(out / load.name), _driven(load, units[load.name])
        )
        for load in loads
    }


def _distinct(loads: Sequence[Load], out: Path) -> None:
    names = [load.name for load in loads]
    if not loads or len(set(names)) < len(names):
        raise UserError(f"loads need names of their own; given: {', '.join(names) or 'none'}.")
    there = [name for name in names if (out / name).exists()]
    if there:
        raise UserError(f"{out / there[0]} is there already: results are never overwritten.")


@contextmanager
def _laid_out(agent: Agent, shell_to: ShellTo, loads: Sequence[Load]) -> Iterator[None]:
    """Each load's folder with its XML on its node; gone afterwards."""
    try:
        for load in loads:
            shell = shell_to(load.node)
            script = 'rm -rf -- "$1" && mkdir -p -m 0700 -- "$1"'
            shell.run(["sh", "-c", script, "sh", load.folder])
            shell.put(load.xml.encode(), _xml_path(load), mode=0o600)
        yield
    finally:
        for load in loads:
            with suppress(HotbedError):
                shell_to(load.node).run(["rm", "-rf", "--", load.folder])


def _xml_path(load: Load) -> str:
    return f"{load.folder}/workload.xml"


def command(load: Load) -> list[str]:
    """What the load's unit runs."""
    archive = f"{load.folder}/archive"
    made = program.run_command(REMOTE_PROGRAM, "/dev/fd/3", archive, load.options)
    return ["sh", "-c", _BECOME, _xml_path(load), *made]


def _ended(
    agent: Agent,
    shell_to: ShellTo,
    loads: Sequence[Load],
    progress: Progress,
    poll_s: float,
) -> dict[str, UnitResult]:
    ending = threading.Event()

    def one(load: Load) -> UnitResult:
        agent.unit_start(load.node, load.unit, command(load), max_s=load.max_s)
        if ending.is_set():  # all were stopped while this one began
            agent.unit_stop(load.node, load.unit)
            raise WorkloadError(f"workload {load.name} was stopped.")
        done = agent.unit_wait(load.node, load.unit, timeout_s=load.max_s + GRACE_S)
        if done.exit_code != 0:
            where = f"workload {load.name} on node {load.node}"
            raise program.said(done.exit_code, done.stderr, where, "/dev/fd/3")
        return done

    with ThreadPoolExecutor(len(loads)) as pool:
        futures = {load.name: pool.submit(one, load) for load in loads}
        try:
            _watch(shell_to, loads, futures, progress, poll_s)
        except BaseException:
            # Who waits for a unit must not wait on.
            ending.set()
            for load in loads:
                with suppress(HotbedError):
                    agent.unit_stop(load.node, load.unit)
            raise
    return {name: future.result() for name, future in futures.items()}


def _watch(
    shell_to: ShellTo,
    loads: Sequence[Load],
    futures: Mapping[str, Future[UnitResult]],
    progress: Progress,
    poll_s: float,
) -> None:
    """Until all have ended; raises as soon as one has failed."""
    last, shares = 0.0, dict[str, float]()
    while not all(future.done() for future in futures.values()):
        _raise_failures(futures)
        if time.monotonic() - last >= poll_s:
            last = time.monotonic()
            running = [load for load in loads if not futures[load.name].done()]
            progress(*_far(shell_to, running, shares))
        time.sleep(0.1)
    _raise_failures(futures)
    progress("collecting", 0.99)


def _raise_failures(futures: Mapping[str, Future[UnitResult]]) -> None:
    for future in futures.values():
        if future.done():
            future.result()


def _far(shell_to: ShellTo, loads: Sequence[Load], shares: dict[str, float]) -> tuple[str, float]:
    """What loads are at, and the share of the one that is least far; `shares` are the last ones."""
    words = []
    for load in loads:
        before = shares.get(load.name, 0.0)
        phase, shares[load.name] = _last_event(shell_to(load.node), load, before)
        words.append(f"{load.name}: {phase}")
    return "; ".join(words), min((shares[load.name] for load in loads), default=0.0)


def _last_event(shell: Shell, load: Load, before: float) -> tuple[str, float]:
    with suppress(HotbedError):
        done = shell.run(["tail", "-n", "2", f"{UNITS}/{load.unit}/stdout"], check=False)
        for line in reversed(done.text.splitlines()):
            event = event_of(line)
            if event is not None:
                return told(event, before)
    return "starting", before


def fetch(shell: Shell, load: Load, out: Path) -> Path:
    """Bring a load's archive from its node to `out`; the folder there.

    Raises:
        WorkloadError: there is none.
    """
    target = out / load.name
    done = shell.run(
        ["tar", "-C", f"{load.folder}/archive", "-czf", "-", "."], timeout_s=_FETCH_S, check=False
    )
    if done.returncode != 0:
        raise WorkloadError(f"workload {load.name} left no archive on node {load.node}.")
    target.mkdir(parents=True)
    unpack_tar(done.stdout, target, f"node {load.node}")
    return target


def _driven(load: Load, unit: UnitResult) -> Driven:
    events = (event_of(line) for line in unit.stdout.splitlines())
    return Driven(
        tuple(event for event in events if event is not None),
        unit.started_at,
        unit.ended_at,
        unit.cpu_s,
        unit.exit_code,
        program.complaints_of(unit.stderr, load.name, "/dev/fd/3"),
    )
