"""Verb: answers to an operator's first questions, from the admin node, within seconds.

Every part has a time limit, so that a dead monitor or node costs its own answer and no other.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from schemas.errors import RemoteError
from testbed.agent import units
from testbed.agent.contract import UNIT_PREFIX, AgentConfig, AgentNode, osd_names
from testbed.agent.disturb import read_state
from testbed.agent.reach import on_each, reach
from testbed.stores.ceph.connection import Connection, connect
from testbed.stores.ceph.pgs import PgReader
from testbed.stores.nfs.store import store_of as nfs_of

ANSWER_S = 5.0
CEPH_UNIT = re.compile(r"ceph-(?:[0-9a-f-]{36}@)?(osd|mon|mgr|radosgw|rgw)[@.](.+)\.service")
_OTHER_UNIT = re.compile(r"hotbed-(swift-.*|nfsproxy|ganesha|rpcbind|twochoice@.*)\.service")
# Unit files by name, because a pattern finds only units that systemd has loaded.
_LOOK = f"""
cd /etc/systemd/system
systemctl show --property=Id --property=ActiveState 'ceph*@*.service' '{UNIT_PREFIX}*.service' \
    $(ls | grep -E '^{UNIT_PREFIX}(swift-.*|nfsproxy|ganesha)[.]service$') < /dev/null
echo ==
df -P -k -x tmpfs -x devtmpfs -x squashfs -x efivarfs 2> /dev/null < /dev/null
echo ==
{units.STRAYS}
"""


def overview(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return {timeout_s?: 5} -> {store, health, osds_down, mons_down, disks, controllers, loads,
    swift, unanswered}.

    `health` is {status, checks: [{code, severity, summary}]} in Ceph's words for every store; null
    if the monitors do not answer. `disks` are {node, path, used_share} of each file system, and of
    each OSD as the path ``osd.N``. `controllers` are rows of ``control-status``, `swift` is the
    answer of ``swift-status``. `unanswered` maps each missing part to the reason.
    """
    from testbed.agent.__main__ import find  # by name: controllers import this package

    limit_s = min(60.0, max(1.0, float(payload.get("timeout_s", ANSWER_S))))
    names = [node.name for node in config.nodes]
    calls: dict[str, Callable[[], Any]] = {
        "nodes": lambda: on_each(names, lambda name: look(config, name, 0.9 * limit_s)),
        "controllers": lambda: find("control-status")(config, {})["controllers"],
    }
    if config.store == "ceph":
        calls["store"] = lambda: of_ceph(connect(timeout_s=limit_s / 2), config)
    elif config.store == "swift":
        calls["swift"] = lambda: find("swift-status")(config, {"interval_s": 0.5})
    elif config.store == "nfs":
        servers = nfs_of(config).servers
        calls |= {name: partial(nfs_of(config).ask, name, "status") for name in servers}
    found, missing = answers(calls, limit_s)
    nodes: dict[str, Any] = {}
    for name, seen in found.get("nodes", {}).items():
        if isinstance(seen, RemoteError):
            missing[f"node {name}"] = seen
        else:
            nodes[name] = seen
    ceph = found.get("store") or {"health": None, "osds_down": [], "mons_down": [], "disks": []}
    result = ceph | {
        "store": config.store,
        "controllers": found.get("controllers", []),
        "loads": [row for name, seen in nodes.items() for row in _loads(name, seen)],
        "swift": found.get("swift"),
        "disks": ceph["disks"] + [row for seen in nodes.values() for row in seen["disks"]],
    }
    if config.store == "ceph":
        for node in config.nodes:
            for kind, row in _down(node, nodes.get(node.name)):
                result[kind] += [row] if row not in result[kind] else []
    else:
        result["health"] = _health(config, nodes, missing)
    return result | {"unanswered": {what: str(why) for what, why in missing.items()}}


