"""What `ceph` and `ceph orch` answer, in JSON, as types.

Shapes: Ceph's orchestrator module (`DaemonDescription.to_json`, `HostSpec.to_json`; a field that is
empty is left out, or null) and `ceph status`. Releases add fields and take none of these away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.playbook_run import DeployError

RUNNING, UNKNOWN = 1, -2
"""Of DaemonDescriptionStatus: error -1, stopped 0, running 1, starting 2, unknown -2."""


@dataclass(frozen=True)
class Daemon:
    """One daemon: `status` as the orchestrator numbers it, `version` None until it was asked."""

    kind: str
    name: str
    host: str
    status: int
    said: str
    version: str | None = None

    @property
    def runs(self) -> bool:
        """Whether it is up."""
        return self.status == RUNNING


@dataclass(frozen=True)
class Host:
    """One machine; `status` is empty when it is well, else Offline or Maintenance."""

    name: str
    address: str
    labels: tuple[str, ...]
    status: str


@dataclass(frozen=True)
class Osds:
    """Counts of OSDs."""

    known: int
    up: int
    inside: int


def parse_daemons(text: str) -> tuple[Daemon, ...]:
    """`ceph orch ps`. DeployError when it is not that."""
    rows = _rows(text, "ceph orch ps")
    return tuple(
        Daemon(
            kind=str(_of(row, "daemon_type", "ceph orch ps")),
            name=f"{row['daemon_type']}.{_of(row, 'daemon_id', 'ceph orch ps')}",
            host=str(row.get("hostname") or ""),
            status=UNKNOWN if (status := row.get("status")) is None else _number(status, row),
            said=str(row.get("status_desc") or "unknown"),
            version=row.get("version"),
        )
        for row in rows
    )


def parse_hosts(text: str) -> tuple[Host, ...]:
    """`ceph orch host ls`. DeployError when it is not that."""
    return tuple(
        Host(
            name=str(_of(row, "hostname", "ceph orch host ls")),
            address=str(row.get("addr") or row["hostname"]),
            labels=tuple(str(label) for label in row.get("labels") or ()),
            status=str(row.get("status") or ""),
        )
        for row in _rows(text, "ceph orch host ls")
    )


def parse_osds(text: str) -> Osds:
    """OSDs of `ceph status`. DeployError when it is not that."""
    found = _json(text, "ceph status")
    osds = found.get("osdmap") if isinstance(found, dict) else None
    if not isinstance(osds, dict):
        raise _strange("ceph status", text)
    # Up to Octopus the map stood in a map of the same name.
    osds = osds.get("osdmap", osds)
    what = "ceph status"
    known, up, inside = (
        _number(_of(osds, key, what), osds, what)
        for key in ("num_osds", "num_up_osds", "num_in_osds")
    )
    return Osds(known, up, inside)


def lacking(daemons: Sequence[Daemon], wanted: dict[str, tuple[str, ...]]) -> str | None:
    """What does not run yet of `wanted` (hosts by kind of daemon), in words; None: all runs."""
    for kind, hosts in wanted.items():
        there = {daemon.host: daemon for daemon in daemons if daemon.kind == kind and daemon.runs}
        missing = [host for host in hosts if host not in there]
        if missing:
            broken = [
                f"{daemon.name} is in state {daemon.said}"
                for daemon in daemons
                if daemon.kind == kind and daemon.host in missing
            ]
            more = f" ({'; '.join(broken)})" if broken else ""
            return f"no {kind} runs on {', '.join(missing)}{more}"
    return None


def _rows(text: str, what: str) -> list[dict[str, Any]]:
    found = _json(text, what)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise _strange(what, text)
    return found


def _json(text: str, what: str) -> Any:
    # Nothing at all is what the orchestrator prints where there is nothing: "No daemons reported".
    if text.strip().startswith("No "):
        return []
    try:
        return json.loads(text)
    except ValueError as error:
        raise _strange(what, text) from error


def _number(found: object, row: dict[str, Any], what: str = "ceph orch ps") -> int:
    if not isinstance(found, int):
        raise _strange(what, json.dumps(row))
    return found


def _of(row: dict[str, Any], key: str, what: str) -> Any:
    if key not in row:
        raise _strange(what, json.dumps(row))
    return row[key]


def _strange(what: str, text: str) -> DeployError:
    return DeployError(f"`{what}` answered what is not known of it: {text.strip()[:200]!r}.")
