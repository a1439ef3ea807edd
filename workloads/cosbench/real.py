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
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import HotbedError, UserError
from schemas.names import safe_path
from testbed.sites.contract import Progress, silent
from testbed.ssh import Shell
from workloads.cosbench.archive import CONFIG, Archive, read_archive
from workloads.cosbench.credentials import Credentials, masked, planned_seconds, scrubbed, secrets
from workloads.errors import WorkloadError

PORT = 19088
FINAL = frozenset({"FINISHED", "TERMINATED", "CANCELLED", "FAILED"})
STAGE_OVERHEAD_S = 7.0
"""Time that COSBench spends between stages."""

POLL_S = 2.0
SILENT_S = 180.0
ARCHIVE_S = 60.0
LARGEST = 512 * 2**20
"""Bytes of the largest archive that is copied."""

LOGIN = Credentials({"username": "anonymous", "password": "cosbench"})
"""The user of a controller as released."""

_ACCEPTED = re.compile(r"^Accepted with ID: (w\d+)\s*$")
_WORKLOAD = re.compile(r"^(w\d+)\t([^\t\n]+)\t([A-Z]+)$")
_ACTIVE = re.compile(r"^(w\d+)\t([^\t]+)\t([A-Z]+)\t(\S.*)$")
_DRIVER = re.compile(r"^([^\t]+)\t(\S+)$")
_NO_FOLDER = 3
_LIST = (
    f'cd -- "$1" || exit {_NO_FOLDER}; '
    'find . -mindepth 1 -maxdepth 2 -type f -printf "%s %P\\0" 2>/dev/null; exit 0'
)


class ControllerError(WorkloadError):
    """Error of a controller that refused or gave an unexpected answer."""


class UnreachableError(ControllerError):
    """Error if no controller answers: it may be starting, or be gone."""


@dataclass(frozen=True)
class WorkloadStatus:
    """Status of a workload.

    `submitted` is a date in the controller's words: after a restart an id is reused, the date is
    not.
    """

    id: str
    submitted: str
    state: str


