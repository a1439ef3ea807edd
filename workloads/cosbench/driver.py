"""`cosdrive`, the embedded driver of COSBench workloads, here or on a testbed's client nodes.

On a node it is a systemd unit like every load (`hotbed-load-cosbench-NAME`), started through the
admin node, so that it ends after its time even if the engine is gone. The workload's XML, which
holds credentials, goes there over ssh into a file of mode 0600; the shell that becomes cosdrive
opens that file and removes it before cosdrive begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from schemas.errors import BUILD, HotbedError, UserError, not_allowed
from schemas.names import unpack_tar
from testbed.agent.contract import Agent, UnitResult
from testbed.sites.contract import Progress, silent
from testbed.ssh import Shell
from workloads.cosbench.archive import Archive, read_archive
from workloads.cosbench.credentials import TENANTS, Credentials, from_json
from workloads.errors import WorkloadError

PROGRAM = Path(__file__).resolve().parents[2] / "dataplane" / "bin" / "cosdrive"
"""Built by `make setup`."""

REMOTE_PROGRAM = "/usr/local/bin/hotbed-cosdrive"
FOLDER = "/var/lib/hotbed/cosbench"
UNITS = "/var/lib/hotbed/units"
UNIT = "load-cosbench"
REMOTE_XML = "/dev/fd/3"
EXIT_USER = 2
STOP_S = 60.0  # to end a stage cleanly and to write the archive
CHECK_S = 60.0
GRACE_S = 120.0
LONGEST_S = 6 * 3600.0
"""Added to a workload's planned times: stages may end by counts instead."""

POLL_S = 2.0
_BRING_S = 300.0

# Opens the file with the credentials, removes its name, and becomes the driver.
_BECOME = 'exec 3< "$0" && rm -f -- "$0" && exec "$@"'
_EMPTY = 'rm -rf -- "$1" && mkdir -p -m 0700 -- "$1"'
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,50}")

ShellTo = Callable[[str], Shell]


@dataclass(frozen=True)
class DriveOptions:
    """Options of a run, beyond its XML.

    With `rate`, operations of normal works begin at this rate (per second, of the whole workload),
    even if earlier ones have not ended. Latencies count from the intended beginning.
    """

    rate: float | None = None
    arrivals: Literal["poisson", "constant"] = "poisson"
    seed: int | None = None
    only_stages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise UserError(
                f"an open loop of {self.rate:g} operations a second", allowed="more than 0"
            )
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise not_allowed("seed", self.seed, "a whole number from 0 to 2^64 - 1")

    def flags(self) -> list[str]:
        """Return words of the command line."""
        made = []
        if self.rate is not None:
            made += ["--open-loop", f"{self.rate:g}:{self.arrivals}"]
        if self.seed is not None:
            made += ["--seed", str(self.seed)]
        for name in self.only_stages:
            made += ["--only-stage", name]
        return made


@dataclass(frozen=True)
class ClientWorkload:
    """Workload on a client node.

    Attributes:
        name: name of the tenant, the unit and the folder of its results.
        node: client node that it runs on.
        xml: the workload, secrets in plain.
        max_s: seconds after which systemd ends it.
        options: beyond the XML.
    """

    name: str
    node: str
    xml: str = field(repr=False)
    max_s: float
    options: DriveOptions = field(default_factory=DriveOptions)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"{self.name!r} names no load", allowed="1 to 51 lower-case letters, digits or -"
            )

    @property
    def unit(self) -> str:
        """Its systemd unit, without the common prefix."""
        return f"{UNIT}-{self.name}"

    @property
    def folder(self) -> str:
        """Its folder on the node."""
        return f"{FOLDER}/{self.name}"

    @property
    def xml_path(self) -> str:
        """File of its XML on the node."""
        return f"{self.folder}/workload.xml"

    def command(self) -> list[str]:
        """Return the command of its unit."""
        made = _run_command(REMOTE_PROGRAM, REMOTE_XML, f"{self.folder}/archive", self.options)
        return ["sh", "-c", _BECOME, self.xml_path, *made]


@dataclass(frozen=True)
class DriverResult:
    """Finished run of cosdrive; `warnings` name parts of the workload without effect."""

    archive: Archive
    warnings: tuple[str, ...] = ()


def _run_command(program: str, xml: str, archive: str, options: DriveOptions) -> list[str]:
    """Return the command line. It holds only file names: secrets are in the XML."""
    return [program, "run", xml, "--archive", archive, *options.flags()]


