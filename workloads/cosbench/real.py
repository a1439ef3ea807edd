"""A real COSBench: a workload handed to its controller, watched to its end, its archive collected.

The controller has a command-line interface over HTTP. Every answer has status 200 and is plain
text, errors too, so only the text distinguishes them. The name and password for the controller are
parameters of the query: they are kept out of every message.
"""

from __future__ import annotations

import http.client
import re
import secrets as random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import HotbedError, UserError
from schemas.names import safe_path
from testbed.sites.contract import Progress, silent
from testbed.ssh import Shell
from workloads.cosbench.archive import CONFIG, Archive, read_archive
from workloads.cosbench.credentials import masked, planned_seconds, scrubbed, secrets
from workloads.errors import WorkloadError

PORT = 19088
FINAL = frozenset({"FINISHED", "TERMINATED", "CANCELLED", "FAILED"})
STAGE_OVERHEAD_S = 7.0
"""Time that COSBench spends between stages."""

ENDED_BADLY = {
    "TERMINATED": "was terminated: a stage failed, or more operations failed than its afr allows",
    "FAILED": "failed",
    "CANCELLED": "was cancelled",
}
LARGEST = 512 * 2**20
"""Bytes of the largest archive that is copied."""

_ACCEPTED = re.compile(r"^Accepted with ID: (w\d+)\s*$")
_WORKLOAD = re.compile(r"^(w\d+)\t([^\t\n]+)\t([A-Z]+)$")
_ACTIVE = re.compile(r"^(w\d+)\t([^\t]+)\t([A-Z]+)\t(\S.*)$")
_DRIVER = re.compile(r"^([^\t]+)\t(\S+)$")
_LIST = 'cd -- "$1" && find . -mindepth 1 -maxdepth 2 -type f -printf "%s %P\\0"'


class ControllerError(WorkloadError):
    """Error of a controller that refused or gave an unexpected answer."""


class UnreachableError(ControllerError):
    """Error if no controller answers: it may be starting, or be gone."""


class UnknownWorkloadError(ControllerError):
    """Error of a controller that knows no workload of this id."""


@dataclass(frozen=True)
class ControllerLogin:
    """User of a controller; the defaults are those of a release."""

    username: str = "anonymous"
    password: str = field(default="cosbench", repr=False)


@dataclass(frozen=True)
class WorkloadStatus:
    """Status of a workload.

    `submitted` is a date in the controller's words: after a restart an id is reused, the date is
    not.
    """

    id: str
    submitted: str
    state: str


@dataclass(frozen=True)
class Index:
    """A controller's drivers (name to address), and the stage of each active workload."""

    drivers: Mapping[str, str]
    stages: Mapping[str, str]