def answers(
    calls: Mapping[str, Callable[[], Any]], limit_s: float
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Make `calls` in parallel; return the results and the missing ones' errors, by name. A call
    that hangs is left behind in its daemon thread."""
    found: dict[str, Any] = {}
    missing: dict[str, Exception] = {}

    def make(name: str, call: Callable[[], Any]) -> None:
        try:
            found[name] = call()
        except Exception as error:
            missing[name] = error

    threads = [threading.Thread(target=make, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    done, failed = dict(found), dict(missing)
    silent = sorted(set(calls) - set(done) - set(failed))
    late = RemoteError(f"no answer within {limit_s:g} s.", retry=True)
    return done, failed | dict.fromkeys(silent, late)


def look(config: AgentConfig, name: str, limit_s: float) -> dict[str, Any]:
    """Return a node's {units: {unit: state}, disks, strays}. RemoteError: it does not answer."""
    done = reach(config, name).run(["sh", "-s"], input=_LOOK.encode(), timeout_s=limit_s)
    shown, sizes, strays = done.text.split("==\n")
    states = re.findall(r"^(Id|ActiveState)=(.*)$", shown, re.MULTILINE)
    ids = [value for key, value in states if key == "Id"]
    active = [value for key, value in states if key == "ActiveState"]
    disks = []
    for line in sizes.splitlines()[1:]:
        _, blocks, used, left, _, path = line.split(maxsplit=5)
        if blocks.isdigit() and int(used) + int(left) > 0:
            share = int(used) / (int(used) + int(left))
            disks.append({"node": name, "path": path, "used_share": round(share, 4)})
    by_unit = dict(zip(ids, active, strict=True))
    return {"units": by_unit, "disks": disks, "strays": strays.splitlines()}


def of_ceph(connection: Connection, config: AgentConfig) -> dict[str, Any]:
    """Return the monitors' part of `overview`. StoreError: they do not answer.

    The connection stays open: its shutdown would wait for a manager that hangs."""
    report = connection.mon("health").checked("health")
    quorum = connection.mon("quorum_status").checked("quorum_status")
    osd_map = PgReader(connection, config.pools, osd_names(config)).osd_map()
    # From the manager, which may be dead: its answer is not worth a second.
    used, _ = answers({"osds": lambda: connection.mgr("osd df").checked("osd df")["nodes"]}, 1.0)
    nodes = {osd.id: osd.node for osd in osd_map.osds.values()}
    members = [str(each["name"]) for each in quorum["monmap"]["mons"]]
    return {
        "health": {
            "status": str(report["status"]),
            "checks": [
                _check(code, str(each["summary"]["message"]), str(each["severity"]))
                for code, each in report["checks"].items()
            ],
        },
        "osds_down": [
            {"osd": osd.id, "node": osd.node} for osd in osd_map.osds.values() if not osd.up
        ],
        # Every deployer names a monitor like its node.
        "mons_down": [
            {"mon": name, "node": name} for name in members if name not in quorum["quorum_names"]
        ],
        "disks": [
            {
                "node": nodes.get(osd["id"], ""),
                "path": f"osd.{osd['id']}",
                "used_share": round(float(osd["utilization"]) / 100, 4),
            }
            for osd in used.get("osds", ())
        ],
    }


def _down(node: AgentNode, seen: Mapping[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the node's OSDs and monitor without an active unit."""
    if seen is None:
        return []
    found = [CEPH_UNIT.fullmatch(unit) for unit, state in seen["units"].items() if state in _ALIVE]
    there = {(match[1], match[2]) for match in found if match}
    down: list[tuple[str, dict[str, Any]]] = [
        ("osds_down", {"osd": osd, "node": node.name})
        for osd in node.osds
        if ("osd", str(osd)) not in there
    ]
    if "mon" in node.roles and not any(kind == "mon" for kind, _ in there):
        down.append(("mons_down", {"mon": node.name, "node": node.name}))
    return down


_ALIVE = {"active", "reloading"}


def _check(code: str, summary: str, severity: str = "HEALTH_ERR") -> dict[str, str]:
    return {"code": code, "severity": severity, "summary": summary}


def _health(
    config: AgentConfig, nodes: Mapping[str, Any], missing: Mapping[str, Exception]
) -> dict[str, Any]:
    """Return the health of a store without health checks of its own: its daemons and nodes."""
    checks = [
        _check("DAEMON_DOWN", f"{unit.removesuffix('.service')} on node {name} is {state}")
        for name, seen in nodes.items()
        for unit, state in seen["units"].items()
        if _OTHER_UNIT.fullmatch(unit) and state not in _ALIVE
    ]
    carriers = {n.name for n in config.nodes if {"nfs", "proxy", "storage", "object"} & {*n.roles}}
    checks += [
        _check("NO_ANSWER", f"{name}: {error}")
        for name, error in missing.items()
        if name.removeprefix("node ") in carriers
    ]
    return {"status": "HEALTH_ERR" if checks else "HEALTH_OK", "checks": checks}


def _loads(node: str, seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the node's running loads: units with the rate of the disturbance plan, and strays."""
    planned = {(load["node"], load["name"]): load for load in (read_state() or {}).get("loads", ())}
    rows: list[dict[str, Any]] = []
    for unit, state in seen["units"].items():
        name = unit.removeprefix(UNIT_PREFIX).removesuffix(".service")
        if name.startswith(units.LOAD_PREFIX) and state in {*_ALIVE, "activating"}:
            plan = planned.get((node, name))
            rate = plan.get("rate_iops") if plan else None
            rows.append({"node": node, "name": name, "planned": plan is not None, "iops": rate})
    return rows + [
        {"node": node, "name": line, "planned": False, "iops": None} for line in seen["strays"]
    ]