def check(xml: str, where: str, program: Path = PROGRAM) -> dict[str, Any]:
    """Return a workload's plan, with everything inherited and every default filled in.

    Args:
        xml: the workload.
        where: its file's name, for errors.
        program: cosdrive.

    Raises:
        UserError: it is no workload, or needs an unsupported feature.
        HotbedError: cosdrive is not built, or failed.
    """
    with _sealed(xml) as (path, descriptor):
        done = subprocess.run(
            [str(_built(program)), "check", path],
            capture_output=True,
            text=True,
            pass_fds=(descriptor,),
            timeout=CHECK_S,
            check=False,
        )
    if done.returncode != 0:
        raise _failure(done.returncode, done.stderr, where, path)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run_here(
    xml: str,
    where: str,
    archive: Path,
    options: DriveOptions | None = None,
    progress: Progress = silent,
    *,
    program: Path = PROGRAM,
) -> DriverResult:
    """Drive a workload from this machine.

    An interruption ends the current stage; the archive is written all the same.

    Args:
        xml: the workload, secrets in plain.
        where: its file's name, for errors.
        archive: new folder for the archive.
        options: beyond the XML.
        progress: gets the stage and the share of the time.
        program: cosdrive.

    Raises:
        UserError: it is no workload, or needs an unsupported feature.
        WorkloadError: the driver failed.
    """
    with _sealed(xml) as (path, descriptor), tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            _run_command(str(_built(program)), path, str(archive), options or DriveOptions()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            pass_fds=(descriptor,),
            start_new_session=True,  # this process passes a Ctrl-C on once
        )
        try:
            assert process.stdout is not None
            share = 0.0
            for line in process.stdout:
                event = _event_of(line)
                if event is not None:
                    phase, share = progress_of(event, share)
                    if not event.get("error"):  # the error is raised below
                        progress(phase, share)
            code = process.wait()
        except BaseException:
            _end(process)
            raise
        complaints.seek(0)
        text = complaints.read().decode(errors="replace")
    if code != 0:
        raise _failure(code, text, where, path)
    return DriverResult(read_archive(archive), tuple(_lines(text, where, path)))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process as Ctrl-C does; kill it if it does not end."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=STOP_S)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _event_of(line: bytes | str) -> Mapping[str, Any] | None:
    """Return an event; None for any other line (one may be cut off if it is read too early)."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def progress_of(event: Mapping[str, Any], before: float = 0.0) -> tuple[str, float]:
    """Return an event's phase and share of the time.

    The share is `before` if the driver cannot estimate the remaining time.
    """
    if event["event"] == "done":
        return "done", 1.0
    passed, left = float(event.get("t_s") or 0.0), event.get("eta_s")
    share = before if left is None else passed / max(passed + float(left), 1e-9)
    words = [str(event.get("stage") or "starting")]
    if event.get("ops"):
        words.append(f"{event['ops']} operations")
    if event.get("errors"):
        words.append(f"{event['errors']} failed")
    return ", ".join(words), min(share, 0.99)


def _failure(code: int | None, text: str, where: str, path: str) -> HotbedError:
    """Return the error that cosdrive printed, about the user's file instead of `path`."""
    *_, reason = ["it printed nothing", *_lines(text, where, path)]
    reason = reason.removeprefix(f"{where}: ")[:500]
    if code == EXIT_USER:
        return UserError(reason, where=where)
    what = "was stopped" if code is None else f"failed with exit code {code}"
    return WorkloadError(f"cosdrive {what} on {where}: {reason}")


def _lines(text: str, where: str, path: str) -> list[str]:
    """Return the lines that cosdrive printed, about the user's file instead of `path`."""
    lines = (line.strip().removeprefix("cosdrive: ") for line in text.splitlines())
    return [line.replace(path, where) for line in lines if line]


def _built(program: Path) -> Path:
    if not os.access(program, os.X_OK):
        raise HotbedError(f"{program} is not built: {BUILD}.")
    return program


@contextmanager
def _sealed(xml: str) -> Iterator[tuple[str, int]]:
    """Put the XML into a file of mode 0600 without a name; yield (path for a child, descriptor).

    Nothing of it is left however this process ends.
    """
    with tempfile.TemporaryFile() as handle:
        handle.write(xml.encode())
        handle.flush()
        descriptor = handle.fileno()
        yield f"/dev/fd/{descriptor}", descriptor


def tenant(shell: Shell, name: str) -> Credentials:
    """Read a tenant's credentials from the file that the deployment left on a client node.

    Raises:
        UserError: there is no such tenant on this node.
    """
    paths = [f"{folder}/{name}.json" for folder in TENANTS]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UserError(f"{name!r} names no tenant")
    script = 'for path in "$@"; do if [ -e "$path" ]; then exec cat -- "$path"; fi; done; exit 1'
    done = shell.run(["sh", "-c", script, "tenant", *paths], check=False)
    if done.returncode != 0:
        raise UserError(
            f"has no tenant {name!r} ({' or '.join(paths)})",
            where=f"node {shell.node}",
            do="name a client of a Swift or of an object gateway, and a tenant of its spec",
        )
    return from_json(done.text, f"tenant {name} on {shell.node}")


def install(shell: Shell, binary: Path = PROGRAM) -> bool:
    """Bring the driver to a node; return False if the node has this one already.

    Raises:
        HotbedError: it is not built, or the node cannot be reached.
    """
    data = _built(binary).read_bytes()
    there = shell.run(["sha256sum", "--", REMOTE_PROGRAM], check=False)
    if there.returncode == 0 and there.text.split()[:1] == [hashlib.sha256(data).hexdigest()]:
        return False
    script = 'cat > "$1.new" && chmod 0755 "$1.new" && mv -f "$1.new" "$1"'
    shell.run(["sh", "-c", script, "sh", REMOTE_PROGRAM], input=data, timeout_s=_BRING_S)
    return True