class ControllerClient:
    """Client of a controller.

    Args:
        address: ``http://HOST:19088``, or ``HOST`` or ``HOST:PORT``.
        login: its user.
        timeout_s: limit of each request.
    """

    def __init__(
        self, address: str, login: ControllerLogin | None = None, *, timeout_s: float = 20.0
    ) -> None:
        self.address = _address(address)
        self._login = login or ControllerLogin()
        self._timeout_s = timeout_s
        # The environment's HTTP proxy does not reach a testbed.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def submit(self, xml: str) -> str:
        """Hand in a workload, which is queued at once, and return its id.

        Raises:
            UserError: the controller refuses it; in its words.
            ControllerError: the controller cannot be reached.
        """
        boundary = f"hotbed-{random.token_hex(16)}"
        body = (
            f"--{boundary}\r\n"
            'Content-Disposition: form-data; name="config"; filename="workload.xml"\r\n'
            "Content-Type: text/xml\r\n\r\n"
            f"{xml}\r\n--{boundary}--\r\n"
        ).encode()
        kind = f"multipart/form-data; boundary={boundary}"
        answer = self._ask("submit.action", body=body, kind=kind)
        match = _ACCEPTED.match(answer)
        if match is None:
            raise UserError(
                f"the COSBench controller {self.address} does not take this workload: "
                f"{_first_line(answer)}"
            )
        return match[1]

    def workload(self, identity: str) -> WorkloadStatus:
        """Return a workload's status.

        Raises:
            UnknownWorkloadError: the controller knows no workload of this id.
            ControllerError: it cannot be reached, or its answer is unexpected.
        """
        return self._status(identity, self._ask("workload.action", {"id": identity}))

    def cancel(self, identity: str) -> WorkloadStatus:
        """End a workload; an ended workload stays as it is.

        Raises:
            ControllerError: as `workload`.
        """
        body = urllib.parse.urlencode({"id": identity}).encode()
        kind = "application/x-www-form-urlencoded"
        return self._status(identity, self._ask("cancel.action", body=body, kind=kind))

    def index(self) -> Index:
        """Return its drivers and active workloads.

        Raises:
            ControllerError: it cannot be reached, or its answer is unexpected.
        """
        answer = self._ask("index.action")
        head, found, rest = answer.partition("Active Workloads:")
        if not answer.startswith("Drivers:") or not found:
            raise self._odd(answer)
        drivers = (_DRIVER.match(line) for line in head.splitlines()[1:])
        active = (_ACTIVE.match(line) for line in rest.splitlines())
        return Index(
            drivers={match[1]: match[2] for match in drivers if match},
            stages={match[1]: match[4].strip() for match in active if match},
        )

    def _status(self, identity: str, answer: str) -> WorkloadStatus:
        if answer.strip() == "Not Found":
            raise UnknownWorkloadError(f"the controller {self.address} knows no {identity}.")
        match = _WORKLOAD.match(answer.strip())
        if match is None or match[1] != identity:
            raise self._odd(answer)
        return WorkloadStatus(*match.groups())

    def _odd(self, answer: str) -> ControllerError:
        return ControllerError(f"the controller {self.address} answered: {_first_line(answer)}")

    def _ask(
        self,
        action: str,
        parameters: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        kind: str = "",
    ) -> str:
        login = {"username": self._login.username, "password": self._login.password}
        query = urllib.parse.urlencode(login | dict(parameters or {}))
        url = f"{self.address}/controller/cli/{action}?{query}"
        request = urllib.request.Request(url, data=body)
        if kind:
            request.add_header("Content-Type", kind)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                text = str(answer.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            # While it starts, Tomcat answers but the application does not.
            problem = UnreachableError if error.code in (404, 500, 502, 503) else ControllerError
            raise problem(
                f"{self.address} answered HTTP {error.code} to {action}: is a COSBench controller "
                "there, and has it started?"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            inner = error.reason if isinstance(error, urllib.error.URLError) else error
            late = "it does not answer in time" if isinstance(inner, TimeoutError) else None
            reason = late or getattr(inner, "strerror", None) or inner or type(inner).__name__
            raise UnreachableError(
                f"no COSBench controller answers at {self.address}: {reason}."
            ) from None
        return self._checked(text)

    def _checked(self, text: str) -> str:
        if text.startswith(("User info [", "Please input complete user info")):
            raise UserError(
                f"the controller {self.address} does not take user {self._login.username!r}",
                do="give name and password by --login FILE (docs/cosbench.md)",
            )
        if text.startswith("Internal Error"):
            reason = _first_line(text.partition("\n")[2], "it does not say why")[:200]
            raise ControllerError(f"the controller {self.address} failed: {reason}")
        if text.strip() == "Bad Request":
            raise ControllerError(f"the controller {self.address} takes this for a bad request.")
        if "<html" in text[:500].lower():
            raise ControllerError(
                f"{self.address} answered with a web page: its name and password are asked for "
                "otherwise, or it is no COSBench controller."
            )
        return text


def _address(given: str) -> str:
    text = given if "://" in given else f"http://{given}"
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urllib.parse.SplitResult("", "", "", "", ""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UserError(f"{given!r} is no address of a controller", do=f"write http://HOST:{PORT}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or PORT}"


def _first_line(text: str, missing: str = "nothing") -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else missing)[:300]


class LocalSource:
    """A controller's archive folder on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def sizes(self) -> Mapping[str, int]:
        """Return the bytes of every file, two folders deep, by its path from the archive.

        Raises:
            UserError: the folder is not there.
        """
        if not self.root.is_dir():
            raise UserError(
                "is no folder",
                where=self.root,
                do="name the archive folder of the controller's release",
            )
        return {
            str(path.relative_to(self.root)): path.stat().st_size
            for pattern in ("*", "*/*")
            for path in self.root.glob(pattern)
            if path.is_file()
        }

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        return (self.root / name).read_bytes()


class NodeSource:
    """A controller's archive folder on a node."""

    def __init__(self, shell: Shell, root: str) -> None:
        self.shell = shell
        self.root = root

    def sizes(self) -> Mapping[str, int]:
        """Return as `LocalSource.sizes`; raise RemoteError if the folder is missing."""
        done = self.shell.run(["sh", "-c", _LIST, "sh", self.root])
        found = (line.partition(" ") for line in done.text.split("\0"))
        return {name: int(size) for size, _, name in found if size.isdecimal()}

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        return self.shell.run(["cat", "--", f"{self.root}/{name}"], timeout_s=300.0).stdout


ArchiveSource = LocalSource | NodeSource


def collect(
    source: ArchiveSource,
    identity: str,
    out: Path,
    *,
    hidden: frozenset[str] = frozenset(),
    patience_s: float = 60.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Copy a workload's folder, and its lines of the archive's own files, to `out`.

    A controller reports the end of a workload before it writes. So this waits until the last file
    names the workload, or nothing has changed for a while. Secrets are masked on the way.

    Args:
        source: the controller's archive.
        identity: the workload's id, such as ``w1``.
        out: a folder, which becomes an archive of this workload alone.
        hidden: secrets to mask in the log.
        patience_s: limit of the wait for the files.
        sleep: waits.

    Returns:
        The workload's folder in `out`.

    Raises:
        WorkloadError: the controller wrote nothing, or too much.
        UnsafeNameError: a file's name leads out of the archive.
    """
    files = _settled(source, identity, patience_s, sleep)
    for name in files:
        safe_path(name, f"the archive of {identity}")
    total = 0
    for name in files:
        data = source.read(name)
        total += len(data)
        if total > LARGEST:
            raise WorkloadError(f"the archive of {identity} is larger than {LARGEST >> 20} MiB.")
        if Path(name).name == CONFIG:
            data = masked(data.decode(errors="replace")).encode()
        elif name.endswith(".log"):
            data = scrubbed(data.decode(errors="replace"), hidden).encode()
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
    there = source.sizes()
    for name in ("run-history.csv", "workloads.csv"):
        if name in there:
            heading, *rows = source.read(name).decode(errors="replace").splitlines() or [""]
            mine = [row for row in rows if row.startswith((f"{identity},", f"{identity}-"))]
            (out / name).write_text("\n".join([heading, *mine]) + "\n")
    return out / files[0].partition("/")[0]


def _settled(
    source: ArchiveSource, identity: str, patience_s: float, sleep: Callable[[float], None]
) -> list[str]:
    before: Mapping[str, int] = {}
    unchanged = waited = 0
    prefix = f"{identity}-"
    while True:
        there = source.sizes()
        files = {
            name: size for name, size in there.items() if name.startswith(prefix) and "/" in name
        }
        unchanged = unchanged + 1 if files and files == before else 0
        # The file that is written last names the workload, if it ever ran.
        named = "workloads.csv" in there and any(
            line.startswith(prefix.encode()) for line in source.read("workloads.csv").splitlines()
        )
        if unchanged >= (1 if named else 5):
            return sorted(files)
        if waited >= patience_s:
            raise WorkloadError(
                f"the controller left no archive of {identity} within {patience_s:g} s: is this "
                "the archive folder of that controller?"
            )
        before = files
        sleep(1.0)
        waited += 1


@dataclass(frozen=True)
class PollingTimes:
    """Waiting times in seconds.

    `poll_s` is between two requests, `silent_s` for a silent controller, `archive_s` for the files
    of a finished workload.
    """

    poll_s: float = 2.0
    silent_s: float = 180.0
    archive_s: float = 60.0


def run(
    controller: ControllerClient,
    source: ArchiveSource,
    xml: str,
    out: Path,
    progress: Progress = silent,
    *,
    patience: PollingTimes | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Archive:
    """Run a workload to its end; an interruption cancels it.

    A restarted controller has forgotten its workloads, and reuses their ids. Both cases are
    distinguished from an ended workload, which a restarted controller still knows.

    Args:
        controller: takes the workload.
        source: the controller's archive folder.
        xml: the workload, secrets in plain.
        out: new folder for the copy of the archive; secrets are masked in it.
        progress: gets the stage and the share of the planned time.
        patience: waiting times.
        sleep: waits.
        clock: seconds, for waiting times.

    Returns:
        The archive, also of a workload that did not finish: ask `Archive.finished`.

    Raises:
        UserError: the controller refuses the workload, or has no drivers.
        WorkloadError: it got lost, or left no archive.
    """
    waits = patience or PollingTimes()
    if not controller.index().drivers:
        raise UserError(
            f"the controller {controller.address} has no drivers", do="see controller.conf"
        )
    identity = controller.submit(xml)
    try:
        watch = _WorkloadWatch(
            controller, identity, xml, progress, waits=waits, sleep=sleep, clock=clock
        )
        state = watch.to_the_end().state
    except BaseException:
        with suppress(HotbedError):
            controller.cancel(identity)
        raise
    progress(f"{identity} {state.lower()}: collecting", 0.99)
    folder = collect(
        source, identity, out, hidden=secrets(xml), patience_s=waits.archive_s, sleep=sleep
    )
    archive = read_archive(folder)
    if state in ENDED_BADLY and not archive.stages:
        raise WorkloadError(f"workload {identity} {ENDED_BADLY[state]}.")
    return archive


class _WorkloadWatch:
    """Watcher that asks for the status of one workload until it has ended."""

    def __init__(
        self,
        controller: ControllerClient,
        identity: str,
        xml: str,
        progress: Progress,
        *,
        waits: PollingTimes,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._identity = identity
        self._progress = progress
        self._waits = waits
        self._sleep = sleep
        self._clock = clock
        self._submitted: str | None = None
        self._silent_since: float | None = None
        self._stage, self._stage_since = "", clock()
        self._before: dict[str, float] = {}  # planned seconds before each stage
        self._planned_s = 0.0
        for number, (name, seconds) in enumerate(planned_seconds(xml).items(), 1):
            self._before[f"s{number}-{name}"] = self._planned_s
            self._planned_s += seconds + STAGE_OVERHEAD_S

    def to_the_end(self) -> WorkloadStatus:
        """Return its last status."""
        while True:
            try:
                status = self._controller.workload(self._identity)
                if self._submitted is None:
                    self._submitted = status.submitted
                elif status.submitted != self._submitted:
                    raise self._lost(f"has given its id to another one ({status.submitted})")
                if status.state in FINAL:
                    return status
                self._report(status)
                self._silent_since = None
            except UnreachableError as error:
                self._endure(error)
            except UnknownWorkloadError as error:
                raise self._lost("no longer knows it") from error
            self._sleep(self._waits.poll_s)

    def _lost(self, how: str) -> WorkloadError:
        return WorkloadError(
            f"workload {self._identity} got lost: the controller {self._controller.address} was "
            f"restarted and {how}; run it again."
        )

    def _report(self, status: WorkloadStatus) -> None:
        stage = ""
        with suppress(ControllerError):
            stage = self._controller.index().stages.get(self._identity, "")
        now = self._clock()
        if stage != self._stage:
            self._stage, self._stage_since = stage, now
        done = self._before.get(stage, 0.0) + now - self._stage_since
        share = min(0.98, done / self._planned_s) if self._planned_s else 0.0
        where = stage if stage not in ("", "None") else status.state.lower()
        self._progress(f"{self._identity} {where}", share)

    def _endure(self, error: UnreachableError) -> None:
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        gone = now - self._silent_since
        if gone > self._waits.silent_s:
            raise WorkloadError(
                f"workload {self._identity}: {str(error).rstrip('.')}, for {gone:.0f} s now; look "
                "for its results in the controller's archive folder."
            ) from error
        self._progress(f"{self._identity}: the controller is silent for {gone:.0f} s", 0.0)