class ControllerClient:
    """Client of a controller.

    Args:
        address: ``http://HOST:19088``, or ``HOST`` or ``HOST:PORT``.
        login: its user.
        timeout_s: limit of each request.
    """

    def __init__(self, address: str, login: Credentials = LOGIN, *, timeout_s: float = 20.0):
        self.address = _address(address)
        self._login = {key: login.values.get(key, "") for key in ("username", "password")}
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

    def workload(self, identity: str) -> WorkloadStatus | None:
        """Return a workload's status; None if the controller knows none of this id.

        Raises:
            ControllerError: it cannot be reached, or its answer is unexpected.
        """
        answer = self._ask("workload.action", id=identity).strip()
        if answer == "Not Found":
            return None
        match = _WORKLOAD.match(answer)
        if match is None or match[1] != identity:
            raise self._odd(answer)
        return WorkloadStatus(*match.groups())

    def cancel(self, identity: str) -> None:
        """End a workload; an ended workload stays as it is.

        Raises:
            ControllerError: it cannot be reached.
        """
        self._ask(
            "cancel.action",
            body=urllib.parse.urlencode({"id": identity}).encode(),
            kind="application/x-www-form-urlencoded",
        )

    def index(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return its drivers (name to address), and the stage of each active workload.

        Raises:
            ControllerError: it cannot be reached, or its answer is unexpected.
        """
        answer = self._ask("index.action")
        head, found, rest = answer.partition("Active Workloads:")
        if not answer.startswith("Drivers:") or not found:
            raise self._odd(answer)
        drivers = (_DRIVER.match(line) for line in head.splitlines()[1:])
        active = (_ACTIVE.match(line) for line in rest.splitlines())
        return (
            {match[1]: match[2] for match in drivers if match},
            {match[1]: match[4].strip() for match in active if match},
        )

    def _odd(self, answer: str) -> ControllerError:
        return ControllerError(f"the controller {self.address} answered: {_first_line(answer)}")

    def _ask(
        self, action: str, *, body: bytes | None = None, kind: str = "", **parameters: str
    ) -> str:
        query = urllib.parse.urlencode(self._login | parameters)
        url = f"{self.address}/controller/cli/{action}?{query}"
        headers = {"Content-Type": kind} if kind else {}
        try:
            request = urllib.request.Request(url, data=body, headers=headers)
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
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise UnreachableError(
                f"no COSBench controller answers at {self.address}: {reason}."
            ) from None
        return self._checked(text)

    def _checked(self, text: str) -> str:
        if text.startswith(("User info [", "Please input complete user info")):
            raise UserError(
                f"the controller {self.address} does not take user {self._login['username']!r}",
                do="give name and password by --login FILE (docs/cosbench.md)",
            )
        if text.startswith("Internal Error"):
            reason = _first_line(text.partition("\n")[2])
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
    try:
        parts = urllib.parse.urlsplit(given if "://" in given else f"http://{given}")
        port = parts.port or PORT
    except ValueError:
        parts, port = urllib.parse.urlsplit(""), PORT
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UserError(f"{given!r} is no address of a controller", do=f"write http://HOST:{PORT}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "nothing")[:300]


@dataclass(frozen=True)
class ArchiveSource:
    """A controller's archive folder on a node, or on this machine (see `LocalShell`)."""

    shell: Shell
    root: str

    def sizes(self) -> Mapping[str, int]:
        """Return the bytes of every file, two folders deep, by its path from the archive.

        Raises:
            UserError: there is no such folder.
        """
        done = self.shell.run(["sh", "-c", _LIST, "sh", self.root], check=False)
        if done.returncode == _NO_FOLDER:
            raise UserError(
                "is no folder",
                where=f"{self.root} on {self.shell.node}",
                do="name the archive folder of the controller's release",
            )
        found = (line.partition(" ") for line in done.text.split("\0"))
        return {name: int(size) for size, _, name in found if size.isdecimal()}

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        return self.shell.run(["cat", "--", f"{self.root}/{name}"], timeout_s=300.0).stdout


def collect(
    source: ArchiveSource,
    identity: str,
    out: Path,
    *,
    hidden: frozenset[str] = frozenset(),
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
        sleep: waits.

    Returns:
        The workload's folder in `out`.

    Raises:
        WorkloadError: the controller wrote nothing, or too much.
        UnsafeNameError: a file's name leads out of the archive.
    """
    files = _settled(source, identity, sleep)
    for name in files:
        safe_path(name, f"the archive of {identity}")
    if sum(files.values()) > LARGEST:
        raise WorkloadError(f"the archive of {identity} is larger than {LARGEST >> 20} MiB.")
    for name in files:
        data = source.read(name)
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
    return out / min(files).partition("/")[0]


def _settled(
    source: ArchiveSource, identity: str, sleep: Callable[[float], None]
) -> Mapping[str, int]:
    """Return the sizes of a workload's files when they no longer change."""
    before: Mapping[str, int] = {}
    unchanged = 0
    prefix = f"{identity}-"
    for _ in range(round(ARCHIVE_S) + 1):
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
            return files
        before = files
        sleep(1.0)
    raise WorkloadError(
        f"the controller left no archive of {identity} within {ARCHIVE_S:g} s: is this "
        "the archive folder of that controller?"
    )


def run(
    controller: ControllerClient,
    source: ArchiveSource,
    xml: str,
    out: Path,
    progress: Progress = silent,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Archive:
    """Run a workload to its end; an interruption cancels it.

    Args:
        controller: takes the workload.
        source: the controller's archive folder.
        xml: the workload, secrets in plain.
        out: new folder for the copy of the archive; secrets are masked in it.
        progress: gets the stage and the share of the planned time.
        sleep: waits.
        clock: seconds, for waiting times.

    Returns:
        The archive, also of a workload that did not finish: ask `Archive.finished`.

    Raises:
        UserError: the controller refuses the workload, or has no drivers.
        WorkloadError: it got lost, or left no archive.
    """
    drivers, _ = controller.index()
    if not drivers:
        raise UserError(
            f"the controller {controller.address} has no drivers", do="see controller.conf"
        )
    identity = controller.submit(xml)
    try:
        state = _watch(controller, identity, xml, progress, sleep=sleep, clock=clock).lower()
    except BaseException:
        with suppress(HotbedError):
            controller.cancel(identity)
        raise
    progress(f"{identity} {state}: collecting", 0.99)
    archive = read_archive(collect(source, identity, out, hidden=secrets(xml), sleep=sleep))
    if state != "finished" and not archive.stages:
        raise WorkloadError(f"workload {identity} was {state} without any results.")
    return archive


def _watch(
    controller: ControllerClient,
    identity: str,
    xml: str,
    progress: Progress,
    *,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> str:
    """Return the last state of a workload.

    A restarted controller has forgotten its workloads, and reuses their ids. Both cases are
    distinguished from an ended workload, which a restarted controller still knows.
    """
    before, planned_s = dict[str, float](), 0.0  # planned seconds before each stage
    for number, (name, seconds) in enumerate(planned_seconds(xml).items(), 1):
        before[f"s{number}-{name}"] = planned_s
        planned_s += seconds + STAGE_OVERHEAD_S
    lost = (
        f"workload {identity} got lost: the controller {controller.address} was restarted and "
        "{}; run it again."
    )
    submitted = None
    stage, since = "", clock()
    heard = clock()
    while True:
        try:
            status = controller.workload(identity)
            if status is None:
                raise WorkloadError(lost.format("no longer knows it"))
            submitted = submitted or status.submitted
            if status.submitted != submitted:
                raise WorkloadError(
                    lost.format(f"has given its id to another one ({status.submitted})")
                )
            if status.state in FINAL:
                return status.state
            heard, last = clock(), stage
            with suppress(ControllerError):
                stage = controller.index()[1].get(identity, "")
            since = since if stage == last else clock()
            done = before.get(stage, 0.0) + clock() - since
            where = stage if stage not in ("", "None") else status.state.lower()
            progress(f"{identity} {where}", min(0.98, done / planned_s) if planned_s else 0.0)
        except UnreachableError as error:
            gone = clock() - heard
            if gone > SILENT_S:
                raise WorkloadError(
                    f"workload {identity}: {str(error).rstrip('.')}, for {gone:.0f} s now; look "
                    "for its results in the controller's archive folder."
                ) from error
            progress(f"{identity}: the controller is silent for {gone:.0f} s", 0.0)
        sleep(POLL_S)