def run_on(
    agent: Agent,
    shell_to: ShellTo,
    loads: Sequence[ClientWorkload],
    out: Path,
    progress: Progress = silent,
    *,
    binary: Path = PROGRAM,
    poll_s: float = POLL_S,
) -> dict[str, DriverResult]:
    """Run loads on client nodes, all at the same time, to their ends; by name.

    They begin within the time that an ssh connection takes. If one fails, or on an interruption,
    all end, and their output until then is kept in `out`.

    Args:
        agent: the testbed's admin node.
        shell_to: a shell on a node by its name.
        loads: the loads, with unique names.
        out: folder for the archives, one per load, by its name.
        progress: gets the phase of every load, and the share of the slowest load.
        binary: the driver.
        poll_s: seconds between two looks at the loads' progress.

    Raises:
        UserError: a workload is none, or needs an unsupported feature.
        WorkloadError: one failed, or was stopped.
    """
    names = [load.name for load in loads]
    if not loads or len(set(names)) < len(names):
        raise UserError(f"loads need names of their own; given: {', '.join(names) or 'none'}")
    there = [name for name in names if (out / name).exists()]
    if there:
        raise UserError("is there already: results are never overwritten", where=out / there[0])
    for node in dict.fromkeys(load.node for load in loads):
        install(shell_to(node), binary)
    try:
        for load in loads:
            shell = shell_to(load.node)
            shell.run(["sh", "-c", _EMPTY, "sh", load.folder])
            shell.put(load.xml.encode(), load.xml_path, mode=0o600)
        try:
            units = _to_the_end(agent, shell_to, loads, progress, poll_s)
        except BaseException:
            for load in loads:
                with suppress(HotbedError):
                    agent.unit_stop(load.node, load.unit)
                    _fetch(shell_to(load.node), load, out)
            raise
        for load in loads:
            _fetch(shell_to(load.node), load, out)
    finally:
        for load in loads:
            with suppress(HotbedError):
                shell_to(load.node).run(["rm", "-rf", "--", load.folder])
    return {
        name: DriverResult(read_archive(out / name), tuple(_lines(unit.stderr, name, REMOTE_XML)))
        for name, unit in units.items()
    }


def _to_the_end(
    agent: Agent,
    shell_to: ShellTo,
    loads: Sequence[ClientWorkload],
    progress: Progress,
    poll_s: float,
) -> dict[str, UnitResult]:
    """Run the loads' units and report their progress; raise if one has failed."""
    ending = threading.Event()

    def one(load: ClientWorkload) -> UnitResult:
        agent.unit_start(load.node, load.unit, load.command(), max_s=load.max_s)
        if ending.is_set():  # all were stopped while this one began
            agent.unit_stop(load.node, load.unit)
            raise WorkloadError(f"workload {load.name} was stopped.")
        done = agent.unit_wait(load.node, load.unit, timeout_s=load.max_s + GRACE_S)
        if done.exit_code != 0:
            where = f"workload {load.name} on node {load.node}"
            raise _failure(done.exit_code, done.stderr, where, REMOTE_XML)
        return done

    with ThreadPoolExecutor(len(loads)) as pool:
        futures = {load.name: pool.submit(one, load) for load in loads}
        shares = dict.fromkeys(futures, 0.0)
        try:
            while running := wait(futures.values(), poll_s, FIRST_EXCEPTION).not_done:
                phases = []
                for load in loads:
                    if futures[load.name] not in running:
                        futures[load.name].result()
                        shares[load.name] = 1.0
                        continue
                    phase, share = _last_event(shell_to(load.node), load, shares[load.name])
                    shares[load.name] = share
                    phases.append(f"{load.name}: {phase}")
                progress("; ".join(phases), min(shares.values()))
            found = {name: future.result() for name, future in futures.items()}
        except BaseException:
            # No thread may keep waiting for its unit.
            ending.set()
            for load in loads:
                with suppress(HotbedError):
                    agent.unit_stop(load.node, load.unit)
            raise
    progress("collecting", 0.99)
    return found


def _last_event(shell: Shell, load: ClientWorkload, before: float) -> tuple[str, float]:
    with suppress(HotbedError):
        done = shell.run(["tail", "-n", "2", f"{UNITS}/{load.unit}/stdout"], check=False)
        for line in reversed(done.text.splitlines()):
            event = _event_of(line)
            if event is not None:
                return progress_of(event, before)
    return "starting", before


def _fetch(shell: Shell, load: ClientWorkload, out: Path) -> None:
    """Bring a load's archive from its node to `out`."""
    done = shell.run(
        ["tar", "-C", f"{load.folder}/archive", "-czf", "-", "."], timeout_s=_BRING_S, check=False
    )
    if done.returncode != 0:
        raise WorkloadError(f"workload {load.name} left no archive on node {load.node}.")
    target = out / load.name
    target.mkdir(parents=True)
    unpack_tar(done.stdout, target, f"node {load.node}")
