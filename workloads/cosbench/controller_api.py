"""The command-line interface of a COSBench controller, over HTTP.

Every answer has status 200 and is plain text, errors too; so answers are told apart by what they
say. The name and password that the controller asks for are parameters of the query: they are kept
out of every message.
"""

from __future__ import annotations

import http.client
import re
import secrets as random
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.errors import UserError
from workloads.errors import WorkloadError

PORT = 19088
FINAL = frozenset({"FINISHED", "TERMINATED", "CANCELLED", "FAILED"})

_ACCEPTED = re.compile(r"^Accepted with ID: (w\d+)\s*$")
_WORKLOAD = re.compile(r"^(w\d+)\t([^\t\n]+)\t([A-Z]+)$")
_ACTIVE = re.compile(r"^(w\d+)\t([^\t]+)\t([A-Z]+)\t(\S.*)$")
_DRIVER = re.compile(r"^([^\t]+)\t(\S+)$")


class ControllerError(WorkloadError):
    """The controller refused, or answered what it should not."""


class UnreachableError(ControllerError):
    """Nobody answers: it may be starting, or be gone."""


class UnknownWorkloadError(ControllerError):
    """The controller knows no workload of this id."""


@dataclass(frozen=True)
class Login:
    """What a controller asks for; the defaults are those of a release."""

    username: str = "anonymous"
    password: str = field(default="cosbench", repr=False)


@dataclass(frozen=True)
class Told:
    """What a controller tells of a workload. `submitted` is a date in the controller's words: an id
    is given again after a restart, the date is not."""

    id: str
    submitted: str
    state: str

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL


@dataclass(frozen=True)
class Index:
    """A controller's drivers (name to address), and the stage that each active workload is in."""

    drivers: Mapping[str, str]
    stages: Mapping[str, str]


class Controller:
    """A controller.

    Args:
        address: ``http://HOST:19088``, or ``HOST`` or ``HOST:PORT``.
        login: its user.
        timeout_s: of each request.
    """

    def __init__(
        self, address: str, login: Login | None = None, *, timeout_s: float = 20.0
    ) -> None:
        self.address = _address(address)
        self._login = login or Login()
        self._timeout_s = timeout_s
        # A proxy of the environment is none for a testbed.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def submit(self, xml: str) -> str:
        """Hand in a workload, which is queued at once; its id.

        Raises:
            UserError: the controller does not take it; in its words.
            ControllerError: it cannot be asked.
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

    def workload(self, identity: str) -> Told:
        """What it tells of a workload.

        Raises:
            UnknownWorkloadError: it knows none of this id.
            ControllerError: it cannot be asked, or answers something else.
        """
        return self._told(identity, self._ask("workload.action", {"id": identity}))

    def cancel(self, identity: str) -> Told:
        """End a workload; one that has ended stays as it is.

        Raises:
            ControllerError: as `workload`.
        """
        body = urllib.parse.urlencode({"id": identity}).encode()
        kind = "application/x-www-form-urlencoded"
        return self._told(identity, self._ask("cancel.action", body=body, kind=kind))

    def index(self) -> Index:
        """Its drivers and active workloads.

        Raises:
            ControllerError: it cannot be asked, or answers something else.
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

    def _told(self, identity: str, answer: str) -> Told:
        if answer.strip() == "Not Found":
            raise UnknownWorkloadError(f"the controller {self.address} knows no {identity}.")
        match = _WORKLOAD.match(answer.strip())
        if match is None or match[1] != identity:
            raise self._odd(answer)
        return Told(*match.groups())

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
            # While it starts, Tomcat answers and the application does not.
            problem = UnreachableError if error.code in (404, 500, 502, 503) else ControllerError
            raise problem(
                f"{self.address} answered HTTP {error.code} to {action}: is a COSBench controller "
                "there, and has it started?"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(
                f"no COSBench controller answers at {self.address}: {_reason(error)}."
            ) from None
        return self._checked(text)

    def _checked(self, text: str) -> str:
        if text.startswith(("User info [", "Please input complete user info")):
            raise UserError(
                f"the controller {self.address} does not take user {self._login.username!r}: give "
                "name and password by --login FILE (docs/cosbench.md)."
            )
        if text.startswith("Internal Error"):
            lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
            reason = lines[0] if lines else "it does not say why"
            raise ControllerError(f"the controller {self.address} failed: {reason[:200]}")
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
        raise UserError(f"{given!r} is no address of a controller: write http://HOST:{PORT}.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or PORT}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "nothing")[:300]


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, (TimeoutError, socket.timeout)):
        return "it does not answer in time"
    return str(getattr(inner, "strerror", None) or inner or type(inner).__name__)
