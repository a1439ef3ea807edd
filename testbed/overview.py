"""State of a whole testbed for people and for the live view: health, faults, loads, controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from testbed.agent.overview import ANSWER_S, answers, short_name
from testbed.client import NotDeployedError, agent_client
from testbed.faults import in_force
from testbed.reach import shell_to
from testbed.sites.contract import Node, Site, SnapshotSite, Status, Testbed

FULL = 0.95
"""Used share from which on a disk counts as full. fio's files alone may use 0.9 of scratch."""
_SLACK_S = 3.0  # for ssh and the agent's start, in addition to `ANSWER_S`


def overview(testbed: Testbed, site: Site) -> dict[str, Any]:
    """Return the testbed's state, within about ten seconds even if nothing answers.

    From the site: ``name``, ``site``, ``state`` (null if the site cannot be asked), ``detail``,
    ``nodes`` (node -> the site's word), ``lease`` in words, ``ends_at_s``, ``snapshots``. From the
    agent: see `testbed.agent.overview.overview`; ``disks_full`` are the disks with a share of at
    least `FULL`, and ``deployed`` is false if there is no agent. ``faults`` in force.
    ``unanswered``: a sentence for each part that could not be asked.
    """
    agent, kind, most_s = "the admin node", f"site {site.kind}", ANSWER_S + _SLACK_S
    calls: dict[str, Callable[[], Any]] = {
        agent: lambda: agent_client(testbed).call(
            "overview", {"timeout_s": ANSWER_S}, timeout_s=most_s
        ),
        kind: lambda: site.status(testbed.name),
        "faults": lambda: [fault.as_json() for fault in in_force(testbed.directory)],
    }
    if isinstance(site, SnapshotSite):
        calls["snapshots"] = lambda: list(site.snapshots(testbed.name))
    found, missing = answers(calls, most_s + 1)
    deployed = not isinstance(missing.get(agent), NotDeployedError)
    if not deployed:
        del missing[agent]
    stated: Status | None = found.get(kind)
    seen: dict[str, Any] = NOTHING | found.get(agent, {})
    unanswered = {what: str(why) for what, why in missing.items()} | dict(seen["unanswered"])
    if stated:
        seen |= {"state": stated.state, "detail": stated.detail, "nodes": dict(stated.nodes)}
        seen |= {"lease": stated.lease(), "ends_at_s": stated.ends_at_s}
    return seen | {
        "name": testbed.name,
        "site": site.kind,
        "deployed": deployed,
        "disks_full": [disk for disk in seen["disks"] if disk["used_share"] >= FULL],
        "faults": found.get("faults", []),
        "snapshots": found.get("snapshots", []),
        "unanswered": [f"{what}: {why}" for what, why in unanswered.items()],
    }


NOTHING: dict[str, Any] = {
    **dict.fromkeys(("store", "health", "swift", "state", "lease", "ends_at_s")),
    **{"detail": "", "nodes": {}, "unanswered": []},
    **{name: [] for name in ("osds_down", "mons_down", "disks", "disks_full")},
    **{name: [] for name in ("controllers", "loads", "faults", "snapshots")},
}
"""An `overview` if nothing is known."""


def verdict(found: Mapping[str, Any]) -> str:
    """Return one sentence on an `overview`."""
    nodes = found["nodes"]
    running = sum(state == "running" for state in nodes.values())
    words = [f"{found['state'] or 'state unknown'}, {running} of {len(nodes)} nodes"]
    if found["health"] is not None:
        words.append(f"store: {found['health']['status']}")
    elif found["deployed"]:
        words.append("store: no answer")
    else:
        words.append("no store deployed")
    steering = [row for row in found["controllers"] if row["running"] or row["leftover"]]
    counted = (
        ("monitor down", "monitors down", found["mons_down"]),
        ("OSD down", "OSDs down", found["osds_down"]),
        ("link cut", "links cut", [state for state in nodes.values() if "link" in state]),
        ("disk full", "disks full", found["disks_full"]),
        ("fault in force", "faults in force", found["faults"]),
        ("controller steers", "controllers steer", steering),
        ("load runs", "loads run", found["loads"]),
        ("question unanswered", "questions unanswered", found["unanswered"]),
    )
    words += [
        f"{len(rows)} {one if len(rows) == 1 else more}" for one, more, rows in counted if rows
    ]
    return f"testbed {found['name']}: {'; '.join(words)}"


def units_of(testbed: Testbed, node: Node) -> list[dict[str, str]]:
    """Return the units of Hotbed and of the store on a node: {name, unit, state, about}; ``name``
    is short, such as osd.3. RemoteError: the node cannot be reached."""
    shell = shell_to(testbed, node)
    listing, ended = shell.run(["sh", "-c", _UNITS], timeout_s=15).text.split("==\n")
    rows = {
        unit: {"name": short_name(unit), "unit": unit, "state": f"{active} ({sub})", "about": about}
        for unit, _, active, sub, about in (line.split(maxsplit=4) for line in listing.splitlines())
    }
    for unit in sorted({*ended.split()} - {*rows}):
        rows[unit] = {"name": short_name(unit), "unit": unit, "state": "ended", "about": ""}
    return list(rows.values())


# systemd forgets a unit that has ended; its journal stays.
_UNITS = """
systemctl list-units --all --plain --no-legend --no-pager 'ceph*@*.service' 'hotbed-*.service'
echo ==
{ journalctl --field=_SYSTEMD_UNIT; journalctl --field=UNIT; } |
    grep -E '^(ceph.*@|hotbed-).*[.]service$' || :
"""
